"""MurmurHash2 of 64 bits with clearspring's seed, and the ranks that HyperLogLogPlus takes from such hashes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import load_bytes, load_word
from merlot.kernels.jit import kernel

Hashes = NDArray[np.uint64]

_SEED: Final = np.uint64(0xE17A1465)
_MULTIPLIER: Final = np.uint64(0xC6A4A7935BD1E995)
_SHIFT: Final = np.uint64(47)
MOST_RANK: Final = 31
"""Largest rank that a register of 5 bits holds."""


@kernel
def hash_bytes(offsets: NDArray[np.int64], data: NDArray[np.uint8], out: Hashes) -> None:
    """Hash each data[offsets[k] : offsets[k + 1]] as `MurmurHash.hash64` does."""
    for row in range(out.shape[0]):
        start = offsets[row]
        stop = offsets[row + 1]
        hashed = _SEED ^ (np.uint64(stop - start) * _MULTIPLIER)
        while stop - start >= 8:
            word = load_word(data, start) * _MULTIPLIER
            word = (word ^ (word >> _SHIFT)) * _MULTIPLIER
            hashed = (hashed ^ word) * _MULTIPLIER
            start += 8
        if stop > start:
            hashed = (hashed ^ load_bytes(data, start, stop)) * _MULTIPLIER
        hashed = (hashed ^ (hashed >> _SHIFT)) * _MULTIPLIER
        out[row] = hashed ^ (hashed >> _SHIFT)


@kernel
def ranks(hashes: Hashes, p: Any, out: NDArray[np.uint8]) -> None:
    """Write each hash's rank: the leading zeros after its first p bits, plus one, at most MOST_RANK."""
    for row in range(hashes.shape[0]):
        rest = hashes[row] << np.uint64(p)
        rank = 1
        while rank < MOST_RANK and rest >> np.uint64(63) == 0:
            rest <<= np.uint64(1)
            rank += 1
        out[row] = rank
