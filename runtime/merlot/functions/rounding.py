"""Rounding: whole numbers stay whole, decimals exact; a DOUBLE is rounded as the decimal that it is written as, as in
Pinot.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.functions.arithmetic import exact_type
from merlot.functions.function import Binding, Bounds, Family, number, size
from merlot.functions.mathematics import doubles
from merlot.tree.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.types import LONG, SqlType
from merlot.values.types import TypeName
from merlot.vectors.decimals import exactly
from merlot.vectors.exact import at_scale
from merlot.vectors.scaled import Scaled
from merlot.vectors.vector import Attempt, Vector, failed

ROUNDING: Final = Family("Rounding")
MAX_SCALE: Final = 21
"""Largest scale for which the next power of ten, too, is exact as a DOUBLE."""
_DIGITS: Final = 1e14
_OVERFLOW: Final = "LONG overflow function=rounddecimal"


def _operand(call: Call) -> Expr | None:
    return call.args[0]


def _same(args: Sequence[Bounds]) -> Bounds:
    return args[0]


@ROUNDING.rewriting("round", parameters=(number("x"), number("bucket")), result=LONG, examples={"ROUND(17, 5)": 15})
def _round(_binding: Binding, args: tuple[Expr, ...]) -> Expr:
    """Return the multiple of the bucket towards zero: Pinot's time bucketing of whole numbers."""
    if not all(arg.type.is_integer or arg.type.base is TypeName.TIMESTAMP for arg in args):
        raise UnsupportedSqlError("ROUND of anything but whole numbers: write ROUNDDECIMAL")
    return Call("minus", (args[0], Call("mod", args, LONG)), LONG)


@ROUNDING.strict(
    "ceil",
    takes_scaled=True,
    aliases=("ceiling",),
    parameters=(number(),),
    result=exact_type,
    bounds=_same,
    rising=_operand,
    examples={"CEIL(1.2)": 2.0, "CEILING(-1.2)": -1.0, "CEIL(3)": 3},
)
def _ceil(type_: SqlType, args: Sequence[Vector]) -> Any:
    return _to_whole(type_, args[0], np.ceil, ROUND_CEILING)


@ROUNDING.strict(
    "floor",
    takes_scaled=True,
    parameters=(number(),),
    result=exact_type,
    bounds=_same,
    rising=_operand,
    examples={"FLOOR(1.7)": 1.0, "FLOOR(-1.2)": -2.0},
)
def _floor(type_: SqlType, args: Sequence[Vector]) -> Any:
    return _to_whole(type_, args[0], np.floor, ROUND_FLOOR)


def _to_whole(type_: SqlType, value: Vector, of_doubles: Any, of_decimals: str) -> Any:
    match type_.base:
        case TypeName.LONG:
            return np.asarray(value.data, np.int64)
        case TypeName.BIG_DECIMAL:
            return _decimals(value, 0, of_decimals)
    return of_doubles(doubles(value))


@ROUNDING.strict(
    "sign", takes_scaled=True, parameters=(number(),), result=exact_type, rising=_operand, examples={"SIGN(-1.5)": -1.0}
)
def _sign(type_: SqlType, args: Sequence[Vector]) -> Any:
    value = args[0].data
    if isinstance(value, Scaled):
        return Scaled(np.asarray(np.sign(value.values)), 0, -1, 1)
    if type_.base is TypeName.BIG_DECIMAL:
        signs = [Decimal((item > 0) - (item < 0)) for item in np.atleast_1d(_as_decimals(args[0]))]
        return _objects(signs).reshape(np.shape(value))
    return np.sign(value).astype(np.int64 if type_.base is TypeName.LONG else np.float64)


