"""Relations that a condition reads, and what follows from them."""

import pytest

from merlot.query.stages.conjuncts import only_source
from merlot.query.stages.failures import is_join_of_keys
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.tree.types import BOOLEAN, INT

A, B, SLOT, NUMBER = Column("a.c0", INT), Column("b.c1", INT), Column("1", INT), Literal(1, INT)


def plus(*args: Expr) -> Call:
    return Call("plus", args, INT)


@pytest.mark.parametrize(
    ("expr", "source"),
    [(A, "a"), (plus(A, NUMBER), "a"), (plus(A, B), None), (NUMBER, None), (SLOT, None), (plus(SLOT, A), None)],
)
def test_the_only_relation_of_an_expression(expr: Expr, source: str | None) -> None:
    assert only_source(expr) == source


@pytest.mark.parametrize(
    ("left", "right", "is_join"), [(A, B, True), (A, A, False), (A, NUMBER, False), (A, SLOT, False)]
)
def test_a_join_of_keys_has_a_relation_on_each_side(left: Expr, right: Expr, *, is_join: bool) -> None:
    assert is_join_of_keys(Call("equals", (left, right), BOOLEAN)) is is_join
