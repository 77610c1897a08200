"""Conversion of decimal texts to whole numbers of a common scale, and back.

Texts are data[offsets[k]:offsets[k + 1]], u8 and i32 or i64: an optional minus, digits, and optionally a point and
digits. A number is a value in units of 10**-scale, i64; 18 digits always fit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Longs = NDArray[np.int64]

MOST_DIGITS = 18

_MINUS, _POINT, _ZERO = np.uint8(45), np.uint8(46), np.uint8(48)
_TEN = np.uint64(10)


@kernel
def common_scale(offsets: Any, data: Any) -> int:
    """Return the most digits after the point in any text; -1 if a text is malformed, or may not fit at that scale."""
    most_whole = 0
    most_fraction = 0
    for row in range(offsets.shape[0] - 1):
        place, end = offsets[row], offsets[row + 1]
        if place < end and data[place] == _MINUS:
            place += 1
        whole = 0
        fraction = -1
        while place < end:
            byte = data[place]
            if byte == _POINT and fraction < 0 and whole > 0:
                fraction = 0
            elif byte < _ZERO or byte > _ZERO + np.uint8(9):
                return -1
            elif fraction < 0:
                whole += 1
            else:
                fraction += 1
            place += 1
        if whole == 0 or fraction == 0:
            return -1
        most_whole = max(most_whole, whole)
        most_fraction = max(most_fraction, fraction)
    return most_fraction if most_whole + most_fraction <= MOST_DIGITS else -1


@kernel
def parse(offsets: Any, data: Any, scale: int, numbers: Longs) -> None:
    """Write text k as numbers[k], in units of 10**-scale. scale is at least what `common_scale` returned, and all
    fit."""
    for row in range(numbers.shape[0]):
        place, end = offsets[row], offsets[row + 1]
        is_negative = data[place] == _MINUS
        if is_negative:
            place += 1
        number = np.int64(0)
        digits = -1
        while place < end:
            byte = data[place]
            if byte == _POINT:
                digits = 0
            else:
                number = number * np.int64(10) + np.int64(byte - _ZERO)
                if digits >= 0:
                    digits += 1
            place += 1
        for _ in range(max(digits, 0), scale):
            number *= np.int64(10)
        numbers[row] = -number if is_negative else number


@kernel
def text_offsets(numbers: Longs, scale: int, offsets: NDArray[np.int64]) -> None:
    """Write the offsets (N + 1,) of the texts that `write` writes: a fraction has no trailing zeros."""
    offsets[0] = 0
    for row in range(numbers.shape[0]):
        number = numbers[row]
        left = np.uint64(0) - np.uint64(number) if number < 0 else np.uint64(number)
        fraction = scale
        while fraction > 0 and left % _TEN == 0:
            left //= _TEN
            fraction -= 1
        digits = 0
        while left > 0:
            left //= _TEN
            digits += 1
        length = max(digits, fraction + 1) + (1 if fraction > 0 else 0) + (1 if number < 0 else 0)
        offsets[row + 1] = offsets[row] + length


@kernel
def write(numbers: Longs, scale: int, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
    """Write the texts of numbers in units of 10**-scale; offsets as `text_offsets` wrote them."""
    for row in range(numbers.shape[0]):
        number = numbers[row]
        left = np.uint64(0) - np.uint64(number) if number < 0 else np.uint64(number)
        fraction = scale
        while fraction > 0 and left % _TEN == 0:
            left //= _TEN
            fraction -= 1
        first, place = offsets[row], offsets[row + 1] - 1
        if number < 0:
            data[first] = _MINUS
            first += 1
        while place >= first:
            data[place] = _ZERO + np.uint8(left % _TEN)
            left //= _TEN
            place -= 1
            fraction -= 1
            if fraction == 0:
                data[place] = _POINT
                place -= 1
