"""Exact 64-bit arithmetic that reports overflow.

Results are computed as unsigned numbers: LLVM assumes that signed numbers never overflow, and removes checks for it.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Longs = NDArray[np.int64]

_MIN = np.int64(-0x8000000000000000)


@kernel
def add_checked(left: Longs, right: Longs, out: Longs) -> bool:
    """Write left + right; returns True if any sum overflowed."""
    overflow = np.int64(0)
    for position in range(out.shape[0]):
        total = np.int64(np.uint64(left[position]) + np.uint64(right[position]))
        overflow |= (left[position] ^ total) & (right[position] ^ total)
        out[position] = total
    return bool(overflow < 0)


@kernel
def subtract_checked(left: Longs, right: Longs, out: Longs) -> bool:
    """Write left - right; returns True if any difference overflowed."""
    overflow = np.int64(0)
    for position in range(out.shape[0]):
        difference = np.int64(np.uint64(left[position]) - np.uint64(right[position]))
        overflow |= (left[position] ^ right[position]) & (left[position] ^ difference)
        out[position] = difference
    return bool(overflow < 0)


@kernel
def multiply_checked(left: Longs, right: Longs, out: Longs) -> bool:
    """Write left * right; returns True if any product overflowed."""
    overflow = False
    for position in range(out.shape[0]):
        first = left[position]
        second = right[position]
        product = np.int64(np.uint64(first) * np.uint64(second))
        # If both factors are in [-2**31, 2**31), the product cannot overflow, and the division is spared.
        if ((first + 0x80000000) | (second + 0x80000000)) >> 32:
            if first == -1:
                overflow |= second == _MIN
            elif first != 0 and product // first != second:
                overflow = True
        out[position] = product
    return overflow
