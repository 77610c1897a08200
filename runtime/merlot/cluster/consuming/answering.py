"""Find out how servers answer for a partition's segments, from their reports: by consumed rows, or by files. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId

CONSUMING_SUFFIX = "@0"
Reports = Mapping[InstanceId, Set[str]]
"""Segment keys that each server answers for."""


def by_rows(reports: Reports) -> Mapping[int, int]:
    """Return, by partition, the sequence of the first segment that some server answers for by consumed rows. The
    segment may have been committed or removed since."""
    firsts: dict[int, int] = {}
    names = (key.removesuffix(CONSUMING_SUFFIX) for keys in reports.values() for key in keys if _is_of_rows(key))
    for name in filter(None, map(StreamSegmentName.parse, names)):
        firsts[name.partition] = min(name.sequence, firsts.get(name.partition, name.sequence))
    return firsts


def _is_of_rows(key: str) -> bool:
    return key.endswith(CONSUMING_SUFFIX)


def of_members(reports: Reports, view: TableView, partition: int, live: Collection[InstanceId]) -> Reports:
    """Return the reports of servers that queries of a partition may go to: live servers, and servers that it is
    assigned to."""
    chain = chains(view.stream_segments).get(partition, {})
    assigned = {server for record in chain.values() for server in view.servers_of(record.name)}
    return {server: keys for server, keys in reports.items() if server in live or server in assigned}


def is_everywhere(record: StreamSegmentRecord, reports: Reports, view: TableView, live: Collection[InstanceId]) -> bool:
    """Return True if every live server of the segment answers for it by its file, and there is one."""
    servers = [server for server in view.servers_of(record.name) if server in live]
    return bool(servers) and all(record.key_text in reports.get(server, ()) for server in servers)
