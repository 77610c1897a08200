"""Bounds of whole-number expressions, from the bounds of columns. They show which sums cannot overflow 64 bits, and how
far apart group keys can be."""

from __future__ import annotations

from merlot.functions.registry import of
from merlot.query.read.columns import Columns
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.values.types import TypeName

Bounds = tuple[int, int]
"""Smallest and largest value, inclusive."""

_TYPE_BOUNDS: dict[TypeName, Bounds] = {
    TypeName.BOOLEAN: (0, 1),
    TypeName.INT: (-(1 << 31), (1 << 31) - 1),
    TypeName.LONG: (-(1 << 63), (1 << 63) - 1),
    TypeName.TIMESTAMP: (-(1 << 63), (1 << 63) - 1),
}


def bounds_of(expr: Expr, columns: Columns) -> Bounds:
    """Return the smallest and the largest value that a whole-number expression may have in a segment. If nothing
    narrower is known, these are the bounds of its type."""
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return int(expr.value), int(expr.value)
    if isinstance(expr, Column):
        return columns.bounds(expr.name) or _TYPE_BOUNDS[expr.type.base]
    if isinstance(expr, Call) and (bounds := of(expr).bounds) is not None:
        if not all(arg.type.base in _TYPE_BOUNDS for arg in expr.args):
            return _TYPE_BOUNDS[expr.type.base]
        if expr.type.base is TypeName.BOOLEAN:
            return _TYPE_BOUNDS[TypeName.BOOLEAN]  # whether a number is 0, not the number
        return bounds([bounds_of(arg, columns) for arg in expr.args])
    return _TYPE_BOUNDS[expr.type.base]
