"""Arithmetic of decimal constants, as SQL has it: `0.1 + 0.2` is 0.3, and no sum of two doubles.

A constant with a point is a decimal until it meets something that is none: a column, a function, or a number with an
exponent, which is approximate. The result is the DOUBLE next to the exact value. Pure and safe on any thread.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, localcontext
from typing import Any, Final

from sqlglot import exp

from merlot.tree import literals
from merlot.tree.nodes import Literal
from merlot.tree.types import BIG_DECIMAL, DOUBLE

_DIGITS: Final = Context(prec=1_000)
"""As many as a sum of the least and the greatest double has, and more."""
_OPERATIONS: Final[dict[type[exp.Expr], Callable[[Any, Any], Any]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
    exp.Mod: operator.mod,
}


def decimal_result(node: exp.Expr) -> Literal | None:
    """The value of an operator between constants, one of which has a point; None for any other operator."""
    if not _has_point(node):
        return None
    with localcontext(_DIGITS):
        try:
            exact = _exact(node)
        except DecimalException:  # division by zero, which the operator says in its own words
            return None
    return None if exact is None else Literal(float(exact), DOUBLE)


def _has_point(node: exp.Expr) -> bool:
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, exp.Literal):
            if not one.is_string and "." in one.this:
                return True
        elif type(one) in _OPERATIONS or isinstance(one, exp.Neg | exp.Paren):
            pending.extend(one.iter_expressions())
    return False


def _exact(node: exp.Expr) -> Decimal | None:
    if isinstance(node, exp.Paren):
        return _exact(node.this)
    if isinstance(node, exp.Neg):
        inner = _exact(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Literal):
        is_decimal = not node.is_string and "e" not in node.this.lower()
        return Decimal(node.this) if is_decimal and literals.number(node.this).type != BIG_DECIMAL else None
    operation = _OPERATIONS.get(type(node))
    if operation is None:
        return None
    left, right = _exact(node.this), _exact(node.args["expression"])
    if left is None or right is None:
        return None
    if not _has_point(node):  # whole numbers have rules of their own
        return None
    return Decimal(operation(left, right))
