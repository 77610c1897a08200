"""Rows of several segments brought together: gathers of lists, order by radix, groups of rows by wide keys."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Array = NDArray[Any]
Rows = NDArray[np.uint32]

EMPTY = np.uint32(0xFFFFFFFF)
RADIX_BITS = 11
RADIX = 1 << RADIX_BITS

_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def take_rows(column: Array, rows: Rows, out: Array) -> None:
    """out[k] = column[rows[k]]."""
    for position in range(rows.shape[0]):
        out[position] = column[rows[position]]


@kernel
def take_lists(values: Array, offsets: NDArray[np.int64], rows: Rows, ends: NDArray[np.int64], out: Array) -> None:
    """Values of the lists at `rows`, one list after another.

    offsets (N + 1,); ends (len(rows) + 1,) offsets of the result; out (ends[-1],), written"""
    for position in range(rows.shape[0]):
        source = offsets[rows[position]]
        for target in range(ends[position], ends[position + 1]):
            out[target] = values[source]
            source += 1


@kernel
def count_digits(keys: NDArray[np.uint64], shift: int, counts: NDArray[np.int64]) -> None:
    """counts (RADIX,) zeroed: how often each digit occurs; turned into where its keys start."""
    mask = np.uint64(RADIX - 1)
    by = np.uint64(shift)
    for position in range(keys.shape[0]):
        counts[(keys[position] >> by) & mask] += 1
    total = 0
    for digit in range(RADIX):
        count = counts[digit]
        counts[digit] = total
        total += count


@kernel
def scatter_digits(
    keys: NDArray[np.uint64], rows: Rows, shift: int, starts: NDArray[np.int64], out_keys: Array, out_rows: Rows
) -> None:
    """One stable pass of a radix sort: keys with their rows, ordered by one digit. starts as `count_digits` left it."""
    mask = np.uint64(RADIX - 1)
    by = np.uint64(shift)
    for position in range(keys.shape[0]):
        key = keys[position]
        digit = (key >> by) & mask
        slot = starts[digit]
        starts[digit] = slot + 1
        out_keys[slot] = key
        out_rows[slot] = rows[position]
