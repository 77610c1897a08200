"""Bounds that kernels trust: those derived hold for every value, and those that lie are an error."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.support.forgery import put_together, taken_apart

from merlot.errors import CorruptionError, InvalidInputError
from merlot.functions.evaluate import evaluate
from merlot.functions.registry import FUNCTIONS
from merlot.query.bounds import bounds_of
from merlot.query.plan.binding import bind
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import SegmentColumns
from merlot.query.shortcuts import coalesced_segments
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse
from merlot.vectors.errors import QueryArithmeticError
from merlot.vectors.vector import INTEGERS

FIELDS: list[dict[str, Any]] = [
    {"name": "i", "type": "INT"},
    {"name": "l", "type": "LONG"},
    {"name": "t", "type": "TIMESTAMP"},
    {"name": "b", "type": "BOOLEAN"},
    {"name": "d", "type": "DOUBLE"},
    {"name": "x", "type": "BIG_DECIMAL"},
    {"name": "s", "type": "STRING"},
    {"name": "late", "type": "LONG"},
]
OF_FILES = pytest.mark.parametrize("layout", ["apart", "joined"], indirect=True)
"""What is looked at is how files are read."""
WHOLE = ("i", "l", "t", "b", "late", "5", "-3", "TRUE")
CASTS = ("INT", "LONG", "BOOLEAN", "TIMESTAMP")

SAMPLES = {
    "plus": "{} + {}",
    "minus": "{} - {}",
    "times": "{} * {}",
    "mod": "{} % {}",
    "negate": "-{}",
    "abs": "ABS({})",
    "ceil": "CEIL({})",
    "floor": "FLOOR({})",
    "cast": "CAST({} AS {type})",
    "case": "CASE WHEN {} > {} THEN {} ELSE {} END",
    "datetrunc": "DATETRUNC('day', {})",
    "length": "LENGTH(s)",
    "and": "({} > 1 AND {} < 3)",
    "or": "({} > 1 OR {} < 3)",
    "not": "NOT ({} > 1)",
    "equals": "({} = {})",
    "not_equals": "({} <> {})",
    "less_than": "({} < {})",
    "less_than_or_equal": "({} <= {})",
    "greater_than": "({} > {})",
    "greater_than_or_equal": "({} >= {})",
    "between": "({} BETWEEN 2 AND 6)",
    "in": "({} IN (5, 6))",
    "not_in": "({} NOT IN (5, 6))",
    "like": "(s LIKE 'a%')",
    "is_null": "(i IS NULL)",
    "is_not_null": "(i IS NOT NULL)",
}


def test_every_function_that_derives_bounds_is_sampled() -> None:
    assert set(SAMPLES) >= {function.name for function in FUNCTIONS if function.bounds is not None}


def expressions(template: str, depth: int = 1) -> st.SearchStrategy[str]:
    """The template over columns, constants and, to a depth, other expressions."""
    operand: st.SearchStrategy[str] = st.sampled_from(WHOLE)
    if depth:
        inner = st.sampled_from(sorted(SAMPLES.values())).flatmap(lambda one: expressions(one, depth - 1))
        operand |= inner.map("({})".format)
    operands = st.tuples(*[operand] * template.count("{}"))
    return st.tuples(operands, st.sampled_from(CASTS)).map(lambda drawn: template.format(*drawn[0], type=drawn[1]))


BASES = st.sampled_from([0, 5, -7, 2**31 - 4, -(2**31), 2**40, 2**62, 2**63 - 4, -(2**63)])
OFFSETS = st.lists(st.integers(0, 3), min_size=1, max_size=4)


def numbers(base: int, offsets: list[int], low: int, high: int) -> list[int]:
    return [min(max(base + offset, low), high) for offset in offsets]


@pytest.mark.parametrize("layout", ["apart"], indirect=True)
@pytest.mark.parametrize("function", sorted(SAMPLES))
@pytest.mark.parametrize("is_raw", [False, True], ids=["dictionary", "raw"])
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much])
@given(data=st.data())
def test_bounds_that_are_derived_hold_for_every_value(make_table, layout, function, is_raw, data):
    widened = [{**FIELDS[0], "type": data.draw(st.sampled_from(["INT", "LONG"]))}, *FIELDS[1:]]
    schema = TableSchema.model_validate({"fields": widened})
    sql = data.draw(expressions(SAMPLES[function]))
    try:
        expr = bind(parse(f"SELECT {sql} FROM t"), schema).select[0].expr
    except InvalidInputError:
        assume(False)  # the types of this one do not fit
    assume(expr.type.base in INTEGERS)
    base, offsets = data.draw(BASES), data.draw(OFFSETS)
    longs = numbers(base, offsets, -(2**63), 2**63 - 1)
    ints = numbers(base, offsets, -(2**31), 2**31 - 1)
    rows = [
        {"i": small, "l": large, "t": large // 1024, "b": large % 2 == 1, "d": large / 3, "x": str(small), "s": "ab"}
        for small, large in zip(ints, longs, strict=True)
    ]
    raw = tuple(field["name"] for field in FIELDS[:-1]) if is_raw else ()
    table = make_table(FIELDS[:-1], rows, rows[:1], indexing=IndexingSpec(no_dictionary=raw))
    several = coalesced_segments.BatchColumns(coalesced_segments._batch_of(table.segments), table.segments, schema)
    for columns in (*(SegmentColumns(segment, schema) for segment in table.segments), several):
        low, high = bounds_of(expr, columns)
        try:
            found = evaluate(expr, Chunk(columns, 0, columns.num_docs)).spread(columns.num_docs).data
        except QueryArithmeticError:
            continue
        assert low <= int(found.min()), sql
        assert int(found.max()) <= high, sql


def claim_bounds(table, names, low, high):
    """Have the files of all segments say that the values of columns are from `low` to `high`, under right checksums."""
    for number, segment in enumerate(table.segments):
        parts = taken_apart(segment.path.read_bytes())
        for name in names:
            parts.column(name).update(min=low, max=high)
        path = segment.path.with_name(f"lying_{number}.mseg")
        path.write_bytes(put_together(parts))
        table.segments[number] = ImmutableSegment.open(path)


LYING = [(5, 5), (6, 7), (2**40, 2**40 + 1), (-(2**63), -(2**63)), (0, 0)]


@OF_FILES
@pytest.mark.parametrize("claim", LYING)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT l, COUNT(*) FROM t GROUP BY l LIMIT 100",
        "SELECT DISTINCT l + i FROM t LIMIT 100",
        "SELECT DISTINCT l, i, l * 2 FROM t LIMIT 100",
        "SELECT l % 3, l, DISTINCTCOUNT(i) FROM t GROUP BY l % 3, l LIMIT 100",
        "SELECT CAST(i AS LONG), COUNT(*) FROM t GROUP BY CAST(i AS LONG) LIMIT 100",
        "SELECT b, SUM(l), AVG(l) FROM t GROUP BY b",
        "SELECT SUM(l), SUMLONG(i), MIN(l) FROM t",
    ],
)
def test_a_segment_whose_bounds_lie_is_an_error_or_right_all_the_same(make_table, layout, claim, sql):
    rows = [{"i": number % 90, "l": number * 2**33 + 1, "b": number % 2 == 0} for number in range(300)]
    names = ("i", "l", "b")
    fields = [field for field in FIELDS if field["name"] in names]
    table = make_table(fields, rows[:100], rows[100:], indexing=IndexingSpec(no_dictionary=names))
    truth = sorted(table.query(sql))
    with contextlib.suppress(CorruptionError):
        claim_bounds(table, names, *claim)
        assert sorted(table.query(sql)) == truth


@OF_FILES
@pytest.mark.parametrize("sql", ["SELECT DISTINCT l FROM t", "SELECT b, SUM(l) FROM t GROUP BY b"])
def test_bounds_that_lie_are_found_out_where_they_matter(make_table, layout, sql):
    names = ("l", "b")
    rows = [{"l": number * 2**33, "b": number % 2 == 0} for number in range(300)]
    fields = [field for field in FIELDS if field["name"] in names]
    table = make_table(fields, rows, indexing=IndexingSpec(no_dictionary=names))
    claim_bounds(table, ["l"], 5, 6)
    if layout == "joined":
        assert len(table.query(sql)) > 1  # joined columns have bounds of their own
    else:
        with pytest.raises(CorruptionError, match="out of its bounds"):
            table.query(sql)
