"""Segments of a table that a merge may take, and the level up to which each is merged. Pure.

A segment of a level, or of a coarser one, is never split for a finer one. Segments that are no candidates stay as they
are: those without rows or times, past retention, marked `shouldNotMerge`, still needed by a stream, or so wide that
they reach into more buckets than a task can name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merlot.cluster.records import SegmentRecord, StreamSegmentRecord
from merlot.spec.tasks import BACKFILLED, MERGE_LEVEL, SHOULD_NOT_MERGE, MergeLevel

MAX_BUCKETS_OF_SEGMENT = 10_000
"""Most buckets that a segment may reach into. With more it has a broken time, or belongs to a coarser level."""

UNMERGED = -1


@dataclass(frozen=True, slots=True)
class MergeCandidate:
    """The facts about a segment that merges need. Times are inclusive, in epoch milliseconds."""

    name: str
    key: str
    """`name@crc`."""
    start_ms: int
    end_ms: int
    num_docs: int
    num_bytes: int
    rank: int
    """Index of the level that made the segment; UNMERGED if the manifest names no such level."""
    is_backfilled: bool


class Candidates:
    """Candidates in order of time, with an interval tree to find those that overlap a window.

    `without_time` counts the segments that are no candidates only because their times are unknown."""

    def __init__(self, candidates: Iterable[MergeCandidate], without_time: int = 0) -> None:
        self.without_time = without_time
        self.all: Sequence[MergeCandidate] = sorted(
            candidates, key=lambda segment: (segment.start_ms, segment.end_ms, segment.name)
        )
        self._latest_ends = [0] * len(self.all)
        self._fill(0, len(self.all))

    def overlapping(self, start_ms: int, end_ms: int) -> list[MergeCandidate]:
        """Return the candidates with a time in [start, end), in order."""
        matches: list[MergeCandidate] = []
        self._collect(0, len(self.all), (start_ms, end_ms), matches)
        return matches

    @property
    def start_ms(self) -> int:
        """Return the earliest time; there must be a candidate."""
        return self.all[0].start_ms

    @property
    def end_ms(self) -> int:
        """Return the latest time; there must be a candidate."""
        return self._latest_ends[len(self.all) // 2]

    def __len__(self) -> int:
        return len(self.all)

    def _fill(self, low: int, high: int) -> int | None:
        """Store the latest end of each range at the range's middle. Return that of the whole range; None if it is
        empty."""
        if low >= high:
            return None
        middle = (low + high) // 2
        ends = (self.all[middle].end_ms, self._fill(low, middle), self._fill(middle + 1, high))
        self._latest_ends[middle] = max(end for end in ends if end is not None)
        return self._latest_ends[middle]

    def _collect(self, low: int, high: int, window: tuple[int, int], matches: list[MergeCandidate]) -> None:
        middle = (low + high) // 2
        if low >= high or self._latest_ends[middle] < window[0]:
            return
        self._collect(low, middle, window, matches)
        candidate = self.all[middle]
        if candidate.start_ms < window[1]:
            if candidate.end_ms >= window[0]:
                matches.append(candidate)
            self._collect(middle + 1, high, window, matches)


def candidates(
    visible: Mapping[str, SegmentRecord], levels: Sequence[MergeLevel], *, oldest_ms: int | None = None
) -> Candidates:
    """Return the candidates among the visible segments. A segment whose newest row is before `oldest_ms` is past
    retention."""
    ranks = {level.key: rank for rank, level in enumerate(levels)}
    held_back = held_back_by_streams(visible.values())
    segments = []
    without_time = 0
    for record in visible.values():
        if record.name in held_back or not may_merge(record):
            continue
        start_ms, end_ms, newest_ms = record.start_time_ms, record.end_time_ms, record.newest_ms
        if start_ms is None or end_ms is None or newest_ms is None or end_ms < start_ms:
            without_time += 1
        elif oldest_ms is None or newest_ms >= oldest_ms:
            segments.append(_candidate(record, start_ms, end_ms, ranks))
    return Candidates(segments, without_time)


def may_merge(record: SegmentRecord) -> bool:
    """Return whether the segment has rows and is not marked `shouldNotMerge`."""
    return record.total_docs > 0 and record.custom_map.get(SHOULD_NOT_MERGE, "").lower() != "true"


def held_back_by_streams(records: Iterable[SegmentRecord]) -> frozenset[str]:
    """Return the names of segments that a stream still needs: open ones, and each partition's newest completed one.

    If the open segment is lost, the partition goes on where the newest completed one ends, so that one must stay."""
    newest: dict[int, tuple[int, str]] = {}
    held = set()
    for record in records:
        if not isinstance(record, StreamSegmentRecord):
            continue
        if record.is_open:
            held.add(record.name)
        else:
            newest[record.partition] = max(newest.get(record.partition, (-1, "")), (record.sequence, record.name))
    return frozenset(held | {name for _, name in newest.values()})


def is_too_wide(candidate: MergeCandidate, level: MergeLevel) -> bool:
    """Return whether a segment reaches into too many of the level's buckets."""
    span_ms = candidate.end_ms - candidate.start_ms
    if span_ms <= level.bucket.nominal_ms * MAX_BUCKETS_OF_SEGMENT // 2:
        return False
    return level.bucket.count(candidate.start_ms, candidate.end_ms) >= MAX_BUCKETS_OF_SEGMENT


def _candidate(record: SegmentRecord, start_ms: int, end_ms: int, ranks: Mapping[str, int]) -> MergeCandidate:
    return MergeCandidate(
        name=record.name,
        key=record.key_text,
        start_ms=start_ms,
        end_ms=end_ms,
        num_docs=record.total_docs,
        num_bytes=record.size_bytes,
        rank=ranks.get(record.custom_map.get(MERGE_LEVEL, "").lower(), UNMERGED),
        is_backfilled=BACKFILLED in record.custom_map,
    )
