"""Arithmetic: LONG exactly, with an error on overflow; DOUBLE as IEEE says; BIG_DECIMAL exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import InvalidOperation, Overflow
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.functions.casts import cast
from merlot.functions.function import Bounds, Family, number
from merlot.kernels.arithmetic import add_checked, multiply_checked, subtract_checked
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.types import BIG_DECIMAL, DOUBLE, LONG, SqlType
from merlot.values.types import TypeName
from merlot.vectors.decimals import exactly
from merlot.vectors.exact import computed
from merlot.vectors.scaled import Scaled, aligned, bounded, doubles_of
from merlot.vectors.vector import INTEGERS, Attempt, Rows, Vector, either_failed, failed

Longs = NDArray[np.int64]

_LOWEST = np.iinfo(np.int64).min
_CHECKED: dict[str, Callable[[Any, Any, Any], bool]] = {
    "plus": add_checked,
    "minus": subtract_checked,
    "times": multiply_checked,
}
_NUMPY: dict[str, Callable[..., Any]] = {"plus": np.add, "minus": np.subtract, "times": np.multiply, "mod": np.fmod}
_DECIMAL: dict[str, Callable[..., Any]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
    "mod": operator.mod,
    "negate": operator.neg,
    "abs": abs,
}


ARITHMETIC: Final = Family("Arithmetic")


def exact_type(args: Sequence[Expr]) -> SqlType:
    """Return LONG for whole numbers, BIG_DECIMAL if any argument is one, else DOUBLE."""
    if any(arg.type == BIG_DECIMAL for arg in args):
        return BIG_DECIMAL
    is_whole = all(arg.type.is_integer or arg.type.base is TypeName.TIMESTAMP for arg in args)
    return LONG if is_whole else DOUBLE


def constant_number(expr: Expr) -> Any:
    """Return the number that a constant expression is; None for other constants and expressions."""
    value = expr.value if isinstance(expr, Literal) else None
    return None if isinstance(value, str | bytes | bool) else value


def _is_positive(expr: Expr) -> bool:
    value = constant_number(expr)
    return value is not None and value > 0


def _rising_sum(call: Call) -> Expr | None:
    left, right = call.args
    return left if constant_number(right) is not None else right if constant_number(left) is not None else None


def _rising_difference(call: Call) -> Expr | None:
    left, right = call.args
    return left if constant_number(right) is not None or _is_rest(left, right) else None


def _is_rest(whole: Expr, part: Expr) -> bool:
    """Return True if `whole - part` rounds `whole` towards zero to a multiple, which is how ROUND(value, bucket) is
    rewritten."""
    if not isinstance(part, Call) or part.function != "mod" or not part.type.is_integer:
        return False
    return part.args[0] == whole and _is_positive(part.args[1])


def _rising_product(call: Call) -> Expr | None:
    left, right = call.args
    return left if _is_positive(right) else right if _is_positive(left) else None


def _rising_quotient(call: Call) -> Expr | None:
    return call.args[0] if _is_positive(call.args[1]) else None


def _sum_bounds(args: Sequence[Bounds]) -> Bounds:
    (low, high), (least, most) = args
    return low + least, high + most


def _difference_bounds(args: Sequence[Bounds]) -> Bounds:
    (low, high), (least, most) = args
    return low - most, high - least


def _product_bounds(args: Sequence[Bounds]) -> Bounds:
    products = [left * right for left in args[0] for right in args[1]]
    return min(products), max(products)


_PAIR: Final = (number("a"), number("b"))


@ARITHMETIC.strict(
    "plus",
    takes_scaled=True,
    aliases=("add",),
    parameters=_PAIR,
    result=exact_type,
    bounds=_sum_bounds,
    rising=_rising_sum,
    examples={"1 + 2": 3, "PLUS(1, 0.5)": 1.5},
)
def _plus(type_: SqlType, args: Sequence[Vector]) -> Any:
    return _computed("plus", type_, args)


@ARITHMETIC.strict(
    "minus",
    takes_scaled=True,
    aliases=("sub",),
    parameters=_PAIR,
    result=exact_type,
    bounds=_difference_bounds,
    rising=_rising_difference,
    examples={"1 - 2": -1},
)
def _minus(type_: SqlType, args: Sequence[Vector]) -> Any:
    return _computed("minus", type_, args)


@ARITHMETIC.strict(
    "times",
    takes_scaled=True,
    aliases=("mult",),
    parameters=_PAIR,
    result=exact_type,
    bounds=_product_bounds,
    rising=_rising_product,
    examples={"3 * 4": 12},
)
def _times(type_: SqlType, args: Sequence[Vector]) -> Any:
    return _computed("times", type_, args)


@ARITHMETIC.strict(
    "mod", takes_scaled=True, parameters=_PAIR, result=exact_type, examples={"7 % 4": 3, "MOD(-7, 4)": -3}
)
def _mod(type_: SqlType, args: Sequence[Vector]) -> Any:
    return _computed("mod", type_, args)


@ARITHMETIC.strict(
    "divide",
    takes_scaled=True,
    aliases=("div",),
    parameters=_PAIR,
    result=DOUBLE,
    rising=_rising_quotient,
    examples={"7 / 2": 3.5},
)
def _divide(_type: SqlType, args: Sequence[Vector]) -> Any:
    left, right = (doubles_of(arg.data) for arg in args)
    with np.errstate(all="ignore"):
        return np.divide(left, right)


@ARITHMETIC.strict("negate", takes_scaled=True, parameters=(number(),), result=exact_type, examples={"-(1 + 2)": -3})
def _negate(type_: SqlType, args: Sequence[Vector]) -> Any:
    return _alone("negate", np.negative, type_, args)


@ARITHMETIC.strict("abs", takes_scaled=True, parameters=(number(),), result=exact_type, examples={"ABS(-1.5)": 1.5})
def _abs(type_: SqlType, args: Sequence[Vector]) -> Any:
    return _alone("abs", np.abs, type_, args)


def product(left: Vector, right: Vector) -> Any:
    """Multiply whole numbers; rows that overflow fail."""
    return _integers("times", left, right)


def _computed(function: str, type_: SqlType, args: Sequence[Vector]) -> Any:
    if type_.base is TypeName.BIG_DECIMAL:
        return _decimals(function, args)
    left, right = args
    if type_.base in INTEGERS:
        return modulo(left.data, right.data) if function == "mod" else _integers(function, left, right)
    with np.errstate(all="ignore"):
        return _NUMPY[function](left.data, right.data, dtype=np.float64)


def _alone(function: str, operation: Callable[[Any], Any], type_: SqlType, args: Sequence[Vector]) -> Any:
    """Return the negation or the absolute value."""
    if type_.base is TypeName.BIG_DECIMAL:
        return _decimals(function, args)
    if type_.base not in INTEGERS:
        return operation(np.asarray(args[0].data, np.float64))
    wide = np.asarray(args[0].data, np.int64)
    return Attempt(np.asarray(operation(wide)), failed(wide == _LOWEST, f"LONG overflow function={function}"))


def _integers(function: str, left: Vector, right: Vector) -> Any:
    if left.data.dtype != np.int64 and right.data.dtype != np.int64:
        return np.asarray(_NUMPY[function](left.data, right.data, dtype=np.int64))
    shape = np.broadcast_shapes(left.data.shape, right.data.shape)
    # ascontiguousarray makes an array of one number from a constant.
    wide = [np.ascontiguousarray(np.broadcast_to(side.data, shape), np.int64) for side in (left, right)]
    out = np.empty_like(wide[0])
    if not _CHECKED[function](wide[0], wide[1], out):
        return out.reshape(shape)
    rows = _overflows(function, wide[0], wide[1], out)
    return Attempt(out.reshape(shape), failed(rows.reshape(shape), f"LONG overflow function={function}"))


def _overflows(function: str, left: Longs, right: Longs, wrapped: Longs) -> Rows:
    """Return the rows whose exact result is not the wrapped one."""
    if function == "plus":
        return np.asarray(((left ^ wrapped) & (right ^ wrapped)) < 0)
    if function == "minus":
        return np.asarray(((left ^ right) & (left ^ wrapped)) < 0)
    divisor = np.where((left == 0) | (left == -1), 1, left)
    is_wrong = (left != 0) & (wrapped // divisor != right)
    return np.asarray(np.where(left == -1, right == _LOWEST, is_wrong))


def modulo(left: Any, right: Any) -> Attempt:
    """Return remainders of whole numbers, with the sign of the dividend. Division by zero fails."""
    divisor = np.asarray(right, np.int64)
    is_zero = divisor == 0
    # The remainder by -1 is the same as by 1. The lowest number cannot be divided by -1.
    rest = np.asarray(np.fmod(np.asarray(left, np.int64), np.where(is_zero | (divisor == -1), 1, divisor)))
    rows = np.broadcast_to(is_zero, rest.shape)
    return Attempt(rest, failed(rows, "division by zero function=mod"))


def _decimals(function: str, args: Sequence[Vector]) -> Attempt:
    exact = [cast(BIG_DECIMAL, arg) for arg in args]
    failure = None
    for operand in exact:
        failure = either_failed(failure, operand.failure)
    scaled = [operand.data for operand in exact if isinstance(operand.data, Scaled)]
    if len(scaled) == len(exact):
        results = _rests(*scaled) if function == "mod" else _results(function, scaled)
        if results is not None:
            return Attempt(results.data, either_failed(failure, results.failure))
    operands = [operand.with_objects().data for operand in exact]
    try:
        with exactly():
            return Attempt(np.asarray(_DECIMAL[function](*operands), object), failure)
    except (InvalidOperation, Overflow):
        attempt = _decimal_by_decimal(function, np.broadcast_arrays(*operands))
        return Attempt(attempt.data, either_failed(failure, attempt.failure))


def _results(function: str, operands: Sequence[Scaled]) -> Attempt | None:
    result = computed(function, operands)
    return None if result is None else Attempt(result, None)


def _rests(left: Scaled, right: Scaled) -> Attempt | None:
    pair = aligned((left, right))
    if pair is None:
        return None
    rests = modulo(pair[0].values, pair[1].values)
    return Attempt(bounded(rests.data, pair[0].scale), rests.failure)


def _decimal_by_decimal(function: str, operands: Sequence[NDArray[Any]]) -> Attempt:
    """Compute number by number, so that only the rows that overflow or divide by zero fail."""
    shape = operands[0].shape
    out = np.full(operands[0].size, operands[0].flat[0], object)
    rows = np.zeros(len(out), np.bool_)
    with exactly():
        for number, values in enumerate(zip(*(side.ravel() for side in operands), strict=True)):
            try:
                out[number] = _DECIMAL[function](*values)
            except (InvalidOperation, Overflow):
                rows[number] = True
    is_by_zero = function == "mod" and bool(np.all(operands[1].ravel()[rows] == 0))
    reason = "division by zero" if is_by_zero else "BIG_DECIMAL overflow"
    return Attempt(out.reshape(shape), failed(rows.reshape(shape), f"{reason} function={function}"))
