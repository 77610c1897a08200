"""Rows of several segments brought together: numbers of many small parts, gathers of lists, hashes of rows.

The parts of many segments lie in one buffer. At least 16 more bytes follow them, so that pairs of words are loaded
without a branch. Part k starts at byte starts[k] and holds the rows [ends[k], ends[k + 1]) as numbers of widths[k]
bits, FORMAT.md §4.1: plain arrays are such numbers of 8 to 64 bits.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import load_word
from merlot.kernels.jit import kernel

Array = NDArray[Any]
Rows = NDArray[np.uint32]
Places = NDArray[np.int64]

_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _mask(width: int) -> np.uint64:
    """Return a mask of the `width` lowest bits."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width) if width else np.uint64(0)


@kernel
def _number(data: NDArray[np.uint8], start: int, bit: int, mask: np.uint64) -> np.uint64:
    """Return the number at bit `bit` of the part that starts at byte `start`. Branch-free, as `bits.unpack`."""
    place = start + ((bit >> 6) << 3)
    shift = np.uint64(bit & 63)
    low = np.uint64(load_word(data, place)) >> shift
    high = (np.uint64(load_word(data, place + 8)) << np.uint64(1)) << (np.uint64(63) - shift)
    return (low | high) & mask


@kernel
def unpack_parts(
    data: NDArray[np.uint8], starts: Places, widths: Places, bases: Places, ends: Places, out: Array
) -> None:
    """Write the numbers of all parts, bases[k] added to those of part k; widths 0..64; out (ends[-1],) integers."""
    for part in range(starts.shape[0]):
        start, width, first = starts[part], widths[part], ends[part]
        mask, base = _mask(width), np.uint64(bases[part])
        for position in range(ends[part + 1] - first):
            out[first + position] = _number(data, start, position * width, mask) + base


@kernel
def map_parts(
    data: NDArray[np.uint8],
    starts: Places,
    widths: Places,
    ends: Places,
    firsts: Places,
    table: Array,
    out: Array,
) -> bool:
    """Map each part's dict ids to those of a common dictionary: out[row] = table[firsts[k] + id], (ends[-1],), written.

    Part k has firsts[k + 1] - firsts[k] entries. A width below 0 means runs: the first row of each entry as u32, then
    the number of rows. Returns False if an id is out of range or runs do not cover all rows; then the contents of `out`
    mean nothing."""
    for part in range(starts.shape[0]):
        start, width, first, last = starts[part], widths[part], ends[part], ends[part + 1]
        entry, entries = firsts[part], firsts[part + 1] - firsts[part]
        if width < 0:
            if not _map_runs(data, start, table[entry : entry + entries], out[first:last]):
                return False
            continue
        mask, bound, largest = _mask(width), np.uint64(entries), np.uint64(0)
        for position in range(last - first):
            dict_id = _number(data, start, position * width, mask)
            largest = max(largest, dict_id)
            if dict_id < bound:
                out[first + position] = table[entry + np.int64(dict_id)]
        if largest >= bound:
            return False
    return True


@kernel
def _map_runs(data: NDArray[np.uint8], start: int, table: Array, out: Array) -> bool:
    """Map the dict ids of one part of runs, as `map_parts` does."""
    row, low_half = np.int64(0), np.uint64(0xFFFFFFFF)
    if np.uint64(load_word(data, start)) & low_half:
        return False
    for entry in range(table.shape[0]):
        stop = np.int64(np.uint64(load_word(data, start + 4 * (entry + 1))) & low_half)
        if stop < row or stop > out.shape[0]:
            return False
        for place in range(row, stop):
            out[place] = table[entry]
        row = stop
    covers: bool = row == out.shape[0]
    return covers


@kernel
def take_lists(values: Array, offsets: NDArray[np.int64], rows: Rows, ends: NDArray[np.int64], out: Array) -> None:
    """Write the values of the lists at `rows`, one list after another.

    offsets (N + 1,); ends (len(rows) + 1,) offsets of the result; out (ends[-1],), written"""
    for position in range(rows.shape[0]):
        source = offsets[rows[position]]
        for target in range(ends[position], ends[position + 1]):
            out[target] = values[source]
            source += 1


@kernel
def hash_numbers(values: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Hash each number with the finalizer of MurmurHash3."""
    for position in range(values.shape[0]):
        mixed = values[position]
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xC4CEB9FE1A85EC53)
        out[position] = mixed ^ (mixed >> np.uint64(33))


@kernel
def hash_bytes(offsets: NDArray[np.int64], data: NDArray[np.uint8], out: NDArray[np.uint64]) -> None:
    """Hash each string data[offsets[k] : offsets[k + 1]] with FNV-1a, mixed once more."""
    for position in range(out.shape[0]):
        mixed = np.uint64(0xCBF29CE484222325)
        for place in range(offsets[position], offsets[position + 1]):
            mixed = (mixed ^ np.uint64(data[place])) * np.uint64(0x100000001B3)
        mixed ^= mixed >> np.uint64(32)
        out[position] = mixed * _MIX


@kernel
def hash_lists(hashes: NDArray[np.uint64], offsets: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    """Hash each list from the hashes of its elements; their order matters."""
    for position in range(out.shape[0]):
        mixed = np.uint64(offsets[position + 1] - offsets[position])
        for place in range(offsets[position], offsets[position + 1]):
            mixed = (mixed ^ hashes[place]) * _MIX
            mixed ^= mixed >> np.uint64(32)
        out[position] = mixed


@kernel
def add_hashes(hashes: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Replace out[k] by a hash of it and hashes[k]."""
    for position in range(out.shape[0]):
        mixed = (out[position] ^ hashes[position]) * _MIX
        out[position] = mixed ^ (mixed >> np.uint64(32))
