"""Aggregates that are computed for parts of the rows, and then merged. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from merlot.query.stages.failures import magnitude
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, FLOAT, LONG, SqlType

EXTREMES: Final = frozenset({"min", "max", "booland", "boolor"})
"""Aggregates that merge their own results, and whose result does not depend on how often a value occurs."""
MAX_SUMMAND: Final = 1 << 32
"""Largest magnitude of whole numbers that leaves may add up for groups that joins may drop: with LONGs, a sum that the
statement does not ask for may be no LONG, and fail."""


def merged(aggregate: Aggregate, output: Callable[[Expr], Column]) -> Expr | None:
    """Return the expression that merges the results for parts of the rows; None if they cannot be merged. `output`
    returns the column of the parts that has an expression over their rows."""
    if BIG_DECIMAL in (aggregate.type, *(arg.type for arg in aggregate.args)):
        return None
    if aggregate.function == "count":
        return total(output(aggregate))
    if aggregate.function == "avg" and is_averaged(aggregate.args[0]):
        sums = output(replace(aggregate, function="sum", type=sum_type(aggregate.args[0])))
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


def is_small(expr: Expr) -> bool:
    """Return whether sums of whole numbers are LONGs, however many rows they have."""
    most = magnitude(expr)
    return most is not None and most <= MAX_SUMMAND


def is_averaged(value: Expr) -> bool:
    """Return whether averages can be computed from sums and counts. LONGs are averaged exactly, but their sum may be no
    LONG."""
    return is_small(value) or value.type in (FLOAT, DOUBLE)


def sum_type(value: Expr) -> SqlType:
    """Return the type of the sum that an average needs."""
    return DOUBLE if value.type in (FLOAT, DOUBLE) else LONG
