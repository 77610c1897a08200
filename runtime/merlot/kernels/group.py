"""Grouping: codes of several columns packed into keys, and keys mapped to dense group ids.

Groups are numbered by order of arrival. The tables use open addressing with linear probing: slots (power of two,) hold
groups or EMPTY. The caller keeps tables at most half full, and arrays of keys long enough.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Array = NDArray[np.generic]
Keys = NDArray[np.generic]

EMPTY = np.uint32(0xFFFFFFFF)
"""Mark of a free slot of a table."""

_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def append_key(dict_ids: Array, radix: int, keys: Keys) -> None:
    """Append a digit: keys[k] = keys[k] * radix + dict_ids[k]; keys u32 or u64. Radix 0 starts new keys."""
    for position in range(dict_ids.shape[0]):
        keys[position] = keys[position] * radix + dict_ids[position]


@kernel
def take_append_key(dict_ids: Array, radix: int, docs: NDArray[np.uint32], keys: Keys) -> None:
    """Append a digit: keys[k] = keys[k] * radix + dict_ids[docs[k]]."""
    for position in range(docs.shape[0]):
        keys[position] = keys[position] * radix + dict_ids[docs[position]]


@kernel
def append_whole(values: Array, low: np.int64, last: np.uint64, radix: int, keys: Keys) -> bool:
    """Append a digit: keys[k] = keys[k] * radix + (values[k] - low).

    values i32, i64 or u8; low i64; last u64, the largest difference. Returns False if a value is not in [low, low +
    last]; its key means nothing then."""
    base = np.uint64(low)
    beyond = np.uint64(0)
    for position in range(values.shape[0]):
        code = np.uint64(np.int64(values[position])) - base
        beyond |= np.uint64(code > last)
        keys[position] = keys[position] * radix + code
    return not beyond


@kernel
def assign_dense(keys: NDArray[np.uint64], slots: NDArray[np.uint32], groups: NDArray[np.uint32]) -> int:
    """Give every key its group as `assign_groups` does. Keys are below len(slots), and slots are EMPTY at first."""
    num_groups = 0
    for row in range(keys.shape[0]):
        key = keys[row]
        group = slots[key]
        if group == EMPTY:
            group = np.uint32(num_groups)
            slots[key] = group
            num_groups += 1
        groups[row] = group
    return num_groups


@kernel
def assign_groups(
    keys: NDArray[np.uint64],
    num_groups: int,
    slots: NDArray[np.uint32],
    group_keys: NDArray[np.uint64],
    groups: NDArray[np.uint32],
) -> int:
    """Give every key its group: groups[k] is the group of keys[k], group_keys[g] the key of group g.

    There is room for num_groups + len(keys). Returns the new number of groups."""
    last_slot = np.uint64(slots.shape[0] - 1)
    for position in range(keys.shape[0]):
        key = keys[position]
        mixed = key * _MIX
        slot = (mixed ^ (mixed >> np.uint64(32))) & last_slot
        while True:
            group = slots[slot]
            if group == EMPTY:
                group = np.uint32(num_groups)
                slots[slot] = group
                group_keys[num_groups] = key
                num_groups += 1
                break
            if group_keys[group] == key:
                break
            slot = (slot + np.uint64(1)) & last_slot
        groups[position] = group
    return num_groups


@kernel
def fill_slots(group_keys: NDArray[np.uint64], slots: NDArray[np.uint32]) -> None:
    """Enter distinct group_keys into the slots of a table that grew: all EMPTY, at least twice as many as the keys."""
    last_slot = np.uint64(slots.shape[0] - 1)
    for group in range(group_keys.shape[0]):
        mixed = group_keys[group] * _MIX
        slot = (mixed ^ (mixed >> np.uint64(32))) & last_slot
        while slots[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & last_slot
        slots[slot] = np.uint32(group)


@kernel
def assign_wide(
    words: NDArray[np.uint64],
    start: int,
    stop: int,
    num_groups: int,
    slots: NDArray[np.uint32],
    group_keys: NDArray[np.uint64],
    groups: NDArray[np.uint32],
) -> int:
    """Give every key of the rows [start, stop) its group as `assign_groups` does; a key has several words.

    words (W, N); group_keys (room, W), one row per group, so that a comparison reads one cache line."""
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
def fill_slots_wide(group_keys: NDArray[np.uint64], slots: NDArray[np.uint32]) -> None:
    """Enter group_keys (G, W) of several words into slots, as `fill_slots` does."""
    width = group_keys.shape[1]
    last_slot = np.uint64(slots.shape[0] - 1)
    for group in range(group_keys.shape[0]):
        mixed = np.uint64(0)
        for word in range(width):
            mixed = (mixed ^ group_keys[group, word]) * _MIX
            mixed ^= mixed >> np.uint64(32)
        slot = mixed & last_slot
        while slots[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & last_slot
        slots[slot] = np.uint32(group)


@kernel
def first_rows(groups: NDArray[np.uint32], rows: NDArray[np.uint32]) -> None:
    """Write the first row of each group: rows[g], one for each group. Groups are numbered by order of arrival."""
    next_group = 0
    for row in range(groups.shape[0]):
        if next_group < rows.shape[0] and groups[row] == next_group:
            rows[next_group] = row
            next_group += 1


@kernel
def distinct_pairs(
    owners: NDArray[np.uint32], values: NDArray[np.uint64], slots: NDArray[np.uint32], rows: NDArray[np.uint32]
) -> int:
    """Write the first row of each distinct (owner, value) and return their number. slots: EMPTY, twice the rows or
    more."""
    last_slot = np.uint64(slots.shape[0] - 1)
    num_pairs = 0
    for row in range(values.shape[0]):
        value, owner = values[row], owners[row]
        mixed = ((value * _MIX) ^ np.uint64(owner)) * _MIX
        slot = (mixed ^ (mixed >> np.uint64(32))) & last_slot
        while True:
            other = slots[slot]
            if other == EMPTY:
                slots[slot] = np.uint32(row)
                rows[num_pairs] = row
                num_pairs += 1
                break
            if values[other] == value and owners[other] == owner:
                break
            slot = (slot + np.uint64(1)) & last_slot
    return num_pairs


@kernel
def order_by_group(
    owners: NDArray[np.uint32], ids: NDArray[np.uint32], ends: NDArray[np.int64], out: NDArray[np.uint32]
) -> None:
    """Write ids ordered by group, then by row. ends[g]: where group g starts, and afterwards where it ends."""
    for row in range(ids.shape[0]):
        owner = owners[row]
        out[ends[owner]] = ids[row]
        ends[owner] += 1


@kernel
def distinct_in_groups(
    ids: NDArray[np.uint32], ends: NDArray[np.int64], last: NDArray[np.uint32], distinct_ends: NDArray[np.int64]
) -> None:
    """Move the distinct ids of all groups to the front of `ids`, one group after another.

    Group g was ids[ends[g - 1]:ends[g]]; its distinct ids are ids[distinct_ends[g - 1]:distinct_ends[g]]. For the first
    group, both begin at 0. last: for each id, the last group that had it; EMPTY at first."""
    start = end = np.int64(0)
    for group in range(ends.shape[0]):
        for place in range(start, ends[group]):
            id_ = ids[place]
            # No branch: it could not be predicted.
            ids[end] = id_
            end += np.int64(last[id_] != group)
            last[id_] = group
        start = ends[group]
        distinct_ends[group] = end


@kernel
def mark(keys: Keys, present: NDArray[np.uint8]) -> None:
    """Mark the keys that occur: present[keys[k]] = 1."""
    for position in range(keys.shape[0]):
        present[keys[position]] = 1


@kernel
def keys_within(
    keys: NDArray[np.uint32], first: np.uint32, count: np.uint32, rows: NDArray[np.int64], groups: NDArray[np.uint32]
) -> int:
    """Write the rows of the keys in [first, first + count), ascending, and each key's distance from first. Returns
    their number.

    rows and groups are as long as keys: elements past the last row may be written."""
    num_rows = np.int64(0)
    for row in range(keys.shape[0]):
        group = keys[row] - first
        # No branch: it could not be predicted.
        rows[num_rows] = row
        groups[num_rows] = group
        num_rows += np.int64(group < count)
    return int(num_rows)
