"""Index of primary keys to their newest rows: open addressing in the order of the hashes.

A shard is an array of rows of i64, (slots, 3 + C): two words of the key, a place, C comparison values. An entry lies at
its home, which grows with the key's first word, or behind it with no free slot between. Entries ascend by key. So a
table may be fuller than others (nine tenths), growing and pruning are one pass each, and a shard's layout depends on
its entries alone, never on the order of their arrival. The last slot is always free.

A place is PRESENT | DELETED? | segment << 32 | doc; 0: a free slot. If there are several comparison values, NULL stands
for none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Longs = NDArray[np.int64]

HIGH, LOW, PLACE, FIRST_VALUE = 0, 1, 2, 3
PRESENT = 1 << 62
DELETED = 1 << 61
REMOVED = 1 << 60
"""Mark of entries that the next `rebuild` leaves out."""
SEGMENT_BITS = 28
MAX_SEGMENT = (1 << SEGMENT_BITS) - 1
NULL = -(1 << 63)

NEW, REPLACES, OLDER, LATE = 0, 1, 2, 3
"""Verdict on a row. NEW: no row of its key was alive. REPLACES: it replaces the row of its key. OLDER: it is older than
that row. LATE: its key would have expired already, so it neither replaces a row nor is replaced."""


@kernel
def _home(high: Any, capacity: Any) -> Any:
    return ((high >> 32) + 0x80000000) * capacity >> 32


@kernel
def _seek(table: Any, capacity: Any, high: Any, low: Any) -> Any:
    """Return the slot of a key, or else the slot before which it belongs."""
    slot = _home(high, capacity)
    while table[slot, PLACE] != 0 and (
        table[slot, HIGH] < high or (table[slot, HIGH] == high and table[slot, LOW] < low)
    ):
        slot += 1
    return slot


@kernel
def _holds(table: Any, slot: Any, high: Any, low: Any) -> Any:
    return table[slot, PLACE] != 0 and table[slot, HIGH] == high and table[slot, LOW] == low


@kernel
def _make_gap(table: Any, slot: Any) -> Any:
    """Move the entries from `slot` on by one; returns False if there is no room."""
    end = slot
    while table[end, PLACE] != 0:
        end += 1
    if end == table.shape[0] - 1:
        return False
    for at in range(end, slot, -1):
        for column in range(table.shape[1]):
            table[at, column] = table[at - 1, column]
    return True


@kernel
def _close_gap(table: Any, slot: Any, capacity: Any) -> Any:
    """Remove the entry of `slot`."""
    while table[slot + 1, PLACE] != 0 and _home(table[slot + 1, HIGH], capacity) <= slot:
        for column in range(table.shape[1]):
            table[slot, column] = table[slot + 1, column]
        slot += 1
    table[slot, PLACE] = 0


@kernel
def _is_alive(table: Any, slot: Any, alive_from: Any, deleted_from: Any) -> Any:
    value = table[slot, FIRST_VALUE]
    return value >= alive_from and (value >= deleted_from or table[slot, PLACE] & DELETED == 0)


@kernel
def _is_older(values: Any, row: Any, table: Any, slot: Any) -> Any:
    """Return True if a row loses: the first of its values, other than NULL, that differs from the entry's is
    smaller."""
    for column in range(values.shape[1]):
        value, current = values[row, column], table[slot, FIRST_VALUE + column]
        if value != NULL and value != current:
            return value < current
    return False


@kernel
def upsert(
    rows: Longs,
    first: int,
    high: Longs,
    low: Longs,
    values: Longs,
    places: Longs,
    alive_from: Longs,
    deleted_from: Longs,
    table: Longs,
    capacity: int,
    used: Longs,
    verdicts: NDArray[np.uint8],
    replaced: Longs,
) -> int:
    """Enter rows[first:] of a batch, one after the other. Writes verdicts[row], and replaced[row] if the row REPLACES.

    high, low, places (N,) and values (N, C) are those of the batch. A NULL among `values` takes over the replaced row's
    value. alive_from, deleted_from (N,): a key, or a deleted key, with a lower comparison value is dead to the row.
    used (2,): the number of entries, and the most there may be. Returns the position in `rows` for which there is no
    room, or len(rows)."""
    for position in range(first, rows.shape[0]):
        row = rows[position]
        slot = _seek(table, capacity, high[row], low[row])
        is_found = _holds(table, slot, high[row], low[row])
        if is_found and _is_alive(table, slot, alive_from[row], deleted_from[row]):
            if _is_older(values, row, table, slot):
                verdicts[row] = OLDER
                continue
            verdicts[row] = REPLACES
            replaced[row] = table[slot, PLACE]
            for column in range(values.shape[1]):
                if values[row, column] == NULL:
                    values[row, column] = table[slot, FIRST_VALUE + column]
        elif values[row, 0] < alive_from[row]:
            verdicts[row] = LATE
            continue
        else:
            if not is_found:
                if used[0] >= used[1] or not _make_gap(table, slot):
                    return position
                used[0] += 1
                table[slot, HIGH] = high[row]
                table[slot, LOW] = low[row]
            verdicts[row] = NEW
        table[slot, PLACE] = places[row]
        for column in range(values.shape[1]):
            table[slot, FIRST_VALUE + column] = values[row, column]
    end: int = rows.shape[0]
    return end


@kernel
def promote(
    rows: Longs,
    first: int,
    high: Longs,
    low: Longs,
    old: Longs,
    old_capacity: int,
    old_used: Longs,
    table: Longs,
    capacity: int,
    used: Longs,
) -> int:
    """Move the keys of rows[first:] from one table to another, which has none of them; returns what `upsert` does."""
    for position in range(first, rows.shape[0]):
        row = rows[position]
        source = _seek(old, old_capacity, high[row], low[row])
        if not _holds(old, source, high[row], low[row]):
            continue
        slot = _seek(table, capacity, high[row], low[row])
        if used[0] >= used[1] or not _make_gap(table, slot):
            return position
        for column in range(table.shape[1]):
            table[slot, column] = old[source, column]
        used[0] += 1
        _close_gap(old, source, old_capacity)
        old_used[0] -= 1
    end: int = rows.shape[0]
    return end


@kernel
def find(
    rows: Longs, high: Longs, low: Longs, table: Longs, capacity: int, is_there: NDArray[np.bool_], values: Longs
) -> None:
    """Mark the `rows` whose keys are in the table, and write the first comparison value of each to values[row]."""
    for position in range(rows.shape[0]):
        row = rows[position]
        slot = _seek(table, capacity, high[row], low[row])
        if _holds(table, slot, high[row], low[row]):
            is_there[row] = True
            values[row] = table[slot, FIRST_VALUE]


@kernel
def keep_first(
    keys: Longs,
    values: Longs,
    limits: Longs,
    is_there: NDArray[np.bool_],
    newest: Longs,
    largest: int,
    to_live: int,
    floor: int,
    skips_late: bool,
    is_kept: NDArray[np.bool_],
    late: NDArray[np.bool_],
) -> int:
    """Keep each row whose key has no row that is alive, one after the other; returns the largest value afterwards.

    keys (N,): numbers of the rows' keys. is_there (K,) and newest (K,): whether a key has a row, and its value. A key
    is alive unless its value is below `floor`, or below the largest value so far less `to_live` (-1: for ever). Rows
    that are kept raise the largest value, unless they are beyond their limit. late (N,), written: rows whose own value
    is too low to be alive; with `skips_late` they are not kept. is_kept (N,), written."""
    for row in range(keys.shape[0]):
        key, value = keys[row], values[row]
        alive_from = floor
        if to_live >= 0 and largest != NULL and largest >= NULL + to_live:
            alive_from = max(floor, largest - to_live)
        late[row] = value < alive_from
        if (is_there[key] and newest[key] >= alive_from) or (late[row] and skips_late):
            continue
        is_kept[row] = True
        newest[key] = max(newest[key], value) if is_there[key] else value
        is_there[key] = True
        if value > largest and value <= limits[row]:
            largest = value
    return largest


@kernel
def renumber(rows: Longs, high: Longs, low: Longs, places: Longs, table: Longs, capacity: int) -> None:
    """Set the places of the keys of `rows`, which are in the table."""
    for position in range(rows.shape[0]):
        row = rows[position]
        table[_seek(table, capacity, high[row], low[row]), PLACE] = places[row]


@kernel
def relocate(segments: Longs, starts: Longs, docs: Longs, target: int, table: Longs) -> int:
    """Move entries of `segments` (S,), ascending, to the segment `target`; returns the number of moved entries.

    docs[starts[s] + d] is the new doc of doc d, -1: none; starts (S + 1,). Entries without a new doc, and those of docs
    beyond starts[s + 1], are marked as REMOVED."""
    moved = 0
    for slot in range(table.shape[0]):
        place = table[slot, PLACE]
        if place == 0:
            continue
        segment = place >> 32 & MAX_SEGMENT
        at = np.searchsorted(segments, segment)
        if at == segments.shape[0] or segments[at] != segment:
            continue
        doc = starts[at] + (place & 0xFFFFFFFF)
        if doc >= starts[at + 1] or docs[doc] < 0:
            table[slot, PLACE] = place | REMOVED
            continue
        table[slot, PLACE] = PRESENT | place & DELETED | target << 32 | docs[doc]
        moved += 1
    return moved


@kernel
def move_tail(segment: int, first_doc: int, target: int, table: Longs) -> None:
    """Turn the docs of `segment` from `first_doc` on into docs of `target` from 0 on."""
    for slot in range(table.shape[0]):
        place = table[slot, PLACE]
        doc = (place & 0xFFFFFFFF) - first_doc
        if place != 0 and place >> 32 & MAX_SEGMENT == segment and doc >= 0:
            table[slot, PLACE] = PRESENT | place & DELETED | target << 32 | doc


@kernel
def rebuild(old: Longs, alive_from: int, deleted_from: int, capacity: int, table: Longs) -> int:
    """Copy entries that are alive, and not REMOVED, into an empty table; returns their number, or -1 if they do not
    fit."""
    num_copied, end = 0, 0
    for slot in range(old.shape[0]):
        place = old[slot, PLACE]
        if place == 0 or place & REMOVED != 0 or not _is_alive(old, slot, alive_from, deleted_from):
            continue
        at = max(_home(old[slot, HIGH], capacity), end)
        if at >= table.shape[0] - 1:
            return -1
        for column in range(table.shape[1]):
            table[at, column] = old[slot, column]
        num_copied, end = num_copied + 1, at + 1
    return num_copied


@kernel
def count_alive(alive_from: int, deleted_from: int, table: Longs) -> int:
    """Return the number of entries that are alive and not REMOVED."""
    num_alive = 0
    for slot in range(table.shape[0]):
        place = table[slot, PLACE]
        num_alive += place != 0 and place & REMOVED == 0 and _is_alive(table, slot, alive_from, deleted_from)
    return num_alive


@kernel
def largest_before(values: Longs, limits: Longs, largest: int, before: Longs) -> int:
    """Write the largest value before row k to before[k], starting with `largest`; values beyond limits[k] do not count.

    Returns the largest after all rows. values, limits (N,)."""
    for row in range(values.shape[0]):
        before[row] = largest
        if values[row] > largest and values[row] <= limits[row]:
            largest = values[row]
    return largest


@kernel
def set_bits(docs: Longs, words: NDArray[np.uint64]) -> int:
    """Set the bits of docs, numbered from the first word on; returns the number of bits that were not set."""
    changed = 0
    for position in range(docs.shape[0]):
        word, bit = docs[position] >> 6, np.uint64(1) << np.uint64(docs[position] & 63)
        changed += words[word] & bit == 0
        words[word] |= bit
    return changed


@kernel
def clear_bits(docs: Longs, words: NDArray[np.uint64]) -> int:
    """Clear the bits of docs; returns the number of bits that were set."""
    changed = 0
    for position in range(docs.shape[0]):
        word, bit = docs[position] >> 6, np.uint64(1) << np.uint64(docs[position] & 63)
        changed += words[word] & bit != 0
        words[word] &= ~bit
    return changed
