"""Partitions: Pinot's table, other functions in other segments, constants that a function cannot take."""

from __future__ import annotations

import pytest

from merlot.query.pruning.evaluate import evaluate
from merlot.query.pruning.partitions import HashedFunction, value_text
from merlot.query.pruning.verdicts import NONE, SOME
from merlot.values.types import TypeName


def kept(verdicts) -> set[int]:
    return {number for number, verdict in enumerate(verdicts.tolist()) if verdict != NONE}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("memberId = '0'", {0, 2, 3}),
        ("memberId = '1'", {1, 3}),
        ("memberId IN ('0', '1')", {0, 1, 2, 3}),
        ("memberId = '0' AND memberId = '1'", {3}),
        ("memberId = '0' OR memberId = '1'", {0, 1, 2, 3}),
        ("memberId <> '0'", {0, 1, 2, 3}),
        ("memberId NOT IN ('0', '1')", {0, 1, 2, 3}),
        ("memberId > '0'", {0, 1, 2, 3}),
        ("NOT memberId = '0'", {0, 1, 2, 3}),
        ("upper(memberId) = '0'", {0, 1, 2, 3}),
        ("memberId = '0' AND x = 7", {0, 2, 3}),
        ("memberId = '0' OR x = 7", {0, 1, 2, 3}),
    ],
)
def test_segments_that_pinots_partition_pruner_keeps(where, partitioned, condition, expected):
    """Murmur of 4: "0" is in 0, "1" in 3. The last segment says nothing of its partitions."""
    segments = [("Murmur", 4, {0}), ("Murmur", 4, {3}), ("Murmur", 4, {0, 1, 2}), None]
    assert kept(evaluate(where(condition), partitioned(memberId=segments))) == expected


def test_each_segment_is_judged_by_its_own_function(where, partitioned):
    """After a repartitioning, old segments keep the old function."""
    segments = [("Murmur", 4, {3}), ("HashCode", 5, {4}), ("HashCode", 5, {3})]
    assert kept(evaluate(where("memberId = '1'"), partitioned(memberId=segments))) == {0, 1}


def test_a_constant_that_the_function_cannot_take_prunes_nothing(where, partitioned):
    segments = [("Modulo", 4, {1}), ("Murmur", 4, {3}), ("Murmur", 4, {0})]
    assert kept(evaluate(where("memberId = 'x'"), partitioned(memberId=segments))) >= {0}


def test_all_partition_columns_are_used(where, partitioned):
    statistics = partitioned(
        memberId=[("Murmur", 4, {0}), ("Murmur", 4, {0}), ("Murmur", 4, {3})],
        x=[("Modulo", 2, {0}), ("Modulo", 2, {1}), ("Modulo", 2, {0})],
    )
    assert kept(evaluate(where("memberId = '0' AND x = 6"), statistics)) == {0}
    assert kept(evaluate(where("memberId = '0' OR x = 6"), statistics)) == {0, 1, 2}


def test_not_under_a_partition_is_exact_only_where_no_row_matches(where, partitioned):
    statistics = partitioned(memberId=[("Murmur", 4, {0}), ("Murmur", 4, {3})])
    assert evaluate(where("NOT (memberId = '0' AND x = 1)"), statistics).tolist()[0] == SOME


def test_constants_have_the_texts_that_segments_were_partitioned_by():
    assert value_text(TypeName.DOUBLE, 1e7) == "1.0E7"
    assert value_text(TypeName.FLOAT, 0.10000000149011612) == "0.1"
    assert value_text(TypeName.DOUBLE, -0.0) is None
    assert value_text(TypeName.BYTES, b"\x0a\xff") == "0aff"
    assert value_text(TypeName.BOOLEAN, True) == "true"
    assert value_text(TypeName.TIMESTAMP, 12) == "12"


def test_partitions_of_long_texts_are_not_cached() -> None:
    texts: list[str] = []

    def function(text: str) -> int:
        texts.append(text)
        return len(text)

    hashed = HashedFunction(function)
    assert [hashed.partition_of("x" * length) for length in (10, 10, 1_000, 1_000)] == [10, 10, 1_000, 1_000]
    assert len(texts) == 2
    assert [hashed.partition_of("x" * 1_001) for _ in range(2)] == [1_001, 1_001]
    assert len(texts) == 4
