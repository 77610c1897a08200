"""Scalar calls over constants, worked out at binding: arithmetic, casts and a few string functions.

Integers are exact; a result past LONG is an error, as it would be in the engine. Division by zero is infinite or NaN.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import DivisionByZero, InvalidOperation, Overflow

from merlot.spec.types import TypeName
from merlot.sql import literals
from merlot.sql.decimals import EXACT
from merlot.sql.errors import SqlValidationError
from merlot.sql.tree import Call, Expr, Literal, Value
from merlot.sql.types import BIG_DECIMAL, SqlType


def fold(call: Call) -> Expr:
    """The call's value where all its arguments are constants and it is cheap to know; the call itself otherwise."""
    arguments = [arg for arg in call.args if isinstance(arg, Literal)]
    if len(arguments) != len(call.args):
        return call
    if any(argument.value is None for argument in arguments):
        return Literal(None, call.type)
    if call.function in _BINARY:
        return _fold_arithmetic(call, arguments)
    text_function = _TEXT.get(call.function)
    if text_function is not None:
        return Literal(text_function(*(literals.to_text(argument) for argument in arguments)), call.type)
    return call


def _fold_arithmetic(call: Call, arguments: list[Literal]) -> Literal:
    """Work in the type of the result: float for FLOAT and DOUBLE, int for LONG, Decimal for BIGEXACT."""
    numbers = [literals.convert(argument, _working_type(argument, call.type)).value for argument in arguments]
    function = (_EXACT if call.type == BIG_DECIMAL else _BINARY)[call.function]
    try:
        value: Value = function(*numbers)
    except (InvalidOperation, DivisionByZero, Overflow, OverflowError, ZeroDivisionError) as error:
        raise SqlValidationError(f"{call.function} of these constants has no value type={call.type}") from error
    if isinstance(value, int) and not literals.LONG_MIN <= value <= literals.LONG_MAX:
        raise SqlValidationError(f"integer overflow in {call.function} of constants")
    return Literal(value, call.type)


def _working_type(argument: Literal, result: SqlType) -> SqlType:
    return argument.type if argument.type.base is TypeName.TIMESTAMP and result.is_integer else result


def _divide(first: float, second: float) -> float:
    if second == 0:
        return math.nan if first == 0 or math.isnan(first) else math.copysign(math.inf, first)
    return first / second


def _mod(first: int | float, second: int | float) -> int | float:
    """The remainder with the dividend's sign, as Java's; of an integer by zero it raises ZeroDivisionError."""
    if isinstance(first, float):
        return math.nan if second == 0 or math.isinf(first) else math.fmod(first, second)
    remainder = abs(first) % abs(second)
    return -remainder if first < 0 else remainder


_BINARY: dict[str, Callable[..., Value]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
    "divide": _divide,
    "mod": _mod,
    "negate": operator.neg,
    "abs": abs,
}
_EXACT: dict[str, Callable[..., Value]] = {
    "plus": EXACT.add,
    "minus": EXACT.subtract,
    "times": EXACT.multiply,
    "mod": EXACT.remainder,
    "negate": EXACT.minus,
    "abs": EXACT.abs,
}
_TEXT: dict[str, Callable[..., Value]] = {
    "upper": str.upper,
    "lower": str.lower,
    "length": len,
    "concat": lambda first, second, separator="": first + separator + second,
}
