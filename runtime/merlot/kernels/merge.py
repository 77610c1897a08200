"""Rows of several segments brought together: gathers of lists, hashes of rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Array = NDArray[Any]
Rows = NDArray[np.uint32]

_MIX = np.uint64(0x9E3779B97F4A7C15)


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
def hash_numbers(values: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """A hash of each number; the finalizer of MurmurHash3."""
    for position in range(values.shape[0]):
        mixed = values[position]
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xC4CEB9FE1A85EC53)
        out[position] = mixed ^ (mixed >> np.uint64(33))


@kernel
def hash_bytes(offsets: NDArray[np.int64], data: NDArray[np.uint8], out: NDArray[np.uint64]) -> None:
    """A hash of each string data[offsets[k] : offsets[k + 1]]; FNV-1a, mixed once more."""
    for position in range(out.shape[0]):
        mixed = np.uint64(0xCBF29CE484222325)
        for place in range(offsets[position], offsets[position + 1]):
            mixed = (mixed ^ np.uint64(data[place])) * np.uint64(0x100000001B3)
        mixed ^= mixed >> np.uint64(32)
        out[position] = mixed * _MIX


@kernel
def hash_lists(hashes: NDArray[np.uint64], offsets: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    """A hash of each list from those of its elements; the order matters."""
    for position in range(out.shape[0]):
        mixed = np.uint64(offsets[position + 1] - offsets[position])
        for place in range(offsets[position], offsets[position + 1]):
            mixed = (mixed ^ hashes[place]) * _MIX
            mixed ^= mixed >> np.uint64(32)
        out[position] = mixed


@kernel
def add_hashes(hashes: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """out[k] becomes a hash of it and hashes[k]."""
    for position in range(out.shape[0]):
        mixed = (out[position] ^ hashes[position]) * _MIX
        out[position] = mixed ^ (mixed >> np.uint64(32))
