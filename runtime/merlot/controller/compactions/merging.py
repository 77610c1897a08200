"""Choice of small segments of an upsert table to merge: a pure function.

A run of sealed segments that follow each other in a partition becomes one segment, in the place of the last of them. No
segment has more than half of its run's docs. So a row is rewritten when as many docs have arrived as there were before,
not with each small segment that arrives. Segments that brokers may still answer from consumed rows are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from merlot.cluster.consuming.merged import names_under_way
from merlot.cluster.consuming.transactions import is_decided_by_age
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.tasks.compactions import MAX_DOCS
from merlot.cluster.tasks.records import MERGE_LEVEL, CompactionConfig
from merlot.spec.upserting import SegmentMergeSpec

Chain = Mapping[int, StreamSegmentRecord]


@dataclass(frozen=True, slots=True)
class MergeInput:
    """A segment that may be merged."""

    record: StreamSegmentRecord
    num_invalid: int

    @property
    def num_valid(self) -> int:
        """Return the approximate number of rows that go into the new file."""
        return self.record.total_docs - self.num_invalid


def merges(
    chain: Chain, spec: SegmentMergeSpec, replaced: Mapping[str, int], is_free: Callable[[StreamSegmentRecord], bool]
) -> Iterator[CompactionConfig]:
    """Yield the merges of a partition. `is_free`: no other task is to change the segment, and all servers answer for it
    from its file."""
    if is_decided_by_age(chain):
        return
    busy = names_under_way(chain.values())
    newest = max((sequence for sequence, record in chain.items() if not record.is_open), default=-1)

    def is_mergeable(record: StreamSegmentRecord) -> bool:
        is_sealed = not record.is_open and record.sequence != newest and record.total_docs > 0
        return is_sealed and record.name not in busy and is_free(record)

    for run in _runs([chain[sequence] for sequence in sorted(chain)], is_mergeable):
        remaining = [MergeInput(record, replaced.get(record.key_text, 0)) for record in run]
        while remaining:
            number = _number_to_merge(remaining, spec)
            if number:
                yield _config(remaining[:number])
            remaining = remaining[number or 1 :]


def _runs(
    segments: Sequence[StreamSegmentRecord], is_mergeable: Callable[[StreamSegmentRecord], bool]
) -> Iterator[list[StreamSegmentRecord]]:
    """Yield runs of segments that follow each other without a gap in the stream and were decided by the same
    settings."""
    run: list[StreamSegmentRecord] = []
    for can_merge, group in groupby(segments, is_mergeable):
        for record in group if can_merge else ():
            if run and (record.lost_from is not None or record.upsert != run[-1].upsert):
                yield run
                run = []
            run.append(record)
        yield run
        run = []


def _number_to_merge(segments: Sequence[MergeInput], spec: SegmentMergeSpec) -> int:
    """Return how many segments, from the first on, become one; 0 if the first stays as it is."""
    most = 0
    for number in range(1, min(len(segments), spec.max_num_segments_per_task) + 1):
        first = segments[:number]
        docs, rows = sum(segment.record.total_docs for segment in first), sum(segment.num_valid for segment in first)
        size = sum(segment.record.size_bytes for segment in first)
        if docs > MAX_DOCS or rows > spec.max_num_records_per_segment or size > spec.output_segment_max_size_in_bytes:
            break
        if number > 1 and rows and 2 * max(segment.record.total_docs for segment in first) <= docs:
            most = number
    return most


def _config(segments: Sequence[MergeInput]) -> CompactionConfig:
    keys = [segment.record.key_text for segment in segments]
    return CompactionConfig(
        segment=keys[-1],
        merged=tuple(keys[:-1]),
        partition=segments[0].record.partition,
        num_records=sum(segment.record.total_docs for segment in segments),
        num_invalid=sum(segment.num_invalid for segment in segments),
        num_bytes=sum(segment.record.size_bytes for segment in segments),
        level=MERGE_LEVEL,
    )
