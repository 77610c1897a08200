"""Merging of each row into the next row of its key: recurrences in which a row refers to the row before it.

All rows are numbered together: first the earlier rows, then a batch in order. prior (N,) i64, for each row of the
batch: the row before it of the same key, or -1. `valid` (rows,) u8: 1 if a row's value is not null. sources (rows,):
the row whose value a row ends up with, so that columns of any type are merged by a gather. At first it is each row
itself.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Longs = NDArray[np.int64]
Flags = NDArray[np.uint8]


@kernel
def last_values(prior: Longs, valid: Flags, sources: Longs) -> None:
    """Set sources to the newest row of the chain that is not null."""
    first = sources.shape[0] - prior.shape[0]
    for number in range(prior.shape[0]):
        row = first + number
        if valid[row] == 0 and prior[number] >= 0:
            sources[row] = sources[prior[number]]


@kernel
def first_values(prior: Longs, valid: Flags, sources: Longs) -> None:
    """Set sources to the oldest row of the chain that is not null."""
    first = sources.shape[0] - prior.shape[0]
    for number in range(prior.shape[0]):
        if prior[number] >= 0 and valid[sources[prior[number]]] != 0:
            sources[first + number] = sources[prior[number]]


@kernel
def extremes(prior: Longs, valid: Flags, ranks: Longs, largest: bool, sources: Longs) -> None:
    """Set sources to the row of the chain that is not null and has the largest, or smallest, of `ranks`."""
    first = sources.shape[0] - prior.shape[0]
    for number in range(prior.shape[0]):
        row = first + number
        if prior[number] < 0:
            continue
        before = sources[prior[number]]
        is_better = ranks[row] > ranks[before] if largest else ranks[row] < ranks[before]
        if valid[before] != 0 and (valid[row] == 0 or not is_better):
            sources[row] = before


@kernel
def sums(prior: Longs, valid: Flags, values: Any) -> None:
    """Add up values (rows,) along the chain, in place, in their type. A null counts as nothing; `valid` becomes that of
    the sums."""
    first = values.shape[0] - prior.shape[0]
    for number in range(prior.shape[0]):
        row, before = first + number, prior[number]
        if before < 0 or valid[before] == 0:
            continue
        if valid[row] == 0:
            values[row] = values[before]
        else:
            values[row] += values[before]
        valid[row] = 1


@kernel
def append_lengths(prior: Longs, lengths: Longs) -> None:
    """Add to each list's length, lengths (rows,), the lengths of all lists before it in the chain."""
    first = lengths.shape[0] - prior.shape[0]
    for number in range(prior.shape[0]):
        if prior[number] >= 0:
            lengths[first + number] += lengths[prior[number]]


@kernel
def append_lists(prior: Longs, starts: Longs, offsets: Longs, elements: Longs) -> None:
    """Append lists: elements[offsets[r]:offsets[r + 1]] = the elements of all lists before row r's, then of its own.

    starts (rows + 1,) of the lists as they are; offsets (rows + 1,): sums of the lengths that `append_lengths`
    wrote."""
    first = offsets.shape[0] - 1 - prior.shape[0]
    for row in range(offsets.shape[0] - 1):
        place = offsets[row]
        before = prior[row - first] if row >= first else -1
        if before >= 0:
            for element in range(offsets[before], offsets[before + 1]):
                elements[place] = elements[element]
                place += 1
        for element in range(starts[row], starts[row + 1]):
            elements[place] = element
            place += 1


@kernel
def unite(prior: Longs, starts: Longs, ranks: Longs, row: int, offsets: Longs, merged: Longs) -> int:
    """Unite lists: merged[offsets[r]:offsets[r + 1]] = the distinct ranks of row r's list and all before it, ascending.

    Rows before `row` are done already. ranks (E,) of the elements of a list ascend. Returns the row for which `merged`
    has no room, or the number of rows."""
    first = offsets.shape[0] - 1 - prior.shape[0]
    while row < offsets.shape[0] - 1:
        place = offsets[row]
        before = prior[row - first] if row >= first else -1
        left, left_end = (offsets[before], offsets[before + 1]) if before >= 0 else (0, 0)
        right, right_end = starts[row], starts[row + 1]
        if place + left_end - left + right_end - right > merged.shape[0]:
            return row
        while left < left_end or right < right_end:
            if right == right_end or (left < left_end and merged[left] <= ranks[right]):
                rank = merged[left]
                left += 1
            else:
                rank = ranks[right]
                right += 1
            if place == offsets[row] or merged[place - 1] != rank:
                merged[place] = rank
                place += 1
        offsets[row + 1] = place
        row += 1
    return row


@kernel
def depths(prior: Longs, out: Longs) -> int:
    """Write the number of a batch's rows before each row in its chain; out (rows,), 0 at first. Returns the largest."""
    first = out.shape[0] - prior.shape[0]
    deepest = 0
    for number in range(prior.shape[0]):
        if prior[number] >= first:
            out[first + number] = out[prior[number]] + 1
            deepest = max(deepest, out[first + number])
    return deepest
