"""A stream's partitions as a view has them: the chains of their segments. Pure."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.view import TableView


def chains(records: Iterable[StreamSegmentRecord]) -> Mapping[int, Mapping[int, StreamSegmentRecord]]:
    """Segments by partition and sequence, whatever is missing between."""
    found: dict[int, dict[int, StreamSegmentRecord]] = defaultdict(dict)
    for record in records:
        found[record.partition][record.sequence] = record
    return found


def segment_after(chain: Mapping[int, StreamSegmentRecord], sequence: int) -> StreamSegmentRecord | None:
    """The next segment of a partition's chain; those between had no rows, or are gone."""
    return chain.get(min((number for number in chain if number > sequence), default=-1))


def last_segments(view: TableView) -> Mapping[int, StreamSegmentRecord]:
    """The last segment by partition: the open one, but in a chain that somebody has broken."""
    return MappingProxyType({one.partition: one for one in view.stream_segments})


def open_segments(view: TableView) -> Mapping[int, StreamSegmentRecord]:
    """The open segment by partition; a partition whose chain is broken has none."""
    return MappingProxyType({number: one for number, one in last_segments(view).items() if one.is_open})


def find_segment(view: TableView, partition: int, sequence: int) -> StreamSegmentRecord | None:
    """The segment with this place in a partition's chain."""
    found = view.stream_segments
    at = bisect.bisect_left(found, (partition, sequence), key=lambda one: (one.partition, one.sequence))
    is_there = at < len(found) and (found[at].partition, found[at].sequence) == (partition, sequence)
    return found[at] if is_there else None


def stream_segment(view: TableView, name: str) -> StreamSegmentRecord | None:
    """The segment of this name, if it is one of a stream."""
    record = view.segment(name)
    return record if isinstance(record, StreamSegmentRecord) else None


def lost_ranges(view: TableView) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """Offsets that the stream had lost before they were read, by partition: from the first up to the second."""
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for one in view.stream_segments:
        if one.lost_from is not None:
            found[one.partition] = (*found.get(one.partition, ()), (one.lost_from, one.start_offset))
    return MappingProxyType(found)
