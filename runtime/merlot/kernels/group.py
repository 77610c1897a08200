"""Group keys: dict ids of several columns packed into one number, and numbers into dense group ids."""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Array = NDArray[np.generic]
Keys = NDArray[np.generic]

EMPTY = np.uint32(0xFFFFFFFF)
"""Marks a free slot in the table of `assign_groups`."""

_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def append_key(dict_ids: Array, radix: int, keys: Keys) -> None:
    """keys[k] = keys[k] * radix + dict_ids[k]; keys u32 or u64, radix 0 starts anew."""
    for position in range(dict_ids.shape[0]):
        keys[position] = keys[position] * radix + dict_ids[position]


@kernel
def take_append_key(dict_ids: Array, radix: int, docs: NDArray[np.uint32], keys: Keys) -> None:
    """keys[k] = keys[k] * radix + dict_ids[docs[k]]."""
    for position in range(docs.shape[0]):
        keys[position] = keys[position] * radix + dict_ids[docs[position]]


@kernel
def assign_groups(
    keys: NDArray[np.uint64],
    num_groups: int,
    slots: NDArray[np.uint32],
    group_keys: NDArray[np.uint64],
    groups: NDArray[np.uint32],
) -> int:
    """Give every key its group: groups[k] is the group of keys[k], group_keys[g] the key of group g.

    slots (power of two,) holds groups or EMPTY, open addressing with linear probing; the caller keeps it at most half
    full, and group_keys long enough, for num_groups + len(keys). Returns the new number of groups."""
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
    """Enter distinct group_keys into slots, which are all EMPTY and at least twice as many: a table that grew."""
    last_slot = np.uint64(slots.shape[0] - 1)
    for group in range(group_keys.shape[0]):
        mixed = group_keys[group] * _MIX
        slot = (mixed ^ (mixed >> np.uint64(32))) & last_slot
        while slots[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & last_slot
        slots[slot] = np.uint32(group)


@kernel
def mark(keys: Keys, present: NDArray[np.uint8]) -> None:
    """present[keys[k]] = 1."""
    for position in range(keys.shape[0]):
        present[keys[position]] = 1
