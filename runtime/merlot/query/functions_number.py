"""Arithmetic: LONG exactly, with an error on overflow; DOUBLE as IEEE says; BIG_DECIMAL exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import InvalidOperation, Overflow
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.arithmetic import add_checked, multiply_checked, subtract_checked
from merlot.query.cast import cast
from merlot.tree.types import BIG_DECIMAL, SqlType
from merlot.values.types import TypeName
from merlot.vectors.decimals import exactly
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


def _arithmetic(function: str) -> Callable[[SqlType, Sequence[Vector]], Any]:
    def apply(type_: SqlType, args: Sequence[Vector]) -> Any:
        if type_.base is TypeName.BIG_DECIMAL:
            return _decimals(function, args)
        left, right = args
        if type_.base in INTEGERS:
            return _modulo(left.data, right.data) if function == "mod" else _integers(function, left, right)
        with np.errstate(all="ignore"):
            return _NUMPY[function](left.data, right.data, dtype=np.float64)

    return apply


def _integers(function: str, left: Vector, right: Vector) -> Any:
    if left.data.dtype != np.int64 and right.data.dtype != np.int64:
        return np.asarray(_NUMPY[function](left.data, right.data, dtype=np.int64))
    shape = np.broadcast_shapes(left.data.shape, right.data.shape)
    # ascontiguousarray makes a constant an array of one.
    wide = [np.ascontiguousarray(np.broadcast_to(side.data, shape), np.int64) for side in (left, right)]
    out = np.empty_like(wide[0])
    if not _CHECKED[function](wide[0], wide[1], out):
        return out.reshape(shape)
    rows = _overflows(function, wide[0], wide[1], out)
    return Attempt(out.reshape(shape), failed(rows.reshape(shape), f"LONG overflow function={function}"))


def _overflows(function: str, left: Longs, right: Longs, wrapped: Longs) -> Rows:
    """Rows whose exact result is not the wrapped one."""
    if function == "plus":
        return np.asarray(((left ^ wrapped) & (right ^ wrapped)) < 0)
    if function == "minus":
        return np.asarray(((left ^ right) & (left ^ wrapped)) < 0)
    divisor = np.where((left == 0) | (left == -1), 1, left)
    is_wrong = (left != 0) & (wrapped // divisor != right)
    return np.asarray(np.where(left == -1, right == _LOWEST, is_wrong))


def _modulo(left: Any, right: Any) -> Any:
    divisor = np.asarray(right, np.int64)
    is_zero = divisor == 0
    # A number's remainder by -1 is that by 1, and the lowest number cannot be divided by -1.
    rest = np.asarray(np.fmod(np.asarray(left, np.int64), np.where(is_zero | (divisor == -1), 1, divisor)))
    rows = np.broadcast_to(is_zero, rest.shape)
    return Attempt(rest, failed(rows, "division by zero function=mod"))


def _decimals(function: str, args: Sequence[Vector]) -> Attempt:
    exact = [cast(BIG_DECIMAL, arg) for arg in args]
    failure = None
    for one in exact:
        failure = either_failed(failure, one.failure)
    operands = [one.data for one in exact]
    try:
        with exactly():
            return Attempt(np.asarray(_DECIMAL[function](*operands), object), failure)
    except (InvalidOperation, Overflow):
        attempt = _decimal_by_decimal(function, np.broadcast_arrays(*operands))
        return Attempt(attempt.data, either_failed(failure, attempt.failure))


def _decimal_by_decimal(function: str, operands: Sequence[NDArray[Any]]) -> Attempt:
    """As above, where it is known to fail for some."""
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


def _divide(_type: SqlType, args: Sequence[Vector]) -> Any:
    left, right = (np.asarray(arg.data, np.float64) for arg in args)
    with np.errstate(all="ignore"):
        return np.divide(left, right)


def _alone(function: str, operation: Callable[[Any], Any]) -> Callable[[SqlType, Sequence[Vector]], Any]:
    """Negation, or the absolute value."""

    def apply(type_: SqlType, args: Sequence[Vector]) -> Any:
        if type_.base is TypeName.BIG_DECIMAL:
            return _decimals(function, args)
        if type_.base not in INTEGERS:
            return operation(np.asarray(args[0].data, np.float64))
        wide = np.asarray(args[0].data, np.int64)
        return Attempt(np.asarray(operation(wide)), failed(wide == _LOWEST, f"LONG overflow function={function}"))

    return apply


FUNCTIONS: dict[str, Callable[[SqlType, Sequence[Vector]], Any]] = {
    **{function: _arithmetic(function) for function in ("plus", "minus", "times", "mod")},
    "divide": _divide,
    "negate": _alone("negate", np.negative),
    "abs": _alone("abs", np.abs),
}
