"""Arithmetic and comparisons of BIG_DECIMAL as whole numbers of a scale, where bounds rule overflow out.

Bounds of operands are those of their columns, or where these are too wide, those of the numbers at hand. Where 64 bits
may not hold a result, functions return None, and callers compute it with objects (`Scaled.objects`).
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
    """Compute plus, minus, times, negate or abs. Return None for another function, if the scale of the result is above
    MOST_SCALE, or if 64 bits may not hold a result."""
    operation = _OPERATIONS.get(function)
    if operation is None:
        return None
    result = operation(*operands)
    return operation(*(bounded(operand.values, operand.scale) for operand in operands)) if result is None else result


def _sum(left: Scaled, right: Scaled) -> Scaled | None:
    pair = aligned((left, right))
    return None if pair is None else _made(np.add, pair, pair[0].low + pair[1].low, pair[0].high + pair[1].high)


def _difference(left: Scaled, right: Scaled) -> Scaled | None:
    pair = aligned((left, right))
    return None if pair is None else _made(np.subtract, pair, pair[0].low - pair[1].high, pair[0].high - pair[1].low)


def _product(left: Scaled, right: Scaled) -> Scaled | None:
    corners = [bound * other for bound in (left.low, left.high) for other in (right.low, right.high)]
    return _made(np.multiply, (left, right), min(corners), max(corners), left.scale + right.scale)


def _negated(operand: Scaled) -> Scaled | None:
    return _made(np.negative, (operand,), -operand.high, -operand.low)


def _absolute(operand: Scaled) -> Scaled | None:
    return _made(np.abs, (operand,), max(0, operand.low, -operand.high), max(-operand.low, operand.high))


def _made(
    operation: Callable[..., Any], operands: Sequence[Scaled], low: int, high: int, scale: int | None = None
) -> Scaled | None:
    scale = operands[0].scale if scale is None else scale
    if scale > MOST_SCALE or low <= _LOWEST or high > _HIGHEST:
        return None
    return Scaled(np.asarray(operation(*(operand.values for operand in operands))), scale, low, high)


_OPERATIONS: Final[dict[str, Callable[..., Scaled | None]]] = {
    "plus": _sum,
    "minus": _difference,
    "times": _product,
    "negate": _negated,
    "abs": _absolute,
}


def at_scale(numbers: Scaled, scale: int, mode: str) -> Scaled | None:
    """Round numbers to `scale` digits after the point; with a scale below 0, as many digits before the point become
    zeros. `mode` is ROUND_FLOOR, ROUND_CEILING, ROUND_DOWN or ROUND_HALF_UP. Return None if 64 bits may not hold a
    result."""
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
    rounded = bounded(np.asarray(whole + ups[mode]), max(0, scale))
    return rounded if scale >= 0 else _product(rounded, _constant(10**-scale))


def _constant(units: int) -> Scaled:
    return Scaled(np.array(units, np.int64), 0, units, units)


def units_of(number: Decimal, scale: int) -> int | None:
    """Return a number in units of 10**-scale; None if it is no whole number of them, or 64 bits do not hold it."""
    with exactly():
        units = number.scaleb(scale)
        if units != units.to_integral_value() or not _LOWEST <= units <= _HIGHEST:
            return None
        return int(units)
