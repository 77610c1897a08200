"""Distances between texts, as they are defined: cell by cell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from merlot.functions.search import _edits

LONG = 10_000
TEXTS = st.text("abé日", max_size=80)


def defined(left: str, right: str) -> int:
    before = list(range(len(right) + 1))
    for row, letter in enumerate(left, 1):
        now = [row]
        for column, other in enumerate(right, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != other)))
        before = now
    return before[-1]


@given(TEXTS, TEXTS)
def test_the_distance_is_that_of_its_definition(left: str, right: str) -> None:
    assert _edits(left, right) == defined(left, right)


def test_texts_as_long_as_a_query_may_make_them_are_compared() -> None:
    """A broker works them out where it plans: 10^8 cells held it up for a minute."""
    assert _edits("a" * LONG, "b" * LONG) == LONG
    assert _edits("ab" * (LONG // 2), "ba" * (LONG // 2)) == 2
    assert _edits("a" * LONG, "") == LONG
    assert _edits("", "a" * LONG) == LONG
    assert _edits("xab" * 3_000, "ab" * 3_000) == 3_000