def _scaled(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    if len(args) > 1:
        assert isinstance(args[1], Literal)
        scale = args[1].value
        if not isinstance(scale, int) or abs(scale) > MAX_SCALE:
            raise SqlValidationError(f"scale out of range value={scale!r} limit={MAX_SCALE}")
    return args


@ROUNDING.strict(
    "rounddecimal",
    takes_scaled=True,
    parameters=(number(), size("scale", is_optional=True)),
    result=exact_type,
    complete=_scaled,
    rising=_operand,
    examples={
        "ROUNDDECIMAL(1.005, 2)": 1.01,
        "ROUND_DECIMAL(-2.5)": -2.0,
        "ROUNDDECIMAL(-2.5, 0)": -3.0,
        "ROUNDDECIMAL(1234, -2)": 1200,
    },
)
def _round_decimal(type_: SqlType, args: Sequence[Vector]) -> Any:
    """Round half away from zero at a number of digits, or to a whole number. A DOUBLE without a number of digits is
    rounded half upwards instead."""
    if len(args) == 1 and type_.base is TypeName.DOUBLE:
        values = doubles(args[0])
        floors = np.floor(values)
        with np.errstate(invalid="ignore"):
            return floors + (values - floors >= 0.5)
    return _at_scale(type_, args, ROUND_HALF_UP)


@ROUNDING.strict(
    "truncate",
    takes_scaled=True,
    parameters=(number(), size("scale", is_optional=True)),
    result=exact_type,
    complete=_scaled,
    rising=_operand,
    examples={"TRUNCATE(1.29, 1)": 1.2, "TRUNCATE(-1.9)": -1.0, "TRUNCATE(1299, -2)": 1200},
)
def _truncate(type_: SqlType, args: Sequence[Vector]) -> Any:
    """Cut off the digits after the scale."""
    return _at_scale(type_, args, ROUND_DOWN)


def _at_scale(type_: SqlType, args: Sequence[Vector], mode: str) -> Any:
    scale = int(args[1].data) if len(args) > 1 else 0
    match type_.base:
        case TypeName.LONG:
            return _wholes(np.asarray(args[0].data, np.int64), scale, mode)
        case TypeName.BIG_DECIMAL:
            return _decimals(args[0], scale, mode)
    return _doubles_at(doubles(args[0]), scale, mode)


def _wholes(values: NDArray[np.int64], scale: int, mode: str) -> Any:
    if scale >= 0:
        return values
    unit = 10**-scale
    if unit > 1 << 62:
        is_lost = (mode == ROUND_HALF_UP) & ((values >= unit // 2) | (values <= -unit // 2))
        return Attempt(np.zeros_like(values), failed(is_lost, _OVERFLOW))
    rest = np.fmod(values, unit)
    down = values - rest
    if mode == ROUND_DOWN:
        return down
    away = np.abs(rest) >= unit - np.abs(rest)
    with np.errstate(over="ignore"):
        rounded = down + np.where(away, np.sign(values) * unit, 0)
    return Attempt(rounded, failed(np.sign(rounded) * np.sign(values) < 0, _OVERFLOW))


def _doubles_at(values: NDArray[np.float64], scale: int, mode: str) -> NDArray[np.float64]:
    """Round numbers exactly as the decimals that they are written as, by numpy.

    A whole number divided or multiplied by a power of ten is the DOUBLE nearest to the decimal, and so is the number
    that is rounded: up to 15 digits they compare as their decimals do. Numbers of more digits are few, and are rounded
    as decimals."""
    power = 10.0 ** abs(scale)

    def unscaled(wholes: NDArray[np.float64], tens: float = 1.0) -> NDArray[np.float64]:
        return wholes / (power * tens) if scale >= 0 else wholes * (power / tens)

    with np.errstate(all="ignore"):
        magnitude = np.abs(values)
        scaled = magnitude * power if scale >= 0 else magnitude / power
        low = np.floor(scaled)
        low = low + (unscaled(low + 1) <= magnitude)
        low = low - (unscaled(low) > magnitude)
        if mode == ROUND_HALF_UP:
            low = low + (magnitude >= unscaled((2 * low + 1) * 5, 10.0))
        rounded = np.where(np.isfinite(values), np.copysign(unscaled(low), values) + 0.0, values)
        is_long = np.isfinite(values) & (scaled >= _DIGITS)
    if not np.any(is_long):
        return rounded
    flat, longs = np.atleast_1d(rounded), np.atleast_1d(is_long)
    distinct, places = np.unique(np.atleast_1d(values)[longs], return_inverse=True)
    exact = [float(_quantized(Decimal(repr(value)), scale, mode)) for value in distinct.tolist()]
    flat[longs] = np.array(exact, np.float64)[places]
    return flat.reshape(np.shape(values))


def _quantized(value: Decimal, scale: int, mode: str) -> Decimal:
    with exactly():
        return value.quantize(Decimal(1).scaleb(-scale), rounding=mode)


def _as_decimals(value: Vector) -> Any:
    if value.data.dtype == object:
        return value.data
    return _objects([Decimal(str(item)) for item in np.atleast_1d(value.data).tolist()]).reshape(value.data.shape)


def _decimals(value: Vector, scale: int, mode: str) -> Any:
    if isinstance(value.data, Scaled) and (values := at_scale(value.data, scale, mode)) is not None:
        return values
    exact = _as_decimals(value.with_objects())
    rounded = [_quantized(item, scale, mode) for item in np.atleast_1d(exact)]
    return _objects(rounded).reshape(np.shape(exact))


def _objects(values: list[Decimal]) -> NDArray[np.object_]:
    out = np.empty(len(values), object)
    out[:] = values
    return out
