"""Runs of buckets and the tree of candidates give what a look at each bucket and segment gives."""

from hypothesis import given
from hypothesis import strategies as st

from merlot.controller.merges.buckets import BucketRuns
from merlot.controller.merges.candidates import Candidates, MergeCandidate
from merlot.values.periods import parse

DAY = 86_400_000
PERIODS = st.sampled_from(["1d", "7d", "1mo"]).map(parse)
SPANS = st.lists(st.tuples(st.integers(-90, 90), st.integers(0, 40)), max_size=12)
DAYS = st.integers(-120, 150)


def candidates(spans: list[tuple[int, int]]) -> list[MergeCandidate]:
    return [
        MergeCandidate(
            name=f"s{number}",
            key=f"s{number}@1",
            start_ms=start * DAY + 1,
            end_ms=(start + days) * DAY + 2,
            num_docs=1,
            num_bytes=1,
            rank=-1,
            is_backfilled=False,
        )
        for number, (start, days) in enumerate(spans)
    ]


def buckets_one_by_one(period, held, from_ms=None, to_ms=None) -> list[tuple[int, int]]:
    found = set()
    for one in held:
        start = period.floor(one.start_ms if from_ms is None else max(one.start_ms, from_ms))
        last = one.end_ms if to_ms is None else min(one.end_ms, to_ms - 1)
        while start <= last:
            found.add((start, period.next(start)))
            start = period.next(start)
    return sorted(found)


@given(PERIODS, SPANS, st.none() | DAYS, st.none() | DAYS)
def test_runs_are_the_buckets_that_hold_something(period, spans, first, last) -> None:
    held = candidates(spans)
    from_ms = None if first is None else period.floor(first * DAY)
    to_ms = None if last is None else period.floor(last * DAY)
    runs = BucketRuns.of(period, held, from_ms, to_ms)
    expected = buckets_one_by_one(period, held, from_ms, to_ms)
    assert list(runs.buckets()) == expected
    assert runs.count() == len(expected)
    assert bool(runs) is bool(expected)


@given(PERIODS, SPANS, DAYS, st.integers(1, 60))
def test_runs_tell_what_ends_before_and_what_overlaps(period, spans, day, days) -> None:
    runs = BucketRuns.of(period, candidates(spans))
    start, end = day * DAY, (day + days) * DAY
    assert runs.count(start) == sum(bucket[1] <= start for bucket in runs.buckets())
    assert runs.overlaps(start, end) is any(low < end and high > start for low, high in runs.buckets())


@given(SPANS, DAYS, st.integers(1, 60))
def test_the_tree_finds_what_overlaps_in_order(spans, day, days) -> None:
    held = Candidates(candidates(spans))
    start, end = day * DAY, (day + days) * DAY
    assert held.overlapping(start, end) == [one for one in held.all if one.start_ms < end and one.end_ms >= start]
    if held:
        assert held.start_ms == min(one.start_ms for one in held.all)
        assert held.end_ms == max(one.end_ms for one in held.all)
