"""What several aggregates read or compute, once for each chunk of rows."""

from __future__ import annotations

import pytest

from merlot.functions.evaluate import evaluate
from merlot.query.plan.expressions import shared_by
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import SegmentColumns
from merlot.tree.nodes import Call, Column, Literal
from merlot.tree.types import INT, LONG

A, B = Column("a", INT), Column("b", INT)
PRODUCT = Call("times", (A, B), LONG)
MORE = Call("plus", (PRODUCT, Literal(1, INT)), LONG)
ROWS = [{"a": row % 7, "b": row % 5} for row in range(4_000)]


@pytest.mark.parametrize(
    ("exprs", "shared"),
    [
        ([A, B], set()),
        ([A, PRODUCT], {A}),
        ([PRODUCT, PRODUCT], {PRODUCT}),
        ([PRODUCT, MORE], {PRODUCT}),
        ([PRODUCT, MORE, B], {PRODUCT, B}),
        ([Literal(1, INT), Literal(1, INT)], set()),
    ],
)
def test_what_occurs_again_is_shared_and_not_what_is_inside_of_it(exprs, shared):
    assert shared_by(exprs) == shared


@pytest.mark.parametrize("rows", [4_000, 1_500])
def test_a_chunk_computes_a_shared_expression_once(make_table, rows):
    table = make_table([{"name": "a", "type": "INT"}, {"name": "b", "type": "INT"}], ROWS)
    columns = SegmentColumns(table.segments[0], table.schema)
    chunk = Chunk(columns, 0, rows, shared=shared_by([PRODUCT, PRODUCT]))
    first = evaluate(PRODUCT, chunk)
    assert evaluate(PRODUCT, chunk) is first
    assert evaluate(A, chunk) is not evaluate(A, chunk)
    assert evaluate(PRODUCT, Chunk(columns, 0, rows)) is not first
    assert first.data.tolist() == [row["a"] * row["b"] for row in ROWS[:rows]]


def test_aggregates_that_share_an_expression_answer_as_if_alone(make_table):
    table = make_table([{"name": "a", "type": "INT"}, {"name": "b", "type": "INT"}], ROWS)
    together = table.query("SELECT SUM(a * b), MAX(a * b), AVG(a * b + 1), SUM(a) FILTER (WHERE a * b > 3) FROM t")
    products = [row["a"] * row["b"] for row in ROWS]
    kept = sum(row["a"] for row, product in zip(ROWS, products, strict=True) if product > 3)
    assert together == [[sum(products), max(products), sum(products) / len(ROWS) + 1, kept]]
