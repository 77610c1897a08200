"""Buckets of time: fixed and calendar, on both sides of 1970."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.errors import InvalidInputError
from merlot.values.periods import DAY_MS, parse

MILLIS = st.integers(-(10**14), 10**14)
PERIODS = st.sampled_from(["1s", "7m", "1h", "6h", "1d", "7d", "1w", "1mo", "3mo", "5mo", "12mo"]).map(parse)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@given(PERIODS, MILLIS)
def test_an_instant_is_in_its_bucket(period, millis) -> None:
    start, end = period.floor(millis), period.next(millis)
    assert start <= millis < end
    assert period.floor(start) == start
    assert period.floor(end - 1) == start
    assert period.floor(end) == end
    assert period.count(start, end) == 1


@given(PERIODS, MILLIS, st.integers(0, 50))
def test_as_many_buckets_are_counted_as_there_are(period, millis, number) -> None:
    end = period.floor(millis)
    for _ in range(number):
        end = period.next(end)
    assert period.count(millis, end) == number
    assert period.count(end, millis) == 0


def test_a_month_is_a_calendar_month() -> None:
    month = parse("1mo")
    assert month.floor(at("2024-02-29T23:59")) == at("2024-02-01")
    assert month.next(at("2024-02-29T23:59")) == at("2024-03-01")
    assert month.floor(-1) == at("1969-12-01")
    assert parse("12mo").floor(at("1969-06-01")) == at("1969-01-01")
    assert parse("3mo").floor(at("2024-05-31")) == at("2024-04-01")


def test_days_before_1970_round_down() -> None:
    assert parse("1d").floor(-1) == -DAY_MS
    assert parse("7d").floor(-1) == -7 * DAY_MS


def test_a_month_earlier_than_the_31st_is_the_end_of_a_shorter_month() -> None:
    assert parse("1mo").before(at("2024-03-31T12:00")) == at("2024-03-01") - 1
    assert parse("1mo").before(at("2024-03-15T12:00")) == at("2024-02-15T12:00")
    assert parse("2h").before(at("2024-03-15T12:00")) == at("2024-03-15T10:00")
    assert parse("0d").before(5) == 5


@pytest.mark.parametrize("millis", [-(10**17), -(62_135_596_800_000) - 1, 253_402_300_800_000, 10**17])
def test_instants_that_no_calendar_has_are_in_a_bucket_too(millis: int) -> None:
    month = parse("1mo")
    assert month.floor(millis) <= millis < month.next(millis)


@pytest.mark.parametrize(
    ("coarser", "finer", "is_multiple"),
    [
        ("1d", "1h", True),
        ("7d", "2d", False),
        ("1mo", "1d", True),
        ("1mo", "6h", True),
        ("1mo", "2d", False),
        ("1mo", "7d", False),
        ("12mo", "3mo", True),
        ("12mo", "5mo", False),
        ("30d", "1mo", False),
        ("1d", "1d", True),
        ("1d", "0d", False),
    ],
)
def test_whole_multiples(coarser: str, finer: str, is_multiple: bool) -> None:
    assert parse(coarser).is_multiple_of(parse(finer)) is is_multiple


@pytest.mark.parametrize("text", ["", "1", "d", "1y", "1 d", "-1d", "1.5h", "1M", "1d12h"])
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is no period"):
        parse(text)
