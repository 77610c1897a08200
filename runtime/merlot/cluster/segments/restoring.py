"""Decide whether a removed segment may come back: only while none of its rows are in the table otherwise. Pure.

Rows may have come back in two ways since. A merged segment may hold them, which its record says; or the stream was
consumed again, from an offset before the segment's end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from merlot.cluster.records import SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments import origins
from merlot.cluster.segments.mutations import PreconditionError
from merlot.cluster.segments.parts import is_of_stream, offsets_of
from merlot.cluster.segments.view import TableView


def check(
    view: TableView, records: Collection[SegmentRecord], removed_ms: Mapping[str, int], divided: Sequence[str]
) -> None:
    """Raise PreconditionError, naming the segment that has the rows, if one of the records may not come back.

    `removed_ms`: time of removal by name; if it is empty, nothing is checked. `divided`: segments of the table that
    hold rows of the same days under another partitioning."""
    if not removed_ms:
        return
    if divided:
        raise PreconditionError(
            f"rows are in the table already, under another partitioning segments={','.join(divided[:3])}"
        )
    names = [record.name for record in records]
    merged = origins.origins(view.segments.values(), [*names, *map(origins.made_name, names)])
    for record in records:
        holder_sets = [merged[name].holders for name in (record.name, origins.made_name(record.name)) if name in merged]
        holders = sorted(frozenset().union(*holder_sets)) or origins.inside(record, view.segments)
        if holders:
            raise PreconditionError(
                f"rows are in the table already, in segments that took the place of these or were made into them "
                f"segment={record.name} now_in={holders[0]}"
            )
        if isinstance(record, StreamSegmentRecord):
            _check_place(view, record)
        if is_of_stream(record):
            others = [*view.segments.values(), *(other for other in records if other is not record)]
            _check_offsets(record, others, removed_ms[record.name])


def as_it_was(record: SegmentRecord, now_ms: int) -> SegmentRecord:
    """Return the record to put. Its refresh time tells running brokers that it is new, since no server has loaded it.
    Its origins are marked as partial, since other segments of the same origins may be gone."""
    pushed_ms = record.push_time_ms if record.push_time_ms > 0 else now_ms
    update = {"replaces": "", "replaced_by": "", "push_time_ms": pushed_ms, "refresh_time_ms": now_ms}
    return origins.in_part(record).model_copy(update=update)


def _check_place(view: TableView, record: StreamSegmentRecord) -> None:
    """Raise PreconditionError if the place in the chain is taken: the open segment must stay the last of its
    partition."""
    for other in view.stream_segments:
        if other.partition == record.partition and (
            other.sequence == record.sequence or (other.is_open and other.sequence < record.sequence)
        ):
            raise PreconditionError(
                f"another segment has the place in the partition's chain segment={record.name} other={other.name}"
            )


def _check_offsets(record: SegmentRecord, others: Sequence[SegmentRecord], removed_ms: int) -> None:
    for partition, start, end in _ranges(record):
        for other in others:
            offsets = _range_in(other, partition)
            if offsets is None or not (offsets[0] < end and start < offsets[1]):
                continue
            if (_is_exact(record) and _is_exact(other)) or _came_ms(other) >= removed_ms:
                raise PreconditionError(
                    f"offsets of the segment were consumed again, or may have been, and its rows would count twice "
                    f"segment={record.name} partition={partition} offsets={start}-{end} now_in={other.name}"
                )


def _ranges(record: SegmentRecord) -> Iterator[tuple[int, int, int]]:
    for partition, (start, end) in offsets_of(record).items():
        yield partition, start, end


def _range_in(record: SegmentRecord, partition: int) -> tuple[int, float] | None:
    """Return the offsets of a partition that a segment may hold; an open segment may come to hold all from its start
    on."""
    if record.is_open and isinstance(record, StreamSegmentRecord):
        return (record.start_offset, float("inf")) if record.partition == partition else None
    return offsets_of(record).get(partition) if is_of_stream(record) else None


def _is_exact(record: SegmentRecord) -> bool:
    """Return True if the segment has all rows of its offsets. A merged segment has only the rows of some time."""
    return isinstance(record, StreamSegmentRecord)


def _came_ms(record: SegmentRecord) -> int:
    """Return when a segment began, or was published."""
    return record.creation_time_ms if isinstance(record, StreamSegmentRecord) else record.push_time_ms
