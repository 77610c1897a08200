"""Which changes pay, by measured times and bytes."""

import pytest

from merlot.advice.candidates import SORTED, Candidate
from merlot.advice.choice import Measured, Tried, choose

BASE = Measured((10.0, 10.0, 10.0), (1.0, 1.0, 1.0))


def tried(name: str, *times_ms: float, num_bytes: int = 100, kind: str = "inverted") -> Tried:
    one = Candidate(kind=kind, columns=(name,), helps=(), gain=0.0, num_bytes=0)
    return Tried(one, times_ms, num_bytes, 0.0)


def names(*every: Tried, max_bytes: int | None = None, base: Measured = BASE) -> list[str]:
    return [one.tried.candidate.columns[0] for one in choose(base, every, max_bytes)]


def test_what_saves_most_comes_first() -> None:
    assert names(tried("a", 10, 10, 5), tried("b", 1, 10, 10), tried("c", 10, 7, 10)) == ["b", "a", "c"]


def test_what_helps_nothing_is_left_out() -> None:
    assert names(tried("a", 10, 10, 9.9), tried("b", 11, 12, 13)) == []


def test_two_that_help_one_query_do_not_add_up() -> None:
    assert names(tried("a", 1, 10, 10), tried("b", 1.2, 10, 10)) == ["a"]


def test_of_two_that_do_the_same_the_smaller_is_taken() -> None:
    assert names(tried("large", 1, 10, 10, num_bytes=900), tried("small", 1.1, 10, 10, num_bytes=9)) == ["small"]


def test_a_query_that_is_asked_seldom_is_worth_little() -> None:
    base = Measured((10.0, 10.0, 10.0), (0.001, 1.0, 1.0))
    assert names(tried("a", 1, 10, 10), tried("b", 10, 6, 10), base=base) == ["b"]


def test_microseconds_are_no_gain() -> None:
    base = Measured((0.02, 0.02, 0.02), (1.0, 1.0, 1.0))
    assert names(tried("a", 0.01, 0.01, 0.01), base=base) == []


@pytest.mark.parametrize(
    ("max_bytes", "expected"),
    [
        (None, ["one", "two", "three"]),
        (1150, ["one", "two"]),
        (1149, ["two", "three"]),
        (350, ["two", "three"]),
        (150, ["two"]),
        (10, []),
    ],
)
def test_bytes_are_a_bound_and_small_ones_may_be_worth_more_than_a_large_one(
    max_bytes: int | None, expected: list[str]
) -> None:
    every = (
        tried("one", 1, 10, 10, num_bytes=1000),
        tried("two", 10, 2, 10, num_bytes=150),
        tried("three", 10, 10, 5, num_bytes=200),
    )
    assert names(*every, max_bytes=max_bytes) == expected


def test_an_order_counts_with_what_it_slows_down() -> None:
    assert names(tried("at", 1, 15, 15, kind=SORTED)) == []


def test_an_order_has_to_save_much_more_than_what_goes_without_it() -> None:
    by_index = tried("a", 1, 1, 10)
    assert names(by_index, tried("at", 1, 1, 8, kind=SORTED, num_bytes=0)) == ["a"]
    assert names(by_index, tried("at", 1, 10, 1, kind=SORTED, num_bytes=0)) == ["at", "a"]


def test_rows_have_one_order() -> None:
    assert names(tried("at", 1, 1, 10, kind=SORTED), tried("bt", 10, 1, 1, kind=SORTED)) == ["at"]


def test_gains_are_shares_of_all_time() -> None:
    (first, second) = choose(BASE, [tried("a", 1, 10, 10), tried("b", 10, 4, 10)])
    assert first.gain == pytest.approx(0.3)
    assert second.gain == pytest.approx(0.2)
    assert (first.helps, second.helps) == ((0,), (1,))
