"""Dict ids of texts, by order of arrival: an open-addressing table over entries that are only appended.

Texts are data[offsets[k]:offsets[k + 1]], u8 and i32 or i64, with a hash each, u64. Entries have the same layout in
entry_data and entry_offsets (i32), with their hashes beside them. Earlier entries may be read meanwhile: nothing below
the number of entries is written to.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import load_word
from merlot.kernels.jit import kernel

EMPTY = np.uint32(0xFFFFFFFF)
"""Mark of a free slot."""


@kernel
def assign_texts(
    offsets: Any,
    data: Any,
    hashes: NDArray[np.uint64],
    row: int,
    num_entries: NDArray[np.int64],
    slots: NDArray[np.uint32],
    entry_hashes: NDArray[np.uint64],
    entry_offsets: NDArray[np.int32],
    entry_data: NDArray[np.uint8],
    ids: NDArray[np.uint32],
) -> int:
    """Write ids[k], the entry of text k, from `row` on. New entries are appended and counted in num_entries (1,).

    Returns the row at which there is no room for another entry, or the number of rows. Slots (a power of two) are kept
    at least half free."""
    last_slot = np.uint64(slots.shape[0] - 1)
    count = num_entries[0]
    while row < hashes.shape[0]:
        hashed = hashes[row]
        start, length = offsets[row], offsets[row + 1] - offsets[row]
        slot = hashed & last_slot
        while True:
            entry = slots[slot]
            if entry == EMPTY:
                break
            if entry_hashes[entry] == hashed:
                at = entry_offsets[entry]
                if entry_offsets[entry + 1] - at == length:
                    place = 0
                    while place < length and entry_data[at + place] == data[start + place]:
                        place += 1
                    if place == length:
                        break
            slot = (slot + np.uint64(1)) & last_slot
        if entry == EMPTY:
            end = entry_offsets[count]
            is_full = count >= entry_hashes.shape[0] or count + 2 > entry_offsets.shape[0]
            if is_full or 2 * count >= slots.shape[0] or end + length > entry_data.shape[0]:
                break
            for place in range(length):
                entry_data[end + place] = data[start + place]
            entry_offsets[count + 1] = end + length
            entry_hashes[count] = hashed
            slots[slot] = np.uint32(count)
            entry = np.uint32(count)
            count += 1
        ids[row] = entry
        row += 1
    num_entries[0] = count
    return row


@kernel
def fill_text_slots(entry_hashes: NDArray[np.uint64], slots: NDArray[np.uint32]) -> None:
    """Enter entries, all different, into slots: all EMPTY, at least twice as many as the entries."""
    last_slot = np.uint64(slots.shape[0] - 1)
    for entry in range(entry_hashes.shape[0]):
        slot = entry_hashes[entry] & last_slot
        while slots[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & last_slot
        slots[slot] = np.uint32(entry)


@kernel
def _precedes(offsets: Any, data: Any, row: Any, other: Any) -> int:
    """Return 1, 0 or -1 if the text of `row` is less than, equal to or greater than the text of `other`, by bytes."""
    here, there = np.int64(offsets[row]), np.int64(offsets[other])
    length, other_length = np.int64(offsets[row + 1]) - here, np.int64(offsets[other + 1]) - there
    shorter = min(length, other_length)
    place = np.int64(0)
    while place + 8 <= shorter and load_word(data, here + place) == load_word(data, there + place):
        place += 8
    while place < shorter:
        byte, other_byte = data[here + place], data[there + place]
        if byte != other_byte:
            return 1 if byte < other_byte else -1
        place += 1
    return 1 if length < other_length else 0 if length == other_length else -1


@kernel
def best_texts(offsets: Any, data: Any, owners: Any, is_least: bool, rows: Any) -> None:
    """Write to rows[g], -1 at first, the first row of owner g with the least, or the greatest, text by bytes."""
    wanted = 1 if is_least else -1
    for row in range(owners.shape[0]):
        owner = owners[row]
        if rows[owner] < 0 or _precedes(offsets, data, row, rows[owner]) == wanted:
            rows[owner] = row
