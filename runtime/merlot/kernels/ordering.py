"""Checks that values ascend. Strings lie in one buffer as in Arrow: string k is data[offsets[k] : offsets[k + 1]]."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

_MINUS = np.uint8(ord("-"))
_POINT = np.uint8(ord("."))


@kernel
def integers_ascend(values: NDArray[Any]) -> bool:
    """Return True if each value is less than the next."""
    falls = False
    for position in range(1, values.size):
        falls |= values[position - 1] >= values[position]
    return not falls


@kernel
def floats_ascend(values: NDArray[Any]) -> bool:
    """Return True if each value is less than the next: -0.0 is less than 0.0, and NaN without a sign is the largest."""
    for position in range(1, values.size):
        low, high = values[position - 1], values[position]
        if low < high:
            continue
        is_zeros = low == high and np.signbit(low) and not np.signbit(high)
        is_last_nan = low == low and high != high and not np.signbit(high)
        if not (is_zeros or is_last_nan):
            return False
    return True


@kernel
def _compare(data: NDArray[np.uint8], first: int, middle: int, last: int) -> int:
    """Return -1, 0 or 1 if the bytes [first, middle) are less than, equal to or greater than [middle, last)."""
    for place in range(min(middle - first, last - middle)):
        left, right = data[first + place], data[middle + place]
        if left != right:
            return -1 if left < right else 1
    difference = (middle - first) - (last - middle)
    return 0 if difference == 0 else -1 if difference < 0 else 1


@kernel
def _strings_ascend(offsets: NDArray[Any], data: NDArray[np.uint8], first: int, last: int) -> bool:
    """Return what `strings_ascend` does, for the strings [first, last)."""
    for position in range(first + 1, last):
        if _compare(data, offsets[position - 1], offsets[position], offsets[position + 1]) >= 0:
            return False
    return True


@kernel
def strings_ascend_in_parts(offsets: NDArray[Any], data: NDArray[np.uint8], firsts: NDArray[np.int64]) -> bool:
    """Return True if the strings of each part by itself, [firsts[k], firsts[k + 1]), ascend as in `strings_ascend`."""
    for part in range(firsts.size - 1):  # noqa: SIM110  numba compiles no generator
        if not _strings_ascend(offsets, data, firsts[part], firsts[part + 1]):
            return False
    return True


@kernel
def strings_ascend(offsets: NDArray[Any], data: NDArray[np.uint8]) -> bool:
    """Return True if each string's bytes are less than the next one's. Offsets (N + 1,) i32 or i64 split the data."""
    return _strings_ascend(offsets, data, 0, offsets.size - 1)


@kernel
def _whole_digits(data: NDArray[np.uint8], first: int, last: int) -> int:
    for place in range(first, last):
        if data[place] == _POINT:
            return place - first
    return last - first


@kernel
def _compare_magnitudes(data: NDArray[np.uint8], first: int, middle: int, last: int, skip: int) -> int:
    """Compare unsigned numbers as `_compare` does: a number with more digits before its point is greater. The first
    `skip` bytes of each are signs."""
    left = _whole_digits(data, first + skip, middle)
    right = _whole_digits(data, middle + skip, last)
    if left != right:
        return -1 if left < right else 1
    return _compare(data, first, middle, last)


@kernel
def decimals_ascend(offsets: NDArray[Any], data: NDArray[np.uint8]) -> bool:
    """Return True if the plain texts of numbers ascend by value. FORMAT.md §5.1."""
    for position in range(1, offsets.size - 1):
        first, middle, last = offsets[position - 1], offsets[position], offsets[position + 1]
        is_negative, follows_negative = data[middle] == _MINUS, data[first] == _MINUS
        if is_negative != follows_negative:
            if is_negative:
                return False
        else:
            order = _compare_magnitudes(data, first, middle, last, 1 if is_negative else 0)
            if (order <= 0) if is_negative else (order >= 0):
                return False
    return True
