"""One order of any rows, whatever order they come in: by some columns' values, then by all others, -0.0 before 0.0.

Rows that are still equal are equal in all that a segment stores of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.ingest import arrays

_SIGN_BIT = np.int64(63)
_ALL_BUT_SIGN = np.int64(0x7FFF_FFFF_FFFF_FFFF)


def ordered(rows: pa.Table, leading: Sequence[str]) -> pa.Table:
    """The rows, by the columns of `leading`, null first, and those that are equal in these by all others."""
    rows = rows.combine_chunks()
    keys = [_sortable(rows.column(name)) for name in leading]
    first = _sorted(keys)
    tied = _ties(keys, first)
    if tied is None:
        return rows.take(pa.array(first))
    # Few rows are equal in the leading columns, as a rule: only these are compared in full.
    places = np.flatnonzero(tied >= 0)
    among = rows.take(pa.array(first[places]))
    rest = [_sortable(among.column(name)) for name in among.column_names if name not in leading]
    first[places] = first[places][_sorted([pa.array(tied[places]), *rest])]
    return rows.take(pa.array(first))


def _sorted(keys: Iterable[pa.Array]) -> NDArray[np.int64]:
    table = pa.table({str(number): key for number, key in enumerate(keys)})
    order = pc.sort_indices(table, sort_keys=[(name, "ascending", "at_start") for name in table.column_names])
    return np.array(order).astype(np.int64)


def _ties(keys: Iterable[pa.Array], order: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """For each place of the order: the first place of the rows that are equal to it in all keys, -1 if it is alone.
    None if all are."""
    count = len(order)
    is_new = np.zeros(count, dtype=bool)
    is_new[:1] = True
    for key in keys:
        values = key.take(pa.array(order))
        same = pc.equal(values[1:], values[:-1])
        both_null = pc.and_(values[1:].is_null(), values[:-1].is_null())
        is_new[1:] |= ~np.asarray(pc.coalesce(same, both_null))
    if is_new.all():
        return None
    starts = np.flatnonzero(is_new)
    sizes = np.diff(np.append(starts, count))
    firsts = np.where(sizes > 1, starts, -1)
    return np.repeat(firsts, sizes)


def _sortable(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Values of a type that Arrow sorts, equal where a segment stores equal values."""
    values = arrays.plain(column)
    if arrays.is_list(values.type):
        return _list_ranks(values)
    return _float_ranks(values) if pa.types.is_floating(values.type) else values


def _float_ranks(values: pa.Array) -> pa.Array:
    """Integers in the order of the numbers; all NaNs are one."""
    numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    numbers = np.where(np.isnan(numbers), np.nan, numbers)
    bits = numbers.view(np.int64)
    return pa.array(bits ^ ((bits >> _SIGN_BIT) & _ALL_BUT_SIGN), mask=np.asarray(values.is_null()))


def _list_ranks(lists: pa.ListArray) -> pa.Array:
    """Equal for equal lists; null first, then by length, then by elements from the first on."""
    elements = _sortable(arrays.elements_of(lists))
    ranks_of_elements = np.array(pc.rank(elements, tiebreaker="dense")).astype(np.int64)
    lengths = arrays.lengths_of(lists)
    starts = np.cumsum(lengths) - lengths
    is_null = np.asarray(lists.is_null())
    ranks = np.where(is_null, 0, lengths + 1)
    alive = np.flatnonzero(lengths)
    position = 0
    while len(alive):
        # Longer lists have higher ranks, so those that have ended keep theirs.
        among = ranks[alive]
        pairs = among * (len(elements) + 1) + ranks_of_elements[starts[alive] + position]
        ranks[alive] = among.min() + np.unique(pairs, return_inverse=True)[1]
        position += 1
        alive = alive[lengths[alive] > position]
    return pa.array(ranks)
