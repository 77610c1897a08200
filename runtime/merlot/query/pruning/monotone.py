"""Functions of one column that never fall while the column rises: their bounds are those of the column, mapped.

`DATETRUNC('DAY', at) = …` prunes as `at` does. What a bound maps to is computed by the code that computes rows, so it
is rounded as rows are; a function that fails on a bound (an overflow) leaves its segments' bounds unknown.
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
    """Return the column that an expression is such a function of; None if it is not known to be one."""
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
    """Return such functions of a column that a filter compares with constants."""
    for node in () if where is None else walk(where):
        if isinstance(node, Call) and node.args and isinstance(node.args[0], Call) and column_of(node.args[0]):
            yield node.args[0]


def mapped(ranges: ColumnRanges, expr: Expr, column: Column) -> ColumnRanges | None:
    """Return the bounds of the expression, from those of its column; None if the function fails on one of them."""
    if not len(ranges.scale):
        return ranges
    try:
        values = np.array(ranges.scale, DTYPES[column.type.base])
        result = evaluate(expr, _Bounds(column, values)).spread(len(values)).data
    except (MerlotError, OverflowError, ValueError, TypeError):
        # TypeError and the like: the schema has changed since the query was planned.
        return None
    if result.dtype.kind == "f" and np.isnan(result).any():
        return None
    return ColumnRanges(result.tolist(), ranges.low, ranges.high)


class _Bounds:
    """Distinct bounds of a column, as rows."""

    def __init__(self, column: Column, values: Any) -> None:
        self.num_rows = len(values)
        self._vector = Vector(column.type, values)

    def column(self, name: str, type_: SqlType) -> Vector:
        return self._vector

    def nulls(self, name: str) -> None:
        return None
