"""Which small segments of an upsert table are merged: a pure function of what is known and a clock.

A run of sealed segments that follow each other in a partition becomes one, in the place of the last of them. No segment
has more than half of its run's docs, so a row is written again each time that so much has come as is there, and not
with each small segment that comes. Segments that brokers may still ask for by rows that were consumed are left alone.
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
class Sealed:
    """A segment that may be merged."""

    record: StreamSegmentRecord
    num_invalid: int

    @property
    def num_valid(self) -> int:
        """About as many rows go into the new file."""
        return self.record.total_docs - self.num_invalid


def merges(
    chain: Chain, spec: SegmentMergeSpec, replaced: Mapping[str, int], is_free: Callable[[StreamSegmentRecord], bool]
) -> Iterator[CompactionConfig]:
    """What tasks shall merge of a partition. `is_free`: nothing else is to happen to a segment, and none of its rows
    are answered but by its file."""
    if is_decided_by_age(chain):
        return
    busy = names_under_way(chain.values())
    newest = max((sequence for sequence, record in chain.items() if not record.is_open), default=-1)

    def may_be(record: StreamSegmentRecord) -> bool:
        is_sealed = not record.is_open and record.sequence != newest and record.total_docs > 0
        return is_sealed and record.name not in busy and is_free(record)

    for run in _runs([chain[one] for one in sorted(chain)], may_be):
        left = [Sealed(record, replaced.get(record.key_text, 0)) for record in run]
        while left:
            number = _number_to_merge(left, spec)
            if number:
                yield _config(left[:number])
            left = left[number or 1 :]


def _runs(
    line: Sequence[StreamSegmentRecord], may_be: Callable[[StreamSegmentRecord], bool]
) -> Iterator[list[StreamSegmentRecord]]:
    """Segments that follow each other without a gap in the stream, and were decided by the same settings."""
    found: list[StreamSegmentRecord] = []
    for is_one, group in groupby(line, may_be):
        for record in group if is_one else ():
            if found and (record.lost_from is not None or record.upsert != found[-1].upsert):
                yield found
                found = []
            found.append(record)
        yield found
        found = []


def _number_to_merge(line: Sequence[Sealed], spec: SegmentMergeSpec) -> int:
    """How many segments from the first on become one; 0: it stays."""
    most = 0
    for number in range(1, min(len(line), spec.max_num_segments_per_task) + 1):
        some = line[:number]
        docs, rows = sum(one.record.total_docs for one in some), sum(one.num_valid for one in some)
        size = sum(one.record.size_bytes for one in some)
        if docs > MAX_DOCS or rows > spec.max_num_records_per_segment or size > spec.output_segment_max_size_in_bytes:
            break
        if number > 1 and rows and 2 * max(one.record.total_docs for one in some) <= docs:
            most = number
    return most


def _config(some: Sequence[Sealed]) -> CompactionConfig:
    keys = [one.record.key_text for one in some]
    return CompactionConfig(
        segment=keys[-1],
        merged=tuple(keys[:-1]),
        partition=some[0].record.partition,
        num_records=sum(one.record.total_docs for one in some),
        num_invalid=sum(one.num_invalid for one in some),
        num_bytes=sum(one.record.size_bytes for one in some),
        level=MERGE_LEVEL,
    )
