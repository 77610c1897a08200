"""ORDER BY: every key becomes whole numbers that sort as its values do, then one sort serves all types."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.kernels.topk import smallest
from merlot.tree.types import SqlType
from merlot.vectors.scaled import Scaled, scaled_of
from merlot.vectors.vector import Vector, from_arrow

Keys = NDArray[np.int64]
HEAP_ROWS = 10_000
"""Up to this many rows a heap finds the first ones; above it, selection by numpy."""

_FLIP = np.int64(0x7FFFFFFFFFFFFFFF)


def sort_keys(vector: Vector, *, ascending: bool, nulls_last: bool) -> list[Keys]:
    """Most significant first: whether null (only if there are nulls), then the values' ranks."""
    ranks = _ranks(vector)
    if not ascending:
        ranks = ~ranks
    if vector.nulls is None or not vector.nulls.any():
        return [ranks]
    place = vector.nulls if nulls_last else ~vector.nulls
    return [place.astype(np.int64), np.where(vector.nulls, 0, ranks)]


def _ranks(vector: Vector) -> Keys:
    """Whole numbers in the order of the values: NaN last, -0.0 and 0.0 equal."""
    data = vector.data
    if isinstance(data, Scaled):
        return data.values
    if isinstance(data, np.ndarray) and data.dtype == object:
        distinct = sorted(set(data.tolist()))
        place_of = {value: place for place, value in enumerate(distinct)}
        return np.array([place_of[value] for value in data.tolist()], np.int64)
    if isinstance(data, np.ndarray):
        return _float_ranks(data) if data.dtype.kind == "f" else data.astype(np.int64)
    encoded = pc.dictionary_encode(data)
    codes: NDArray[Any] = encoded.indices.to_numpy(zero_copy_only=False)
    return np.asarray(text_ranks(encoded.dictionary)[codes])


def text_ranks(distinct: pa.Array, *, is_decimal: bool = False) -> Keys:
    """Place of each of the distinct strings in their order: of bytes, or of the decimal numbers they write."""
    if is_decimal and (scaled := scaled_of(distinct)) is not None:
        order = np.argsort(scaled.values)
    elif is_decimal:
        texts = distinct.to_pylist()
        order = np.array(sorted(range(len(texts)), key=lambda place: Decimal(texts[place])), np.int64)
    else:
        order = pc.sort_indices(distinct).to_numpy()
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def _float_ranks(data: NDArray[Any]) -> Keys:
    wide = data.astype(np.float64) + 0.0
    wide[np.isnan(wide)] = np.nan
    bits = wide.view(np.int64)
    return np.where(bits < 0, bits ^ _FLIP, bits)


def first_rows(keys: Sequence[Keys], num_rows: int, limit: int) -> NDArray[np.int64]:
    """Rows of the `limit` smallest keys, in order; equal ones by position."""
    if not keys:
        return np.arange(min(limit, num_rows))
    if limit < num_rows:
        candidates = _smallest(keys[0], limit, num_rows, exact=len(keys) == 1)
        order = np.lexsort([key[candidates] for key in reversed(keys)])[:limit]
        return candidates[order]
    return np.lexsort(list(reversed(keys)))


def _smallest(key: Keys, limit: int, num_rows: int, *, exact: bool) -> NDArray[np.int64]:
    """Ascending rows that hold the `limit` smallest by the first key; with more keys, its ties at the edge too."""
    if limit == 0:
        return np.zeros(0, np.int64)
    if exact and limit <= HEAP_ROWS:
        heap_keys, rows = np.empty(limit, np.int64), np.empty(limit, np.int64)
        used = smallest(np.ascontiguousarray(key), heap_keys, rows)
        return np.sort(rows[:used])
    if limit <= HEAP_ROWS:
        heap_keys, rows = np.empty(limit, np.int64), np.empty(limit, np.int64)
        smallest(np.ascontiguousarray(key), heap_keys, rows)
        edge = heap_keys[0]
    else:
        edge = np.partition(key, limit - 1)[limit - 1]
    if exact:
        below = np.flatnonzero(key < edge)
        ties = np.flatnonzero(key == edge)[: limit - len(below)]
        return np.sort(np.concatenate([below, ties]))
    return np.flatnonzero(key <= edge)


def order_table(table: pa.Table, keys: Sequence[tuple[str, SqlType, bool, bool]], limit: int) -> NDArray[np.int64]:
    """First `limit` rows of a table by columns (name, type, ascending, nulls last)."""
    sorted_by: list[Keys] = []
    for name, type_, ascending, nulls_last in keys:
        sorted_by += sort_keys(from_arrow(type_, table[name]), ascending=ascending, nulls_last=nulls_last)
    return first_rows(sorted_by, table.num_rows, limit)
