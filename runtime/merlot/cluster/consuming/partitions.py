"""Chains of a stream's segments in a view, by partition. Pure."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.view import TableView


def chains(records: Iterable[StreamSegmentRecord]) -> Mapping[int, Mapping[int, StreamSegmentRecord]]:
    """Return the segments by partition and sequence. Sequences may be missing in between."""
    by_partition: dict[int, dict[int, StreamSegmentRecord]] = defaultdict(dict)
    for record in records:
        by_partition[record.partition][record.sequence] = record
    return by_partition


def segment_after(chain: Mapping[int, StreamSegmentRecord], sequence: int) -> StreamSegmentRecord | None:
    """Return the next segment of a partition's chain; sequences without rows, or of segments that are gone, are
    skipped."""
    return chain.get(min((number for number in chain if number > sequence), default=-1))


def last_segments(view: TableView) -> Mapping[int, StreamSegmentRecord]:
    """Return the last segment by partition: the open one, unless a client has broken the chain."""
    return MappingProxyType({segment.partition: segment for segment in view.stream_segments})


def open_segments(view: TableView) -> Mapping[int, StreamSegmentRecord]:
    """Return the open segment by partition; a partition whose chain is broken has none."""
    return MappingProxyType({number: segment for number, segment in last_segments(view).items() if segment.is_open})


def find_segment(view: TableView, partition: int, sequence: int) -> StreamSegmentRecord | None:
    """Return the segment with this sequence in a partition's chain; None if there is none."""
    segments = view.stream_segments
    at = bisect.bisect_left(segments, (partition, sequence), key=lambda segment: (segment.partition, segment.sequence))
    is_there = at < len(segments) and (segments[at].partition, segments[at].sequence) == (partition, sequence)
    return segments[at] if is_there else None


def stream_segment(view: TableView, name: str) -> StreamSegmentRecord | None:
    """Return the segment of this name, if it is a stream's."""
    record = view.segment(name)
    return record if isinstance(record, StreamSegmentRecord) else None


def lost_ranges(view: TableView) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """Return the offsets that the stream had lost before they were read, by partition: ranges [first, end)."""
    ranges: dict[int, tuple[tuple[int, int], ...]] = {}
    for segment in view.stream_segments:
        if segment.lost_from is not None:
            ranges[segment.partition] = (*ranges.get(segment.partition, ()), (segment.lost_from, segment.start_offset))
    return MappingProxyType(ranges)
