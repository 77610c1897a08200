"""Parts of a table that has batches and a stream: the segments of either. Pure.

A segment belongs to one part alone. Segments that replace a stream's segments are of the stream too, and their records
keep the offsets of their rows: `0:100-250,3:0-90` are those of partition 0 from 100 to before 250, and so on. Some rows
of these offsets may be in a segment beside it, or have been replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from merlot.cluster.records import SegmentRecord, StreamSegmentRecord

_STREAM = "stream"
_RANGE = re.compile(r"(\d+):(\d+)-(\d+)")

Offsets = Mapping[int, tuple[int, int]]
"""Offsets by partition: the first, and the end (exclusive)."""


def is_of_stream(record: SegmentRecord) -> bool:
    """Return True if a stream brought the rows of the segment, or of the segments that it replaced."""
    return isinstance(record, StreamSegmentRecord) or bool(record.stream_offsets)


def offsets_of(record: SegmentRecord) -> Offsets:
    """Return the offsets of the rows of a stream's segment."""
    if isinstance(record, StreamSegmentRecord):
        end = record.start_offset if record.end_offset is None else record.end_offset
        return {record.partition: (record.start_offset, end)}
    parsed = (tuple(map(int, match.groups())) for match in _RANGE.finditer(record.stream_offsets))
    return {partition: (start, end) for partition, start, end in parsed}


def joined_offsets(inputs: Iterable[SegmentRecord]) -> str:
    """Return the offsets to keep with the segments that replace these; empty unless all of them are of the stream."""
    offsets: dict[int, tuple[int, int]] = {}
    for record in inputs:
        if not is_of_stream(record):
            return ""
        for partition, (start, end) in offsets_of(record).items():
            joined = offsets.get(partition, (start, end))
            offsets[partition] = (min(start, joined[0]), max(end, joined[1]))
    return ",".join(f"{partition}:{start}-{end}" for partition, (start, end) in sorted(offsets.items()))


def are_mixed(records: Iterable[SegmentRecord]) -> bool:
    """Return True if there are segments of both parts."""
    return len({is_of_stream(record) for record in records}) > 1


def partition_groups(records: Iterable[SegmentRecord]) -> Mapping[str, list[str]]:
    """Group the names of segments by partition: of the stream, or of the batches' partitioning.

    A segment of batches without a single partition is in no group. If some segment of the stream has rows of several
    partitions, the whole stream is one group."""
    segments = list(records)
    of_stream = {record.name: offsets_of(record) for record in segments if is_of_stream(record)}
    is_one = any(len(offsets) > 1 for offsets in of_stream.values())
    groups: dict[str, list[str]] = {}
    for record in segments:
        label = _batch_group(record)
        if record.name in of_stream:
            label = _STREAM if is_one else f"{_STREAM}-{next(iter(of_stream[record.name]))}"
        if label:
            groups.setdefault(label, []).append(record.name)
    return groups


def _batch_group(record: SegmentRecord) -> str:
    if len(record.partitions) != 1:
        return ""
    ((column, entry),) = record.partitions.items()
    if len(entry.partitions) != 1:
        return ""
    return f"batch-{column}-{entry.function_name}-{entry.num_partitions}-{entry.partitions[0]}"
