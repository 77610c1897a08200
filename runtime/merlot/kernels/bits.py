"""Bit-packed integers and bit sets.

Packed values are little-endian u64 words, lowest bits first; value k of width w occupies bits [k*w, (k+1)*w) of the
stream, so it may straddle two words. `packed_words` leaves one spare word at the end: every reader may load a pair of
words without a branch.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

MAX_WIDTH = 64


def packed_words(count: int, width: int) -> int:
    """Return the number of words that `count` values of `width` bits need, including the spare word."""
    return (count * width + 63) // 64 + 1


@kernel
def pack(values: NDArray[Any], base: int, width: int, words: NDArray[np.uint64]) -> None:
    """Write `values - base` with `width` bits each. FORMAT.md §4.1.

    values (N,) integers with 0 <= value - base < 2**width; words (packed_words(N, width),) u64, zeroed, written"""
    offset = np.uint64(base)
    for position in range(values.size):
        value = np.uint64(values[position]) - offset
        bit = position * width
        word = bit >> 6
        shift = np.uint64(bit & 63)
        words[word] |= value << shift
        if (bit & 63) + width > 64:
            words[word + 1] |= value >> (np.uint64(64) - shift)


@kernel
def unpack(words: NDArray[np.uint64], width: int, start: int, base: int, out: NDArray[Any]) -> None:
    """Expand values [start, start + len(out)), `base` added to each. FORMAT.md §4.1.

    words as `pack` wrote them; width 1..63; out (M,) integers, written. Branch-free: the high part is shifted in two
    steps, because a shift by 64 is undefined."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    offset = np.uint64(base)
    unit = np.uint64(1)
    for position in range(out.size):
        bit = np.uint64((start + position) * width)
        word = bit >> np.uint64(6)
        shift = bit & np.uint64(63)
        low = words[word] >> shift
        high = (words[word + unit] << unit) << (np.uint64(63) - shift)
        out[position] = ((low | high) & mask) + offset


@kernel
def unpack_at(words: NDArray[np.uint64], width: int, docs: NDArray[np.uint32], base: int, out: NDArray[Any]) -> None:
    """Expand the values at the positions in `docs`, otherwise as `unpack`; out (len(docs),) integers, written."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    offset = np.uint64(base)
    unit = np.uint64(1)
    for position in range(docs.size):
        bit = np.uint64(docs[position]) * np.uint64(width)
        word = bit >> np.uint64(6)
        shift = bit & np.uint64(63)
        low = words[word] >> shift
        high = (words[word + unit] << unit) << (np.uint64(63) - shift)
        out[position] = ((low | high) & mask) + offset


@kernel
def expand_runs(run_starts: NDArray[np.uint32], out: NDArray[Any]) -> None:
    """Write the dict ids of a sorted column: out[doc] = k for run_starts[k] <= doc < run_starts[k + 1]."""
    for dict_id in range(run_starts.size - 1):
        for doc in range(run_starts[dict_id], run_starts[dict_id + 1]):
            out[doc] = dict_id


@kernel
def is_sorted(values: NDArray[Any]) -> bool:
    """Return True if `values` never decrease."""
    for position in range(1, values.size):  # noqa: SIM110  numba compiles no generator
        if values[position] < values[position - 1]:
            return False
    return True


@kernel
def min_max(values: NDArray[Any], out: NDArray[Any]) -> None:
    """Write minimum and maximum of `values`, which are integers and not empty; out (2,) of their dtype."""
    low = values[0]
    high = values[0]
    for position in range(1, values.size):
        value = values[position]
        low = min(low, value)
        high = max(high, value)
    out[0] = low
    out[1] = high


@kernel
def mark_present(values: NDArray[Any], low: int, present: NDArray[np.uint32]) -> None:
    """Write 1 at each `value - low` that occurs; present (R,), zeroed."""
    for position in range(values.size):
        present[values[position] - low] = 1


@kernel
def rank_present(present: NDArray[np.uint32]) -> int:
    """Turn marks into ranks in place: a present slot gets its rank + 1. Returns the number of present slots."""
    rank = 0
    for slot in range(present.size):
        if present[slot]:
            rank += 1
            present[slot] = rank
    return rank


@kernel
def lookup_ranks(values: NDArray[Any], low: int, ranks: NDArray[np.uint32], out: NDArray[Any]) -> None:
    """Write out[k] = rank of values[k], from the slots that `rank_present` wrote."""
    for position in range(values.size):
        out[position] = ranks[values[position] - low] - np.uint32(1)


@kernel
def gather(table: NDArray[Any], ids: NDArray[Any], out: NDArray[Any]) -> None:
    """Write out[k] = table[ids[k]]; the dtype of `out` is wide enough."""
    for position in range(ids.size):
        out[position] = table[ids[position]]


@kernel
def run_starts_of(ids: NDArray[Any], out: NDArray[np.uint32]) -> None:
    """Write the first doc of each dict id of a sorted column; out (cardinality + 1,); every id occurs."""
    dict_id = 0
    out[0] = 0
    for doc in range(1, ids.size):
        if ids[doc] != ids[doc - 1]:
            dict_id += 1
            out[dict_id] = doc
    out[out.size - 1] = ids.size


@kernel
def group_docs(ids: NDArray[Any], counts: NDArray[np.uint32], out: NDArray[np.uint32]) -> None:
    """Write the docs ordered by dict id, ascending within an id: a stable counting sort.

    counts (cardinality + 1,), zeroed: afterwards counts[k] is where the docs of id k start. out (len(ids),),
    written."""
    for doc in range(ids.size):
        counts[ids[doc] + 1] += np.uint32(1)
    for dict_id in range(1, counts.size):
        counts[dict_id] += counts[dict_id - 1]
    for doc in range(ids.size):
        slot = counts[ids[doc]]
        out[slot] = doc
        counts[ids[doc]] = slot + np.uint32(1)
    for dict_id in range(counts.size - 1, 0, -1):
        counts[dict_id] = counts[dict_id - 1]
    counts[0] = 0


@kernel
def block_min_max(values: NDArray[Any], starts: NDArray[np.int64], lows: NDArray[Any], highs: NDArray[Any]) -> None:
    """Write zone maps: minimum and maximum of values[starts[b] : starts[b + 1]]. Blocks are not empty and hold no NaN.

    lows, highs (B,) of the dtype of `values`, written"""
    for block in range(starts.size - 1):
        low = values[starts[block]]
        high = low
        for position in range(starts[block] + 1, starts[block + 1]):
            value = values[position]
            low = min(low, value)
            high = max(high, value)
        lows[block] = low
        highs[block] = high


@kernel
def count_bits(words: NDArray[np.uint64], words_per_block: int, out: NDArray[np.uint32]) -> None:
    """Count the set bits of each block of `words_per_block` words; out (blocks,), written."""
    for block in range(out.size):
        total = np.uint64(0)
        stop = min(words.size, (block + 1) * words_per_block)
        for position in range(block * words_per_block, stop):
            word = words[position]
            word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
            word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
            word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
            total += (word * np.uint64(0x0101010101010101)) >> np.uint64(56)
        out[block] = total
