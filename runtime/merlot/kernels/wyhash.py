"""wyhash, final version 4, as hash4j computes it with its default seed: 64-bit hashes of numbers and of texts.

A text is hashed as Java holds it: UTF-16, then the number of its code units in four bytes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import load_bytes, load_word
from merlot.kernels.jit import kernel

Hashes = NDArray[np.uint64]

_SECRET_0: Final = np.uint64(0xA0761D6478BD642F)
_SECRET_1: Final = np.uint64(0xE7037ED1A0B428DB)
_SECRET_2: Final = np.uint64(0x8EBC6AF09C88C6E3)
_SECRET_3: Final = np.uint64(0x589965CC75374CC3)
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_LONG: Final = 48
"""Bytes that a step takes while more bytes than that are left."""
_PAIR: Final = 16
_BYTES_OF_LENGTH: Final = 4
_MOST_PER_BYTE: Final = 2
"""Most bytes of UTF-16 for a byte of UTF-8."""


@kernel
def _high(left: Any, right: Any) -> Any:
    """Return the upper 64 bits of a product."""
    low, high = left & _LOW, left >> _HALF
    of_low, of_high = right & _LOW, right >> _HALF
    middle = high * of_low + ((low * of_low) >> _HALF)
    return high * of_high + (middle >> _HALF) + (((middle & _LOW) + low * of_high) >> _HALF)


@kernel
def _mixed(left: Any, right: Any) -> Any:
    return (left * right) ^ _high(left, right)


@kernel
def _finished(left: Any, right: Any, seed: Any, length: Any) -> Any:
    left ^= _SECRET_1
    right ^= seed
    return _mixed((left * right) ^ _SECRET_0 ^ np.uint64(length), _high(left, right) ^ _SECRET_1)


@kernel
def _seed() -> Any:
    return _mixed(_SECRET_0, _SECRET_1)


@kernel
def _few(data: NDArray[np.uint8], length: Any) -> Any:
    """Hash 4 to 16 bytes."""
    step = (length >> 3) << 2
    left = (load_bytes(data, 0, 4) << _HALF) | load_bytes(data, step, step + 4)
    right = (load_bytes(data, length - 4, length) << _HALF) | load_bytes(data, length - 4 - step, length - step)
    return _finished(left, right, _seed(), length)


@kernel
def _many(data: NDArray[np.uint8], length: Any) -> Any:
    """Hash more than 16 bytes."""
    first = second = third = _seed()
    start = 0
    while length - start > _LONG:
        first = _mixed(load_word(data, start) ^ _SECRET_1, load_word(data, start + 8) ^ first)
        second = _mixed(load_word(data, start + 16) ^ _SECRET_2, load_word(data, start + 24) ^ second)
        third = _mixed(load_word(data, start + 32) ^ _SECRET_3, load_word(data, start + 40) ^ third)
        start += _LONG
    first ^= second ^ third
    while length - start > _PAIR:
        first = _mixed(load_word(data, start) ^ _SECRET_1, load_word(data, start + 8) ^ first)
        start += _PAIR
    return _finished(load_word(data, length - 16), load_word(data, length - 8), first, length)


@kernel
def hash_words(words: NDArray[np.uint64], is_wide: Any, out: Hashes) -> None:
    """Hash numbers of 8 bytes, or the lower 4 bytes of each."""
    for row in range(words.shape[0]):
        low, high = words[row] & _LOW, words[row] >> _HALF
        if is_wide:
            out[row] = _finished((low << _HALF) | high, (high << _HALF) | low, _seed(), 8)
        else:
            out[row] = _finished((low << _HALF) | low, (low << _HALF) | low, _seed(), 4)


@kernel
def hash_texts(offsets: NDArray[np.int64], data: NDArray[np.uint8], out: Hashes) -> None:
    """Hash each text, UTF-8 data[offsets[k] : offsets[k + 1]]."""
    units = np.empty(0, np.uint8)
    for row in range(out.shape[0]):
        start, stop = offsets[row], offsets[row + 1]
        room = _MOST_PER_BYTE * (stop - start) + _BYTES_OF_LENGTH
        if room > len(units):
            units = np.empty(2 * room, np.uint8)
        size = _units_of(data, start, stop, units)
        _put(units, size, size >> 1, _BYTES_OF_LENGTH)
        size += _BYTES_OF_LENGTH
        out[row] = _few(units, size) if size <= _PAIR else _many(units, size)


@kernel
def _put(out: NDArray[np.uint8], place: Any, number: Any, size: Any) -> None:
    for offset in range(size):
        out[place + offset] = (number >> (8 * offset)) & 0xFF


@kernel
def _units_of(data: NDArray[np.uint8], start: Any, stop: Any, out: NDArray[np.uint8]) -> Any:
    """Write UTF-16, the lower byte first; returns the number of its bytes."""
    size = 0
    while start < stop:
        lead = np.int64(data[start])
        start += 1
        more = 0 if lead < 0x80 else 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        point = lead if more == 0 else lead & (0x3F >> more)
        for _ in range(more):
            point = (point << 6) | (np.int64(data[start]) & 0x3F)
            start += 1
        if point >= 0x10000:
            _put(out, size, 0xD800 + ((point - 0x10000) >> 10), 2)
            point = 0xDC00 + ((point - 0x10000) & 0x3FF)
            size += 2
        _put(out, size, point, 2)
        size += 2
    return size
