"""Arithmetic and comparisons of BIG_DECIMAL as whole numbers of a scale, where bounds rule overflow out.

Bounds of operands are those of their columns, or where these do not do, those of the numbers at hand. None is said
where 64 bits may not hold a result: then it is for objects (`Scaled.objects`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any, Final

import numpy as np

from merlot.vectors.decimals import exactly
from merlot.vectors.scaled import Scaled, aligned, bounded

MOST_SCALE: Final = 18
_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1


def computed(function: str, operands: Sequence[Scaled]) -> Scaled | None:
    """plus, minus, times, negate or abs."""
    operation = _OPERATIONS.get(function)
    if operation is None:
        return None
    found = operation(*operands)
    return operation(*(bounded(one.values, one.scale) for one in operands)) if found is None else found


def _sum(left: Scaled, right: Scaled) -> Scaled | None:
    pair = aligned((left, right))
    return None if pair is None else _made(np.add, pair, pair[0].low + pair[1].low, pair[0].high + pair[1].high)


def _difference(left: Scaled, right: Scaled) -> Scaled | None:
    pair = aligned((left, right))
    return None if pair is None else _made(np.subtract, pair, pair[0].low - pair[1].high, pair[0].high - pair[1].low)


def _product(left: Scaled, right: Scaled) -> Scaled | None:
    corners = [one * other for one in (left.low, left.high) for other in (right.low, right.high)]
    return _made(np.multiply, (left, right), min(corners), max(corners), left.scale + right.scale)


def _negated(one: Scaled) -> Scaled | None:
    return _made(np.negative, (one,), -one.high, -one.low)


def _absolute(one: Scaled) -> Scaled | None:
    return _made(np.abs, (one,), max(0, one.low, -one.high), max(-one.low, one.high))


def _made(
    operation: Callable[..., Any], operands: Sequence[Scaled], low: int, high: int, scale: int | None = None
) -> Scaled | None:
    scale = operands[0].scale if scale is None else scale
    if scale > MOST_SCALE or low <= _LOWEST or high > _HIGHEST:
        return None
    return Scaled(np.asarray(operation(*(one.values for one in operands))), scale, low, high)


_OPERATIONS: Final[dict[str, Callable[..., Scaled | None]]] = {
    "plus": _sum,
    "minus": _difference,
    "times": _product,
    "negate": _negated,
    "abs": _absolute,
}


def at_scale(numbers: Scaled, scale: int, mode: str) -> Scaled | None:
    """Numbers of so many digits after the point, by one of `decimal`'s modes; below 0 as many before it are zeros."""
    if scale >= numbers.scale:
        return numbers
    if numbers.scale - scale > MOST_SCALE:
        return None
    factor = 10 ** (numbers.scale - scale)
    whole, rest = np.floor_divide(numbers.values, factor), np.mod(numbers.values, factor)
    is_negative = numbers.values < 0
    ups = {
        ROUND_FLOOR: np.zeros_like(is_negative),
        ROUND_CEILING: rest != 0,
        ROUND_DOWN: is_negative & (rest != 0),
        ROUND_HALF_UP: np.where(is_negative, rest > factor - rest, rest >= factor - rest),
    }
    found = bounded(np.asarray(whole + ups[mode]), max(0, scale))
    return found if scale >= 0 else _product(found, _constant(10**-scale))


def _constant(units: int) -> Scaled:
    return Scaled(np.array(units, np.int64), 0, units, units)


def units_of(number: Decimal, scale: int) -> int | None:
    """A number in units of 10**-scale; None if it is no whole number of them, or 64 bits do not hold it."""
    with exactly():
        units = number.scaleb(scale)
        if units != units.to_integral_value() or not _LOWEST <= units <= _HIGHEST:
            return None
        return int(units)
