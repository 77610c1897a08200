"""Partitions that a server hands over before it stops, or before another server takes them from it. Pure.

A server that begins to consume a partition reads its open segment from the start. So a segment with many messages to
read again is committed first. A partition that only the stopping server consumes moves to another server, if there is
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final

from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.progress import ProgressRecord
from merlot.cluster.records import ConsumingStatus, StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId

MOST_REPLAYED: Final = 200_000
"""Messages (of files: bytes) that may be read again: about a second's work. They are counted, not timed, since the
clocks of two machines may differ by more than that."""
MOST_MS: Final = 120_000
"""Time after a server was marked for which the status counts the partitions that it has to hand over: its image must be
replaceable even while a stream or deep store is unavailable."""

Reported = Iterable[ProgressRecord]


def is_long(record: StreamSegmentRecord, reported: Reported) -> bool:
    """Return True if the open segment, by the servers' progress, has too many messages for a new server to read
    again."""
    offsets = (
        partition.offset
        for progress in reported
        for partition in progress.partitions
        if partition.segment == record.name and partition.offset is not None
    )
    return max(offsets, default=record.start_offset) - record.start_offset > MOST_REPLAYED


def long_segments(view: TableView, server: InstanceId, reported: Reported) -> list[StreamSegmentRecord]:
    """Return the open segments on a server that must end before it stops, and those that are ending."""
    reported = list(reported)
    return [
        record
        for record in _consumed_by(view, server)
        if record.status == ConsumingStatus.SEALING or is_long(record, reported)
    ]


def lonely_segments(view: TableView, server: InstanceId, staying: Set[InstanceId]) -> list[StreamSegmentRecord]:
    """Return the open segments on a server that no staying server consumes, though one of them could."""
    if not staying - {server}:
        return []
    return [record for record in _consumed_by(view, server) if staying.isdisjoint(view.servers_of(record.name))]


def num_to_hand_over(
    view: TableView, server: InstanceId, staying: Set[InstanceId], reported: Mapping[InstanceId, ProgressRecord]
) -> int:
    """Return how many partitions a server that is about to stop still has to hand over.

    `staying`: live servers of the table that are not about to stop."""
    remaining = [*long_segments(view, server, reported.values()), *lonely_segments(view, server, staying)]
    return len({record.partition for record in remaining})


def _consumed_by(view: TableView, server: InstanceId) -> list[StreamSegmentRecord]:
    return [
        record
        for record in open_segments(view).values()
        if record.status != ConsumingStatus.PAUSED and server in view.servers_of(record.name)
    ]
