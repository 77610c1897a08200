"""Compute decimal constants as SQL does: `0.1 + 0.2` is 0.3, not the sum of two doubles.

A constant with a point is a decimal until it meets a column, a function, or a number with an exponent, which is
approximate. The result is the DOUBLE nearest to the exact value. Pure and safe on any thread.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, localcontext
from typing import Any, Final

from merlot.sql.syntax import Negative, Node, Number, Operation, Paren
from merlot.tree import literals
from merlot.tree.nodes import Literal
from merlot.tree.types import BIG_DECIMAL, DOUBLE

_DIGITS: Final = Context(prec=1_000)
"""Precision of the computation. The sum of the greatest double and 5e-324, without an exponent, has 633 digits."""
_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
    "divide": operator.truediv,
    "mod": operator.mod,
}


def decimal_result(node: Node) -> Literal | None:
    """Return the value of an operator between constants, at least one of them with a point; None for any other node."""
    if not _has_point(node):
        return None
    with localcontext(_DIGITS):
        try:
            exact = _exact(node)
        except DecimalException:  # division by zero: the outcome is the operator's
            return None
    return None if exact is None else Literal(float(exact), DOUBLE)


def _has_point(node: Node) -> bool:
    pending = [node]
    while pending:
        match pending.pop():
            case Number(text):
                if "." in text:
                    return True
            case Operation(function, left, right) if function in _OPERATIONS:
                pending += left, right
            case Negative(inner) | Paren(inner):
                pending.append(inner)
    return False


def _exact(node: Node) -> Decimal | None:
    match node:
        case Paren(inner):
            return _exact(inner)
        case Negative(inner):
            value = _exact(inner)
            return None if value is None else -value
        case Number(text):
            is_decimal = "e" not in text.lower() and literals.number(text).type != BIG_DECIMAL
            return Decimal(text) if is_decimal else None
        case Operation(function, left, right) if function in _OPERATIONS:
            return _result(node, _OPERATIONS[function], _exact(left), _exact(right))
    return None


def _result(
    node: Node, operation: Callable[[Any, Any], Any], left: Decimal | None, right: Decimal | None
) -> Decimal | None:
    """Return the exact result; None for whole numbers, which have rules of their own."""
    if left is None or right is None or not _has_point(node):
        return None
    return Decimal(operation(left, right))
