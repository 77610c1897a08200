"""Rows of several segments brought together: gathers of lists, groups of rows by wide keys."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Array = NDArray[Any]
Rows = NDArray[np.uint32]

EMPTY = np.uint32(0xFFFFFFFF)

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
def group_dense(
    keys: NDArray[np.uint64], num_groups: int, slots: NDArray[np.uint32], first_rows: Rows, groups: NDArray[np.uint32]
) -> int:
    """Groups of rows by keys that are below len(slots): groups[k] is that of row k, by order of arrival.

    slots EMPTY at first; first_rows (as many as groups, at most len(slots)), written. Returns how many groups there
    are."""
    for row in range(keys.shape[0]):
        key = keys[row]
        group = slots[key]
        if group == EMPTY:
            group = np.uint32(num_groups)
            slots[key] = group
            first_rows[num_groups] = row
            num_groups += 1
        groups[row] = group
    return num_groups


@kernel
def group_wide(
    words: NDArray[np.uint64],
    start: int,
    stop: int,
    num_groups: int,
    slots: NDArray[np.uint32],
    group_keys: NDArray[np.uint64],
    first_rows: Rows,
    groups: NDArray[np.uint32],
) -> int:
    """As `group_dense`, of rows [start, stop), by keys of several words.

    words (W, N); slots (power of two,) groups or EMPTY, linear probing, at most half full with num_groups + stop -
    start; group_keys (that many, W), one row per group, so that a comparison reads one cache line."""
    width = words.shape[0]
    last_slot = np.uint64(slots.shape[0] - 1)
    for row in range(start, stop):
        mixed = np.uint64(0)
        for word in range(width):
            mixed = (mixed ^ words[word, row]) * _MIX
            mixed ^= mixed >> np.uint64(32)
        slot = mixed & last_slot
        while True:
            group = slots[slot]
            if group == EMPTY:
                group = np.uint32(num_groups)
                slots[slot] = group
                for word in range(width):
                    group_keys[num_groups, word] = words[word, row]
                first_rows[num_groups] = row
                num_groups += 1
                break
            is_equal = True
            for word in range(width):
                if group_keys[group, word] != words[word, row]:
                    is_equal = False
                    break
            if is_equal:
                break
            slot = (slot + np.uint64(1)) & last_slot
        groups[row] = group
    return num_groups


@kernel
def refill_wide(group_keys: NDArray[np.uint64], num_groups: int, slots: NDArray[np.uint32]) -> None:
    """Enter the first num_groups keys into slots, which are all EMPTY: a table that grew."""
    width = group_keys.shape[1]
    last_slot = np.uint64(slots.shape[0] - 1)
    for group in range(num_groups):
        mixed = np.uint64(0)
        for word in range(width):
            mixed = (mixed ^ group_keys[group, word]) * _MIX
            mixed ^= mixed >> np.uint64(32)
        slot = mixed & last_slot
        while slots[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & last_slot
        slots[slot] = np.uint32(group)


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
