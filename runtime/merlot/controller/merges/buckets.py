"""Runs of buckets that hold certain segments. Buckets are not listed one by one. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from merlot.controller.merges.candidates import MergeCandidate
from merlot.values.periods import Period


@dataclass(frozen=True, slots=True)
class BucketRuns:
    """Disjoint runs of buckets in ascending order: (start of the first bucket, end of the last one)."""

    bucket: Period
    spans: Sequence[tuple[int, int]]

    @classmethod
    def of(
        cls, bucket: Period, segments: Iterable[MergeCandidate], from_ms: int | None = None, to_ms: int | None = None
    ) -> BucketRuns:
        """Return the buckets that these segments reach into, from the bucket of `from_ms` on, before the one of
        `to_ms`."""
        spans = []
        for segment in segments:
            start_ms = segment.start_ms if from_ms is None else max(segment.start_ms, from_ms)
            end_ms = segment.end_ms if to_ms is None else min(segment.end_ms, to_ms - 1)
            if start_ms <= end_ms:
                spans.append((start_ms, end_ms))
        return cls(bucket, _joined(bucket, sorted(spans)))

    def __bool__(self) -> bool:
        return bool(self.spans)

    @property
    def start_ms(self) -> int:
        """Start of the first bucket."""
        return self.spans[0][0]

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Yield each bucket, lazily."""
        for first_ms, end_ms in self.spans:
            start_ms = first_ms
            while start_ms < end_ms:
                next_ms = self.bucket.next(start_ms)
                yield start_ms, next_ms
                start_ms = next_ms

    def count(self, before_ms: int | None = None) -> int:
        """Return the number of buckets; with `before_ms`, of those that end by then."""
        total = 0
        for start_ms, end_ms in self.spans:
            limit_ms = end_ms if before_ms is None else min(end_ms, before_ms)
            total += self.bucket.count(start_ms, limit_ms)
        return total

    def overlaps(self, start_ms: int, end_ms: int) -> bool:
        """Return whether any bucket has a time in [start, end)."""
        index = bisect_right(self.spans, start_ms, key=lambda span: span[1])
        return index < len(self.spans) and self.spans[index][0] < end_ms


def _joined(bucket: Period, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Turn sorted inclusive time ranges into runs of whole buckets that neither overlap nor touch."""
    runs: list[tuple[int, int]] = []
    for start_ms, end_ms in spans:
        if runs and start_ms < runs[-1][1]:
            if end_ms >= runs[-1][1]:
                runs[-1] = (runs[-1][0], bucket.next(end_ms))
            continue
        first_ms = bucket.floor(start_ms)
        if runs and first_ms == runs[-1][1]:
            runs[-1] = (runs[-1][0], bucket.next(end_ms))
        else:
            runs.append((first_ms, bucket.next(end_ms)))
    return runs
