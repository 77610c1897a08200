"""Aggregates that are computed for parts of the rows, and then merged. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, FLOAT, INT, LONG, SqlType

EXTREMES: Final = frozenset({"min", "max", "booland", "boolor"})
"""Aggregates that merge their own results, and whose result does not depend on how often a value occurs."""
AVERAGED: Final = frozenset({INT, LONG, FLOAT, DOUBLE})


def merged(aggregate: Aggregate, output: Callable[[Expr], Column]) -> Expr | None:
    """Return the expression that merges the results for parts of the rows; None if they cannot be merged. `output`
    returns the column of the parts that has an expression over their rows."""
    if BIG_DECIMAL in (aggregate.type, *(arg.type for arg in aggregate.args)):
        return None
    if aggregate.function == "count":
        return total(output(aggregate))
    if aggregate.function == "avg" and aggregate.args[0].type in AVERAGED:
        value = aggregate.args[0]
        sums = output(replace(aggregate, function="sum", args=(summed(value),), type=sum_type(value)))
        return mean(
            Aggregate("sum", (sums,), sums.type), total(output(replace(aggregate, function="count", type=LONG)))
        )
    if aggregate.function not in EXTREMES and aggregate.function != "sum":
        return None
    return Aggregate(aggregate.function, (output(aggregate),), aggregate.type)


def total(counts: Expr, condition: Expr | None = None) -> Expr:
    """Return the sum of counts: zero for none."""
    return Call("coalesce", (Aggregate("sum", (counts,), LONG, condition), Literal(0, LONG)), LONG)


def mean(sums: Expr, count: Expr) -> Expr:
    """Return a sum divided by a count; NULL for no values."""
    some = Call("greater_than", (count, Literal(0, LONG)), BOOLEAN)
    return Call("case", (some, Call("divide", (sums, count), DOUBLE), Literal(None, DOUBLE)), DOUBLE)


def summed(value: Expr) -> Expr:
    """Return the value whose sum an average needs: a sum of INTs is exact, one of LONGs may be no LONG."""
    return Call("cast", (value,), DOUBLE) if value.type == LONG else value


def sum_type(value: Expr) -> SqlType:
    """Return the type of the sum that an average needs."""
    return LONG if value.type == INT else DOUBLE
