"""Types that expressions share, and constants in place of NULL."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from merlot.tree import literals
from merlot.tree.nodes import Call, Expr, Literal, Value
from merlot.tree.types import BIG_DECIMAL, DOUBLE, LONG, STRING, SqlType
from merlot.values.types import TypeName

PLACEHOLDERS: Final[dict[TypeName, Value]] = {
    TypeName.INT: 0,
    TypeName.LONG: 0,
    TypeName.FLOAT: 0.0,
    TypeName.DOUBLE: 0.0,
    TypeName.BIG_DECIMAL: Decimal(0),
    TypeName.BOOLEAN: False,
    TypeName.TIMESTAMP: 0,
    TypeName.STRING: "",
    TypeName.JSON: "",
    TypeName.BYTES: b"",
}
"""Values in place of NULL in a CASE while null handling is off, and of what an empty list lacks (Pinot's
NullValuePlaceHolder)."""
_TEXT: Final = (TypeName.STRING, TypeName.JSON)
_FLOATS: Final = frozenset({TypeName.FLOAT, TypeName.DOUBLE})


def common_type(first: SqlType, second: SqlType) -> SqlType | None:
    """Return the type in which values of both are compared and joined; None if there is none. TIMESTAMP counts as LONG
    beside another type."""
    if first == second:
        return first
    if first.is_array or second.is_array:
        return None
    if first.base in _TEXT and second.base in _TEXT:
        return STRING
    bases = {LONG.base if type_.base is TypeName.TIMESTAMP else type_.base for type_ in (first, second)}
    if not all(SqlType(base).is_numeric for base in bases):
        return None
    if TypeName.BIG_DECIMAL in bases:
        return BIG_DECIMAL
    return DOUBLE if bases & _FLOATS else LONG


def cast_to(expr: Expr, target: SqlType) -> Expr:
    """Convert the expression to another type, by a `cast` call unless it is a constant. Raise SqlValidationError for a
    constant that has no value in the type."""
    if expr.type == target:
        return expr
    if isinstance(expr, Literal):
        return literals.convert(expr, target)
    return Call("cast", (expr,), target)
