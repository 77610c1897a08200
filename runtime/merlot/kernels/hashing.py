"""XXH64 of fixed-width and variable-width values, the bits of hashes in a blocked filter, and keys of 128 bits.

With seed 0 it is the 64-bit hash of Parquet's Bloom filters. It is fast, well tried, and the same everywhere, which
matters because files store its results. `xxh64` is its plain Python twin, for single constants and for tests of the
kernels. A primary key that is hashed takes hashes of two seeds; no file stores those.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import load_word
from merlot.kernels.jit import kernel

_MASK: Final = (1 << 64) - 1
_PRIMES: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_P1, _P2, _P3, _P4, _P5 = (np.uint64(prime) for prime in _PRIMES)

WORDS_PER_BLOCK: Final = 8
SALTS: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint64
)
"""Parquet's salts: one bit in each of a block's eight words."""


def hash_fixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each value's eight bytes."""
    mixed = values * _P2
    mixed = _rotated(mixed, 31) * _P1
    mixed ^= np.uint64((_PRIMES[4] + 8) & _MASK)
    mixed = _rotated(mixed, 27) * _P1 + _P4
    mixed ^= mixed >> np.uint64(33)
    mixed *= _P2
    mixed ^= mixed >> np.uint64(29)
    mixed *= _P3
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _rotated(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    rotated: NDArray[np.uint64] = (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
    return rotated


@kernel
def _rotate(value: Any, bits: Any) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@kernel
def _round(state: Any, lane: Any) -> Any:
    return _rotate(state + lane * _P2, 31) * _P1


@kernel
def _lane(data: Any, place: Any, num_bytes: Any) -> Any:
    """Return `num_bytes` bytes from `place` on as one little-endian number."""
    lane = np.uint64(0)
    for offset in range(num_bytes):
        lane |= np.uint64(data[place + offset]) << np.uint64(8 * offset)
    return lane


@kernel
def _hash_span(data: Any, start: Any, stop: Any, seed: Any) -> Any:
    place = start
    mixed = seed + _P5
    if stop - start >= 32:
        first, second, third, fourth = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while place + 32 <= stop:
            first = _round(first, load_word(data, place))
            second = _round(second, load_word(data, place + 8))
            third = _round(third, load_word(data, place + 16))
            fourth = _round(fourth, load_word(data, place + 24))
            place += 32
        mixed = _rotate(first, 1) + _rotate(second, 7) + _rotate(third, 12) + _rotate(fourth, 18)
        for state in (first, second, third, fourth):
            mixed = (mixed ^ _round(np.uint64(0), state)) * _P1 + _P4
    mixed += np.uint64(stop - start)
    while place + 8 <= stop:
        mixed = _rotate(mixed ^ _round(np.uint64(0), load_word(data, place)), 27) * _P1 + _P4
        place += 8
    if place + 4 <= stop:
        mixed = _rotate(mixed ^ (_lane(data, place, 4) * _P1), 23) * _P2 + _P3
        place += 4
    while place < stop:
        mixed = _rotate(mixed ^ (np.uint64(data[place]) * _P5), 11) * _P1
        place += 1
    mixed = (mixed ^ (mixed >> np.uint64(33))) * _P2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _P3
    return mixed ^ (mixed >> np.uint64(32))


@kernel
def hash_spans(data: Any, offsets: Any, hashes: Any) -> None:
    """Hash each data[offsets[k]:offsets[k + 1]]: bytes u8, offsets i64, hashes u64."""
    for number in range(len(hashes)):
        hashes[number] = _hash_span(data, offsets[number], offsets[number + 1], np.uint64(0))


@kernel
def hash_spans_twice(data: Any, offsets: Any, seeds: Any, high: Any, low: Any) -> None:
    """Hash spans as `hash_spans` does, with two seeds, u64: 128 bits of each span, high and low u64."""
    for number in range(len(high)):
        high[number] = _hash_span(data, offsets[number], offsets[number + 1], seeds[0])
        low[number] = _hash_span(data, offsets[number], offsets[number + 1], seeds[1])


@kernel
def _avalanche(word: Any) -> Any:
    word = (word ^ (word >> np.uint64(33))) * _P2
    word = (word ^ (word >> np.uint64(29))) * _P3
    return word ^ (word >> np.uint64(32))


@kernel
def mix_pairs(high: Any, low: Any) -> None:
    """Spread the bits of each pair of words over both, in place: different pairs stay different (a Feistel network)."""
    for number in range(len(high)):
        left, right = high[number], low[number]
        for salt in (_P1, _P3, _P4, _P5):
            left, right = right, left ^ _avalanche(right + salt)
        high[number], low[number] = left, right


@kernel
def set_bits(hashes: Any, salts: Any, words: Any) -> None:
    """Set each hash's bit in every word of its block; `words` are u32, eight to a block."""
    num_blocks = np.uint64(len(words) // 8)
    for number in range(len(hashes)):
        block = ((hashes[number] >> np.uint64(32)) * num_blocks) >> np.uint64(32)
        low = hashes[number] & np.uint64(0xFFFFFFFF)
        for place in range(8):
            bit = ((low * salts[place]) & np.uint64(0xFFFFFFFF)) >> np.uint64(27)
            words[np.int64(block) * 8 + place] |= np.uint32(np.uint64(1) << bit)


@kernel
def find_holders(hash_: Any, masks: Any, words: Any, starts: Any, num_blocks: Any, matches: Any) -> None:
    """Set matches[k] to 1 if filter k has all bits of a hash: `masks` are its eight words, u32.

    words u32. starts and num_blocks u64, in blocks: where each filter lies in `words`."""
    high = hash_ >> np.uint64(32)
    for number in range(len(starts)):
        block = starts[number] + ((high * num_blocks[number]) >> np.uint64(32))
        first = np.int64(block) * 8
        place = 0
        while place < 8 and words[first + place] & masks[place]:
            place += 1
        if place == 8:
            matches[number] = 1


def masks_of(hash_: int) -> NDArray[np.uint32]:
    """Return the mask of a hash for each word of its block."""
    bits = [((hash_ & 0xFFFFFFFF) * int(salt) & 0xFFFFFFFF) >> 27 for salt in SALTS]
    return np.array([1 << bit for bit in bits], np.uint32)


def xxh64(data: bytes, seed: int = 0) -> int:
    """Hash one value."""
    p1, p2, p3, p4, p5 = _PRIMES
    place, mixed = 0, (seed + p5) & _MASK
    if len(data) >= 32:
        states = [(seed + p1 + p2) & _MASK, (seed + p2) & _MASK, seed, (seed - p1) & _MASK]
        while place + 32 <= len(data):
            for number in range(4):
                lane = int.from_bytes(data[place + 8 * number : place + 8 * number + 8], "little")
                states[number] = _plain_round(states[number], lane)
            place += 32
        mixed = sum(_plain_rotate(state, bits) for state, bits in zip(states, (1, 7, 12, 18), strict=True))
        for state in states:
            mixed = ((mixed ^ _plain_round(0, state)) * p1 + p4) & _MASK
    mixed = (mixed + len(data)) & _MASK
    while place + 8 <= len(data):
        lane = int.from_bytes(data[place : place + 8], "little")
        mixed = (_plain_rotate(mixed ^ _plain_round(0, lane), 27) * p1 + p4) & _MASK
        place += 8
    if place + 4 <= len(data):
        lane = int.from_bytes(data[place : place + 4], "little")
        mixed = (_plain_rotate(mixed ^ ((lane * p1) & _MASK), 23) * p2 + p3) & _MASK
        place += 4
    for byte in data[place:]:
        mixed = (_plain_rotate(mixed ^ ((byte * p5) & _MASK), 11) * p1) & _MASK
    mixed = ((mixed ^ (mixed >> 33)) * p2) & _MASK
    mixed = ((mixed ^ (mixed >> 29)) * p3) & _MASK
    return mixed ^ (mixed >> 32)


def _plain_rotate(value: int, bits: int) -> int:
    value &= _MASK
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _plain_round(state: int, lane: int) -> int:
    return (_plain_rotate(state + lane * _PRIMES[1], 31) * _PRIMES[0]) & _MASK
