"""By what servers answer for a partition's segments: rows that they consumed, or files. Pure, of what they report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId

CONSUMING_SUFFIX = "@0"
Reports = Mapping[InstanceId, Set[str]]
"""Keys that servers answer for."""


def by_rows(reports: Reports) -> Mapping[int, int]:
    """By partition, the first segment that some server answers for from its beginning on, whatever became of it."""
    found: dict[int, int] = {}
    names = (key.removesuffix(CONSUMING_SUFFIX) for keys in reports.values() for key in keys if _is_of_rows(key))
    for name in filter(None, map(StreamSegmentName.parse, names)):
        found[name.partition] = min(name.sequence, found.get(name.partition, name.sequence))
    return found


def _is_of_rows(key: str) -> bool:
    return key.endswith(CONSUMING_SUFFIX)


def of_members(reports: Reports, view: TableView, partition: int, live: Collection[InstanceId]) -> Reports:
    """The reports of servers that may be asked for a partition: those that live, and those it is assigned to."""
    chain = chains(view.stream_segments).get(partition, {})
    assigned = {one for record in chain.values() for one in view.servers_of(record.name)}
    return {one: keys for one, keys in reports.items() if one in live or one in assigned}


def is_everywhere(record: StreamSegmentRecord, reports: Reports, view: TableView, live: Collection[InstanceId]) -> bool:
    """Whether every server that lives and has to answers for a segment by its file."""
    servers = [one for one in view.servers_of(record.name) if one in live]
    return bool(servers) and all(record.key_text in reports.get(one, ()) for one in servers)
