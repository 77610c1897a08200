"""Pinot's TimeSegmentPruner tables, and the two places where Pinot loses rows."""

from __future__ import annotations

import pytest

from merlot.query.pruning.evaluate import evaluate
from merlot.query.pruning.verdicts import ALL, NONE, SOME

DAYS = [(10, 60), (20, 30), (50, 65)]


def kept(verdicts) -> set[int]:
    return {number for number, verdict in enumerate(verdicts.tolist()) if verdict != NONE}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("t = 40", {0}),
        ("t BETWEEN 20 AND 30", {0, 1}),
        ("t > 30 AND t <= 50", {0, 2}),
        ("t < 15 OR t > 45", {0, 2}),
        ("t < 15 OR (60 < t AND t < 70)", {0, 2}),
        ("NOT t BETWEEN 20 AND 30", {0, 2}),
        ("NOT t > 30", {0, 1}),
        ("t < 0 AND t > 0", set()),
        ("t IN (5, 25)", {0, 1}),
        ("t NOT IN (5, 25)", {0, 1, 2}),
        ("x = 3", {0, 1, 2}),
        ("t = 5 OR x = 3", {0, 1, 2}),
        ("t = 5 AND x = 3", set()),
        ("t + 1 = 5", set()),
        ("t * t = 5", {0, 1, 2}),
        ("t IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 31)", {0}),
        ("t NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9)", {0, 1, 2}),
    ],
)
def test_segments_that_pinots_time_pruner_keeps(where, ranged, condition, expected):
    assert kept(evaluate(where(condition), ranged(t=DAYS))) == expected


def test_not_of_a_half_understood_and_keeps_the_segment(where, ranged):
    """Pinot drops the segment that covers only t = 5, although its rows with x <> 1 match."""
    verdicts = evaluate(where("NOT (t = 5 AND x = 1)"), ranged(t=[(5, 5), (6, 9)]))
    assert verdicts.tolist() == [SOME, ALL]


@pytest.mark.parametrize("order", ["20, 10", "10, 20", "10, 20, 10, 20"])
def test_the_order_of_an_in_list_does_not_matter(where, ranged, order):
    """Pinot intersects unsorted intervals and answers nothing for (20, 10)."""
    statistics = ranged(t=[(1, 3), (9, 11), (18, 25)])
    assert kept(evaluate(where(f"t IN ({order}) AND t BETWEEN 5 AND 15"), statistics)) == {1}


def test_a_segment_of_one_value_is_all_or_none(where, ranged):
    statistics = ranged(t=[(5, 5)])
    assert evaluate(where("t = 5"), statistics).tolist() == [ALL]
    assert evaluate(where("t <> 5"), statistics).tolist() == [NONE]
    assert evaluate(where("t IN (4, 5)"), statistics).tolist() == [ALL]
    assert evaluate(where("t NOT IN (4, 5)"), statistics).tolist() == [NONE]


def test_an_unknown_segment_is_never_pruned(where, ranged):
    statistics = ranged(t=[None, (1, 2)])
    for condition in ("t = 9", "NOT t = 9", "t > 100", "NOT t < 100", "t IN (7, 8)", "t NOT IN (7, 8)", "t <> 9"):
        assert evaluate(where(condition), statistics)[0] == SOME


def test_ranges_of_texts(where, ranged):
    statistics = ranged(name=[("Anna", "Bert"), ("Bert", "Carl"), ("Émile", "Żaneta")])
    assert kept(evaluate(where("name = 'Bert'"), statistics)) == {0, 1}
    assert kept(evaluate(where("name > 'Z'"), statistics)) == {2}
    assert kept(evaluate(where("name LIKE 'Be%'"), statistics)) == {0, 1}
    assert kept(evaluate(where("name LIKE 'Car_'"), statistics)) == {1}
    assert kept(evaluate(where("name LIKE '%a'"), statistics)) == {0, 1, 2}
    assert kept(evaluate(where("NOT name LIKE 'Be%'"), statistics)) == {0, 1, 2}


def test_lists_match_by_any_value(where, ranged):
    statistics = ranged(tags=[(5, 5), (1, 9), (20, 30)])
    assert evaluate(where("tags = 5"), statistics).tolist() == [SOME, SOME, NONE]
    assert evaluate(where("tags <> 5"), statistics).tolist() == [SOME, SOME, ALL]
    assert evaluate(where("NOT tags > 10"), statistics).tolist() == [ALL, ALL, SOME]


def test_nulls_are_neither_passed_nor_failed(where, ranged):
    """A row whose t is null passes neither t = 5 nor its complement, whatever is stored for it."""
    statistics = ranged(t=[(5, 5)])
    condition = where("t = 5", enableNullHandling="true")
    assert evaluate(condition, statistics, null_handling=True).tolist() == [SOME]
    assert evaluate(where("NOT t = 5", enableNullHandling="true"), statistics, null_handling=True).tolist() == [NONE]
