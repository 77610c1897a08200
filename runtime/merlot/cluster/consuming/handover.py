"""What a server hands over before it stops, or before another one takes a partition from it. Pure.

Whoever begins to consume a partition reads its open segment from the start. So a segment that has much to read again is
committed first, and a partition that only the server that stops consumes goes to another one, if there is one.
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
"""Messages (of files: bytes) that may be read again: about a second's work. Counted, not timed, since the clocks of two
machines may differ by more than that."""
MOST_MS: Final = 120_000
"""So long a server that stops waits: a stream or deep store that is away must not keep its image from being mended."""

Told = Iterable[ProgressRecord]


def is_long(record: StreamSegmentRecord, told: Told) -> bool:
    """Whether the open segment has more to read again than a server that begins shall, by what servers tell of it."""
    offsets = (
        one.offset
        for progress in told
        for one in progress.partitions
        if one.segment == record.name and one.offset is not None
    )
    return max(offsets, default=record.start_offset) - record.start_offset > MOST_REPLAYED


def long_segments(view: TableView, server: InstanceId, told: Told) -> list[StreamSegmentRecord]:
    """Open segments on a server that are to end before it stops, or that are ending."""
    told = list(told)
    return [
        record
        for record in _consumed_by(view, server)
        if record.status == ConsumingStatus.SEALING or is_long(record, told)
    ]


def lonely_segments(view: TableView, server: InstanceId, staying: Set[InstanceId]) -> list[StreamSegmentRecord]:
    """Open segments on a server that none of those that stay consumes, though one of them could."""
    if not staying - {server}:
        return []
    return [record for record in _consumed_by(view, server) if staying.isdisjoint(view.servers_of(record.name))]


def num_to_hand_over(
    view: TableView, server: InstanceId, staying: Set[InstanceId], told: Mapping[InstanceId, ProgressRecord]
) -> int:
    """Partitions that a server that is about to stop still has to hand over. `staying`: live servers of the table that
    are not."""
    found = [*long_segments(view, server, told.values()), *lonely_segments(view, server, staying)]
    return len({record.partition for record in found})


def _consumed_by(view: TableView, server: InstanceId) -> list[StreamSegmentRecord]:
    return [
        record
        for record in open_segments(view).values()
        if record.status != ConsumingStatus.PAUSED and server in view.servers_of(record.name)
    ]
