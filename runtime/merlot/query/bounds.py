"""Bounds of whole-number expressions from the bounds of columns: which sums cannot overflow 64 bits."""

from __future__ import annotations

from merlot.query.read.columns import Columns
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.values.types import TypeName

Bounds = tuple[int, int]

_TYPE_BOUNDS: dict[TypeName, Bounds] = {
    TypeName.BOOLEAN: (0, 1),
    TypeName.INT: (-(1 << 31), (1 << 31) - 1),
    TypeName.LONG: (-(1 << 63), (1 << 63) - 1),
    TypeName.TIMESTAMP: (-(1 << 63), (1 << 63) - 1),
}


def bounds_of(expr: Expr, columns: Columns) -> Bounds:
    """Smallest and largest value that a whole-number expression may have in a segment, inclusive."""
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return int(expr.value), int(expr.value)
    if isinstance(expr, Column):
        return columns.bounds(expr.name) or _TYPE_BOUNDS[expr.type.base]
    if isinstance(expr, Call) and expr.function in ("plus", "minus", "times", "cast"):
        if not all(arg.type.base in _TYPE_BOUNDS for arg in expr.args):
            return _TYPE_BOUNDS[expr.type.base]
        if expr.type.base is TypeName.BOOLEAN:
            return _TYPE_BOUNDS[TypeName.BOOLEAN]  # whether a number is 0, not the number
        args = [bounds_of(arg, columns) for arg in expr.args]
        return args[0] if expr.function == "cast" else _combine(expr.function, *args)
    return _TYPE_BOUNDS[expr.type.base]


def _combine(function: str, left: Bounds, right: Bounds) -> Bounds:
    match function:
        case "plus":
            return left[0] + right[0], left[1] + right[1]
        case "minus":
            return left[0] - right[1], left[1] - right[0]
    products = [first * second for first in left for second in right]
    return min(products), max(products)
