"""ORDER BY: every key becomes whole numbers that sort as its values do; then one sort serves all types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
Rows = NDArray[np.int64]
KeysOf = Callable[[Rows | None], list[Keys]]
"""Function that returns the keys of some rows, or of all, most significant first."""
HEAP_ROWS = 10_000
"""Largest limit for which a heap finds the first rows; above it, numpy selects them."""

_FLIP = np.int64(0x7FFFFFFFFFFFFFFF)


def sort_keys(vector: Vector, *, ascending: bool, nulls_last: bool) -> list[Keys]:
    """Return sort keys, most significant first: whether a value is null (only if there are nulls), then the values'
    ranks."""
    ranks = _ranks(vector)
    if not ascending:
        ranks = ~ranks
    if vector.nulls is None or not vector.nulls.any():
        return [ranks]
    null_keys = vector.nulls if nulls_last else ~vector.nulls
    return [null_keys.astype(np.int64), np.where(vector.nulls, 0, ranks)]


def _ranks(vector: Vector) -> Keys:
    """Return whole numbers in the order of the values: NaN last, -0.0 and 0.0 equal."""
    data = vector.data
    if isinstance(data, Scaled):
        return data.values
    if isinstance(data, np.ndarray) and data.dtype == object:
        distinct = sorted(set(data.tolist()))
        rank_of = {value: rank for rank, value in enumerate(distinct)}
        return np.array([rank_of[value] for value in data.tolist()], np.int64)
    if isinstance(data, np.ndarray):
        return _float_ranks(data) if data.dtype.kind == "f" else data.astype(np.int64)
    encoded = pc.dictionary_encode(data)
    codes: NDArray[Any] = encoded.indices.to_numpy(zero_copy_only=False)
    return np.asarray(text_ranks(encoded.dictionary)[codes])


def text_ranks(distinct: pa.Array, *, is_decimal: bool = False) -> Keys:
    """Return the rank of each of the distinct strings: by bytes, or by the decimal numbers that they represent."""
    if is_decimal and (scaled := scaled_of(distinct)) is not None:
        order = np.argsort(scaled.values)
    elif is_decimal:
        texts = distinct.to_pylist()
        order = np.array(sorted(range(len(texts)), key=lambda index: Decimal(texts[index])), np.int64)
    else:
        order = pc.sort_indices(distinct).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _float_ranks(data: NDArray[Any]) -> Keys:
    wide = data.astype(np.float64) + 0.0
    wide[np.isnan(wide)] = np.nan
    bits = wide.view(np.int64)
    return np.where(bits < 0, bits ^ _FLIP, bits)


def first_rows(keys: Sequence[KeysOf], num_rows: int, limit: int) -> Rows:
    """Return the rows of the `limit` smallest keys, in order; rows with equal keys are ordered by position.

    A key is computed only for the rows that the keys before it leave undecided, and once more for the chosen rows."""
    if not keys:
        return np.arange(min(limit, num_rows))
    chosen = _chosen(keys, num_rows, limit) if limit < num_rows else None
    parts = [part for key in keys for part in key(chosen)]
    order = np.lexsort(parts[::-1])
    return order if chosen is None else chosen[order]


def _chosen(keys: Sequence[KeysOf], num_rows: int, limit: int) -> Rows:
    """Return the rows of the `limit` smallest keys, ascending. `limit` is less than the number of rows."""
    if limit == 0:
        return np.zeros(0, np.int64)
    sure: list[Rows] = []
    ties: Rows | None = None
    remaining = limit
    for key in keys:
        parts = key(ties)
        undecided: Rows | None = None
        """Positions of the undecided rows among the rows for which the key was computed; None for all of them."""
        for part in parts:
            values = part if undecided is None else part[undecided]
            is_last = key is keys[-1] and part is parts[-1]
            below, tied = _split(values, remaining, is_last=is_last)
            rows = ties if undecided is None else undecided if ties is None else ties[undecided]
            sure.append(below if rows is None else rows[below])
            remaining -= len(below)
            undecided = tied if undecided is None else undecided[tied]
            if remaining == 0:
                return np.sort(np.concatenate(sure))
        ties = undecided if ties is None else ties[undecided]
    raise AssertionError("the last key decides")


def _split(key: Keys, limit: int, *, is_last: bool) -> tuple[Rows, Rows]:
    """Return the rows that are certainly among the `limit` smallest, and the tied rows from which the next keys choose
    the rest. After the last key no rows are tied, since rows with equal keys are ordered by position."""
    if len(key) <= limit:
        return np.arange(len(key)), np.zeros(0, np.int64)
    if limit <= HEAP_ROWS:
        heap_keys, rows = np.empty(limit, np.int64), np.empty(limit, np.int64)
        used = smallest(np.ascontiguousarray(key), heap_keys, rows)
        if is_last:
            return rows[:used], np.zeros(0, np.int64)
        edge = heap_keys[0]
    else:
        edge = np.partition(key, limit - 1)[limit - 1]
    below, tied = np.flatnonzero(key < edge), np.flatnonzero(key == edge)
    if is_last or len(below) + len(tied) == limit:
        return np.concatenate([below, tied[: limit - len(below)]]), np.zeros(0, np.int64)
    return below, tied


def order_table(table: pa.Table, keys: Sequence[tuple[str, SqlType, bool, bool]], limit: int) -> Rows:
    """Return the first `limit` rows of a table by columns (name, type, ascending, nulls last)."""

    def keys_of(name: str, type_: SqlType, ascending: bool, nulls_last: bool) -> KeysOf:
        def make(rows: Rows | None) -> list[Keys]:
            column = table[name] if rows is None else table[name].take(pa.array(rows))
            return sort_keys(from_arrow(type_, column), ascending=ascending, nulls_last=nulls_last)

        return make

    return first_rows([keys_of(*key) for key in keys], table.num_rows, limit)
