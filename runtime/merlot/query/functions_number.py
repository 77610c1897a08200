"""Arithmetic: LONG exactly, with an error on overflow; DOUBLE as IEEE says; BIG_DECIMAL exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import InvalidOperation, Overflow
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.arithmetic import add_checked, multiply_checked, subtract_checked
from merlot.query.context import QueryArithmeticError
from merlot.query.vector import INTEGERS, Vector
from merlot.spec.types import TypeName
from merlot.sql.decimals import exactly
from merlot.sql.types import SqlType

_CHECKED: dict[str, Callable[[Any, Any, Any], bool]] = {
    "plus": add_checked,
    "minus": subtract_checked,
    "times": multiply_checked,
}
_NUMPY: dict[str, Callable[..., Any]] = {"plus": np.add, "minus": np.subtract, "times": np.multiply, "mod": np.fmod}
_DECIMAL: dict[str, Callable[[Any, Any], Any]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
    "mod": operator.mod,
}


def _arithmetic(function: str) -> Callable[[SqlType, Sequence[Vector]], Any]:
    def apply(type_: SqlType, args: Sequence[Vector]) -> Any:
        left, right = args
        if type_.base is TypeName.BIG_DECIMAL:
            divisor = _not_zero(_decimal(right), either(left, right)) if function == "mod" else _decimal(right)
            return _decimals(function, _decimal(left), divisor)
        if type_.base in INTEGERS:
            return _integers(function, left, right)
        with np.errstate(all="ignore"):
            return _NUMPY[function](left.data, right.data, dtype=np.float64)

    return apply


def _decimals(function: str, left: Any, right: Any) -> Any:
    try:
        with exactly():
            return _DECIMAL[function](left, right)
    except (InvalidOperation, Overflow) as error:
        raise QueryArithmeticError(f"BIG_DECIMAL overflow function={function}") from error


def _integers(function: str, left: Vector, right: Vector) -> NDArray[np.int64]:
    if function == "mod":
        return _modulo(left.data, right.data, either(left, right))
    if left.data.dtype != np.int64 and right.data.dtype != np.int64:
        return np.asarray(_NUMPY[function](left.data, right.data, dtype=np.int64))
    shape = np.broadcast_shapes(left.data.shape, right.data.shape)
    wide = [np.ascontiguousarray(np.broadcast_to(side.data, shape), np.int64) for side in (left, right)]
    out = np.empty_like(wide[0])
    # ascontiguousarray makes a constant an array of one.
    if _CHECKED[function](wide[0], wide[1], out):
        raise QueryArithmeticError(f"LONG overflow function={function}")
    return out.reshape(shape)


def either(left: Vector, right: Vector) -> NDArray[np.bool_] | None:
    """Mask of rows where an operand is null: what lies under it must not raise."""
    masks = [side.nulls for side in (left, right) if side.nulls is not None]
    return None if not masks else np.logical_or.reduce(np.broadcast_arrays(*masks))


def _modulo(left: Any, right: Any, nulls: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    return np.asarray(np.fmod(np.asarray(left, np.int64), _not_zero(np.asarray(right, np.int64), nulls)))


def _not_zero(divisor: Any, nulls: NDArray[np.bool_] | None) -> Any:
    """Divisors with 1 for the zeros under a null; any other zero is an error."""
    is_zero = np.asarray(divisor == 0, np.bool_)
    if np.any(is_zero if nulls is None else is_zero & ~nulls):
        raise QueryArithmeticError("division by zero function=mod")
    return np.where(is_zero, 1, divisor) if np.any(is_zero) else divisor


def _divide(_type: SqlType, args: Sequence[Vector]) -> Any:
    left, right = (_double(arg) for arg in args)
    with np.errstate(all="ignore"):
        return np.divide(left, right)


def _negate(type_: SqlType, args: Sequence[Vector]) -> Any:
    value = args[0].data
    if type_.base in INTEGERS:
        return _without_lowest("negate", value, np.negative)
    with exactly():
        return -value if type_.base is TypeName.BIG_DECIMAL else np.negative(value, dtype=np.float64)


def _abs(type_: SqlType, args: Sequence[Vector]) -> Any:
    value = args[0].data
    if type_.base in INTEGERS:
        return _without_lowest("abs", value, np.abs)
    with exactly():
        return abs(value) if type_.base is TypeName.BIG_DECIMAL else np.abs(value).astype(np.float64)


def _without_lowest(function: str, value: Any, operation: Callable[[Any], Any]) -> NDArray[np.int64]:
    wide = np.asarray(value, np.int64)
    if np.any(wide == np.iinfo(np.int64).min):
        raise QueryArithmeticError(f"LONG overflow function={function}")
    return np.asarray(operation(wide))


def _double(vector: Vector) -> Any:
    return np.asarray(vector.data, np.float64)


def _decimal(vector: Vector) -> Any:
    from merlot.query.cast import cast
    from merlot.sql.types import BIG_DECIMAL

    return cast(BIG_DECIMAL, vector).data


FUNCTIONS: dict[str, Callable[[SqlType, Sequence[Vector]], Any]] = {
    **{function: _arithmetic(function) for function in ("plus", "minus", "times", "mod")},
    "divide": _divide,
    "negate": _negate,
    "abs": _abs,
}
