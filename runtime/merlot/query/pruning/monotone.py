"""Monotonically non-decreasing functions of one column: their values at the column's bounds are their own bounds.

`DATETRUNC('DAY', at) = …` prunes as `at` does. The code that evaluates the function for rows also evaluates it for
bounds, so both are rounded alike. If the function fails on a bound (an overflow), its bounds are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from merlot.errors import MerlotError
from merlot.functions.evaluate import evaluate
from merlot.functions.registry import of
from merlot.query.plan.expressions import walk
from merlot.query.pruning.ranges import ColumnRanges
from merlot.tree.nodes import Call, Column, Expr
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import DTYPES, Vector

_TYPES: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP, TypeName.DOUBLE})


def column_of(expr: Expr) -> Column | None:
    """Return the column of which an expression is a monotone function; None if it is not known to be one."""
    if expr.type.is_array or expr.type.base not in _TYPES:
        return None
    if isinstance(expr, Column):
        return expr
    if not isinstance(expr, Call):
        return None
    rising = of(expr).rising
    operand = None if rising is None else rising(expr)
    return None if operand is None else column_of(operand)


def functions_of(where: Expr | None) -> Iterator[Expr]:
    """Yield the monotone functions of a column that are the first argument of a call in a filter."""
    for node in () if where is None else walk(where):
        if isinstance(node, Call) and node.args and isinstance(node.args[0], Call) and column_of(node.args[0]):
            yield node.args[0]


def bounds_of(ranges: ColumnRanges, expr: Expr, column: Column) -> ColumnRanges | None:
    """Return the bounds of the expression, computed from those of its column; None if that fails for one of them."""
    if not len(ranges.scale):
        return ranges
    try:
        values = np.array(ranges.scale, DTYPES[column.type.base])
        result = evaluate(expr, _Bounds(column, values)).spread(len(values)).data
    except (MerlotError, OverflowError, ValueError, TypeError):
        # A TypeError, for one, occurs if the schema has changed since the query was planned.
        return None
    if result.dtype.kind == "f" and np.isnan(result).any():
        return None
    scale, ranks = np.unique(result, return_inverse=True)
    new_ranks = np.append(ranks, [len(scale), -1]).astype(np.int32)  # the last two are of unknown bounds
    return ColumnRanges(scale.tolist(), new_ranks[ranges.low], new_ranks[ranges.high])


class _Bounds:
    """Source of rows whose values are the distinct bounds of a column."""

    def __init__(self, column: Column, values: Any) -> None:
        self.num_rows = len(values)
        self._vector = Vector(column.type, values)

    def column(self, name: str, type_: SqlType) -> Vector:
        return self._vector

    def nulls(self, name: str) -> None:
        return None
