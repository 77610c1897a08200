"""Grouping of many distinct keys: rows are scattered by the top bits of their hashes, so that each part's table of
groups stays in the cache, and parts are grouped side by side.

A row's hash mixes its words. The hash of one word is a bijection, so equal hashes are equal keys. With several words,
and with texts, each row is compared with the first row of its group afterwards: equal hashes of different keys are not
to be expected, and a caller that finds them groups in another way. Parts are ranges of positions; rows of a part
ascend. Groups are numbered within their part by order of arrival.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import load_word
from merlot.kernels.jit import kernel

Hashes = NDArray[np.uint64]
Rows = NDArray[np.uint32]
Places = NDArray[np.int64]

EMPTY = np.uint32(0xFFFFFFFF)
"""Mark of a free slot of a table."""

_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def hash_words(words: NDArray[np.uint64], hashes: Hashes) -> None:
    """Hash each key; words (W, N)."""
    for row in range(words.shape[1]):
        mixed = np.uint64(0)
        for word in range(words.shape[0]):
            mixed = (mixed ^ words[word, row]) * _MIX
            mixed ^= mixed >> np.uint64(32)
        hashes[row] = mixed * _MIX


@kernel
def count_parts(hashes: Hashes, shift: int, counts: Places) -> None:
    """Add to counts[p] the number of hashes whose bits above the lowest `shift` are p."""
    by = np.uint64(shift)
    for row in range(hashes.shape[0]):
        counts[hashes[row] >> by] += 1


@kernel
def scatter(hashes: Hashes, first_row: int, shift: int, starts: Places, out_hashes: Hashes, out_rows: Rows) -> None:
    """Write hashes and their rows, numbered from first_row, into their parts; starts[p] is part p's next free
    element."""
    by = np.uint64(shift)
    for row in range(hashes.shape[0]):
        mixed = hashes[row]
        part = mixed >> by
        place = starts[part]
        starts[part] = place + 1
        out_hashes[place] = mixed
        out_rows[place] = first_row + row


@kernel
def assign_parts(
    hashes: Hashes,
    rows: Rows,
    bounds: Places,
    slots: Rows,
    groups: Rows,
    group_hashes: Hashes,
    first_rows: Rows,
    num_groups: Places,
) -> None:
    """Group the rows of each part [bounds[p], bounds[p + 1]) by their hashes.

    groups[k]: the group of rows[k], numbered within its part. first_rows and group_hashes: group g of a part is at the
    part's beginning + g. num_groups[p]: the number of groups of part p. slots: a power of two, at least twice the
    largest part."""
    for part in range(num_groups.shape[0]):
        start, stop = bounds[part], bounds[part + 1]
        size = 2
        while size < 2 * (stop - start):
            size *= 2
        last_slot = np.uint64(size - 1)
        slots[:size] = EMPTY
        next_group = 0
        for place in range(start, stop):
            mixed = hashes[place]
            row = rows[place]
            slot = mixed & last_slot
            while True:
                group = slots[slot]
                if group == EMPTY:
                    group = np.uint32(next_group)
                    slots[slot] = group
                    group_hashes[start + next_group] = mixed
                    first_rows[start + next_group] = row
                    next_group += 1
                    break
                if group_hashes[start + np.int64(group)] == mixed:
                    break
                slot = (slot + np.uint64(1)) & last_slot
            groups[place] = group
        num_groups[part] = next_group


@kernel
def number_groups(
    rows: Rows, bounds: Places, groups: Rows, part_rows: Rows, bases: Places, of_rows: Rows, first_rows: Rows
) -> None:
    """Number the groups of all parts together: those of part p are bases[p] up to bases[p + 1].

    of_rows[rows[k]] = bases[p] + groups[k]; first_rows[bases[p] + g] is the first row of the part's group g."""
    for part in range(bounds.shape[0] - 1):
        start, base = bounds[part], bases[part]
        for group in range(bases[part + 1] - base):
            first_rows[base + group] = part_rows[start + group]
        for place in range(start, bounds[part + 1]):
            of_rows[rows[place]] = base + groups[place]


@kernel
def equal_words(words: NDArray[np.uint64], of_rows: Rows, first_rows: Rows, start: int, stop: int) -> bool:
    """Return True if each of the rows [start, stop) has the same words (W, N) as the first row of its group."""
    different = np.uint64(0)
    for word in range(words.shape[0]):
        for row in range(start, stop):
            different |= words[word, row] ^ words[word, first_rows[of_rows[row]]]
    return not different


@kernel
def equal_texts(
    offsets: NDArray[Any], data: NDArray[np.uint8], of_rows: Rows, first_rows: Rows, start: int, stop: int
) -> bool:
    """Return True if each of the rows [start, stop) has the same text as the first row of its group."""
    for row in range(start, stop):
        first = first_rows[of_rows[row]]
        if first == row:
            continue
        here, there = np.int64(offsets[row]), np.int64(offsets[first])
        end = np.int64(offsets[row + 1])
        if np.int64(offsets[first + 1]) - there != end - here:
            return False
        apart = there - here
        if end - here < 8:
            for place in range(here, end):
                if data[place] != data[place + apart]:
                    return False
            continue
        # The last eight bytes may overlap those compared before.
        last = end - 8
        while here < last:
            if load_word(data, here) != load_word(data, here + apart):
                return False
            here += 8
        if load_word(data, last) != load_word(data, last + apart):
            return False
    return True
