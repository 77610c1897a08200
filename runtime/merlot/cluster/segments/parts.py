"""The two parts of a table that has batches and a stream: what batches published, and what the stream brought. Pure.

A segment is of one part alone. What takes the place of a stream's segments is of the stream too, and its record keeps
which offsets its rows are from: `0:100-250,3:0-90` are those of partition 0 from 100 to before 250, and so on. Some of
these rows may be in a segment beside it, or have been replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from merlot.cluster.records import SegmentRecord, StreamSegmentRecord

_STREAM = "stream"
_RANGE = re.compile(r"(\d+):(\d+)-(\d+)")

Offsets = Mapping[int, tuple[int, int]]
"""By partition: the first one, and the first one after."""


def is_of_stream(record: SegmentRecord) -> bool:
    """Whether the stream brought its rows, or they took the place of such."""
    return isinstance(record, StreamSegmentRecord) or bool(record.stream_offsets)


def offsets_of(record: SegmentRecord) -> Offsets:
    """Where a segment of the stream has its rows from."""
    if isinstance(record, StreamSegmentRecord):
        end = record.start_offset if record.end_offset is None else record.end_offset
        return {record.partition: (record.start_offset, end)}
    parsed = (tuple(map(int, found.groups())) for found in _RANGE.finditer(record.stream_offsets))
    return {partition: (start, end) for partition, start, end in parsed}


def joined_offsets(inputs: Iterable[SegmentRecord]) -> str:
    """What to keep with the segments that take the place of these; empty unless all of them are of the stream."""
    found: dict[int, tuple[int, int]] = {}
    for record in inputs:
        if not is_of_stream(record):
            return ""
        for partition, (start, end) in offsets_of(record).items():
            known = found.get(partition, (start, end))
            found[partition] = (min(start, known[0]), max(end, known[1]))
    return ",".join(f"{partition}:{start}-{end}" for partition, (start, end) in sorted(found.items()))


def are_mixed(records: Iterable[SegmentRecord]) -> bool:
    """Whether there are segments of both parts among them."""
    return len({is_of_stream(record) for record in records}) > 1


def partition_groups(records: Iterable[SegmentRecord]) -> Mapping[str, list[str]]:
    """Names of the segments that have rows of one partition: of the stream, or of what batches are partitioned by.

    A segment of batches that has no single partition is of no group. If some segment of the stream has rows of several
    partitions, all of the stream is one group.
    """
    known = list(records)
    of_stream = {record.name: offsets_of(record) for record in known if is_of_stream(record)}
    is_one = any(len(offsets) > 1 for offsets in of_stream.values())
    groups: dict[str, list[str]] = {}
    for record in known:
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
