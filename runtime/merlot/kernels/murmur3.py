"""MurmurHash3 of 128 bits with DataSketches' seed: the first word of each hash, halved, as theta sketches keep it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import load_bytes, load_word
from merlot.kernels.jit import kernel

SEED: Final = 9_001
SEED_HASH: Final = 0x93CC
"""Seed hash that sketches store: it identifies the seed that they were made with."""

Hashes = NDArray[np.uint64]

_C1: Final = np.uint64(0x87C37B91114253D5)
_C2: Final = np.uint64(0x4CF5AD432745937F)
_FIVE: Final = np.uint64(5)
_FIRST: Final = np.uint64(0x52DCE729)
_SECOND: Final = np.uint64(0x38495AB5)
_ONE: Final = np.uint64(1)


@kernel
def _rotated(word: Any, bits: Any) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@kernel
def _final(word: Any) -> Any:
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return word ^ (word >> np.uint64(33))


@kernel
def _finished(first: Any, second: Any, length: Any) -> Any:
    """Return half of the first word."""
    first ^= np.uint64(length)
    second ^= np.uint64(length)
    first += second
    second += first
    return (_final(first) + _final(second)) >> _ONE


@kernel
def hash_words(values: NDArray[np.uint64], out: Hashes) -> None:
    """Hash the eight bytes of each value."""
    for row in range(values.shape[0]):
        first = np.uint64(SEED) ^ (_rotated(values[row] * _C1, 31) * _C2)
        out[row] = _finished(first, np.uint64(SEED), 8)


@kernel
def hash_bytes(offsets: NDArray[np.int64], data: NDArray[np.uint8], out: Hashes) -> None:
    """Hash each data[offsets[k] : offsets[k + 1]]. Empty bytes give 0, which no sketch takes in."""
    for row in range(out.shape[0]):
        start = offsets[row]
        stop = offsets[row + 1]
        length = stop - start
        if length == 0:
            out[row] = np.uint64(0)
            continue
        first = np.uint64(SEED)
        second = np.uint64(SEED)
        while stop - start >= 16:
            first ^= _rotated(load_word(data, start) * _C1, 31) * _C2
            first = (_rotated(first, 27) + second) * _FIVE + _FIRST
            second ^= _rotated(load_word(data, start + 8) * _C2, 33) * _C1
            second = (_rotated(second, 31) + first) * _FIVE + _SECOND
            start += 16
        if stop - start > 8:
            second ^= _rotated(load_bytes(data, start + 8, stop) * _C2, 33) * _C1
        if stop > start:
            first ^= _rotated(load_bytes(data, start, min(stop, start + 8)) * _C1, 31) * _C2
        out[row] = _finished(first, second, length)
