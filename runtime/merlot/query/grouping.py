"""GROUP BY and plain aggregation over the selected docs of one segment: one task, one thread.

Keys are packed into one number per row. If few numbers are possible they index the accumulators directly; else a hash
table gives each number met a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import group as kernels
from merlot.query.accumulators import Accumulator, Count, accumulator
from merlot.query.chunk import Chunk
from merlot.query.columns import Columns
from merlot.query.context import ExecutionContext, UnsupportedQueryError, check_groups
from merlot.query.docset import CHUNK_DOCS, DocSet
from merlot.query.keys import DictionaryKey, Key, ValueKey, key_of
from merlot.query.logical import LogicalPlan
from merlot.query.vector import arrow_type
from merlot.sql.tree import Column, Expr
from merlot.sql.types import SqlType

SMALL_SPACE = 4_096
MAX_DENSE_SPACE = 1 << 22
HASH_CHUNK_DOCS = 16_384


def aggregate(plan: LogicalPlan, columns: Columns, docs: DocSet, context: ExecutionContext) -> list[pa.Array] | None:
    """State columns of one row."""
    accumulators = _accumulators(plan, columns, 1)
    for chunk in docs.chunks(columns, null_handling=plan.null_handling):
        context.cancel.check()
        for one in accumulators:
            one.add(chunk, None)
    row = np.zeros(1, np.int64)
    return [state for one in accumulators for state in one.states(row)]


def group(plan: LogicalPlan, columns: Columns, docs: DocSet, context: ExecutionContext) -> list[pa.Array]:
    """Key columns, then state columns, a row per group."""
    exploded = [expr for expr in plan.keys if expr.type.is_array]
    keys = [key_of(expr, columns, null_handling=plan.null_handling) for expr in plan.keys]
    single_chunk = any(key.needs_all_rows for key in keys)
    num_rows = docs.count
    space = 1
    for key in keys:
        space *= key.cardinality
    if single_chunk or exploded:
        return _group_encoded(plan, columns, docs, context, keys)
    if space <= SMALL_SPACE or space <= min(2 * num_rows, MAX_DENSE_SPACE):
        return _group_dense(plan, columns, docs, context, keys)
    if space >= 1 << 63:
        return _group_encoded(plan, columns, docs, context, keys)
    return _group_hashed(plan, columns, docs, context, keys)


def _accumulators(plan: LogicalPlan, columns: Columns, num_groups: int) -> list[Accumulator]:
    return [accumulator(one, num_groups, columns, nulls=plan.null_handling) for one in plan.aggregates]


def _pack(keys: Sequence[Key], chunk: Chunk, out: NDArray[Any]) -> NDArray[Any]:
    """One number per row in out's dtype; out is scratch, long enough."""
    packed = out[: chunk.num_rows]
    for number, key in enumerate(keys):
        radix = key.cardinality if number else 0
        if isinstance(key, DictionaryKey) and chunk.docs is not None:
            kernels.take_append_key(key.reader.dict_ids(), radix, chunk.docs, packed)
        else:
            kernels.append_key(key.codes(chunk), radix, packed)
    return packed


def _group_dense(
    plan: LogicalPlan, columns: Columns, docs: DocSet, context: ExecutionContext, keys: list[Key]
) -> list[pa.Array]:
    space = 1
    for key in keys:
        space *= key.cardinality
    accumulators = _accumulators(plan, columns, space)
    rows = next((one for one in accumulators if isinstance(one, Count) and one.counts_rows), None)
    present = np.zeros(space, np.uint8) if rows is None else None
    scratch = np.zeros(min(CHUNK_DOCS, docs.count), np.uint32)
    for chunk in docs.chunks(columns, null_handling=plan.null_handling):
        context.cancel.check()
        groups = _pack(keys, chunk, scratch)
        if present is not None:
            kernels.mark(groups, present)
        for one in accumulators:
            one.add(chunk, groups)
    found = np.flatnonzero(present if present is not None else rows.counts if rows is not None else [])
    return _finish(keys, found, accumulators, found, context)


def _group_hashed(
    plan: LogicalPlan, columns: Columns, docs: DocSet, context: ExecutionContext, keys: list[Key]
) -> list[pa.Array]:
    table = GroupTable()
    accumulators = _accumulators(plan, columns, 1024)
    scratch = np.zeros(HASH_CHUNK_DOCS, np.uint64)
    for chunk in docs.chunks(columns, null_handling=plan.null_handling, max_docs=HASH_CHUNK_DOCS):
        context.cancel.check()
        groups = table.assign(_pack(keys, chunk, scratch))
        check_groups(context.limits, table.num_groups)
        for one in accumulators:
            one.grow(table.num_groups)
            one.add(chunk, groups)
    return _finish(keys, table.keys().astype(np.int64), accumulators, np.arange(table.num_groups), context)


class GroupTable:
    """A hash table from packed keys to groups, by order of arrival."""

    def __init__(self) -> None:
        self.num_groups = 0
        self._slots = np.full(1 << 16, kernels.EMPTY, np.uint32)
        self._keys = np.empty(1 << 15, np.uint64)

    def assign(self, packed: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Group of each key."""
        self._reserve(self.num_groups + len(packed))
        groups = np.empty(len(packed), np.uint32)
        self.num_groups = kernels.assign_groups(packed, self.num_groups, self._slots, self._keys, groups)
        return groups

    def keys(self) -> NDArray[np.uint64]:
        """Key of each group."""
        return self._keys[: self.num_groups]

    def _reserve(self, num_groups: int) -> None:
        if num_groups > len(self._keys):
            larger = np.empty(1 << (2 * num_groups - 1).bit_length(), np.uint64)
            larger[: self.num_groups] = self.keys()
            self._keys = larger
        if 2 * num_groups > len(self._slots):
            self._slots = np.full(1 << (4 * num_groups - 1).bit_length(), kernels.EMPTY, np.uint32)
            kernels.fill_slots(self.keys(), self._slots)


def _group_encoded(
    plan: LogicalPlan, columns: Columns, docs: DocSet, context: ExecutionContext, keys: list[Key]
) -> list[pa.Array]:
    """All rows at once: keys by value, and multi-value keys, of which every value is a row of its own."""
    every = Chunk(columns, 0, 0, docs.docs(), null_handling=plan.null_handling)
    rows = np.arange(every.num_rows)
    flat: dict[int, tuple[NDArray[Any], NDArray[np.int64]]] = {}
    for number, expr in enumerate(plan.keys):
        if expr.type.is_array:
            rows, flat = _explode(expr, every.at(rows), rows, flat, number)
    chunk = every.at(rows) if flat else every
    packed = np.zeros(chunk.num_rows, np.uint64)
    space = 1
    for number, key in enumerate(keys):
        codes = _codes(key, chunk, plan.keys[number], flat.get(number))
        space *= key.cardinality
        if space >= 1 << 63:
            raise UnsupportedQueryError("too many combinations of group keys")
        packed = packed * np.uint64(key.cardinality) + codes.astype(np.uint64)
    table = GroupTable()
    groups = table.assign(packed)
    check_groups(context.limits, table.num_groups)
    accumulators = _accumulators(plan, columns, max(1, table.num_groups))
    for one in accumulators:
        one.add(chunk, groups)
    return _finish(keys, table.keys().astype(np.int64), accumulators, np.arange(table.num_groups), context)


Flat = dict[int, tuple[NDArray[Any], NDArray[np.int64]]]


def _explode(
    expr: Expr, chunk: Chunk, rows: NDArray[np.int64], flat: Flat, number: int
) -> tuple[NDArray[np.int64], Flat]:
    """Repeat rows for each value of a multi-value column; keep where the values are."""
    if not isinstance(expr, Column):
        raise UnsupportedQueryError("GROUP BY of an expression over a multi-value column")
    reader = chunk.columns.reader(expr.name)
    offsets, positions = chunk.multi_values(reader)
    repeat = np.repeat(np.arange(chunk.num_rows), np.diff(offsets))
    moved = {key: (codes[repeat], where[repeat]) for key, (codes, where) in flat.items()}
    moved[number] = (positions, positions)
    return rows[repeat], moved


def _codes(key: Key, chunk: Chunk, expr: Expr, flat: tuple[NDArray[Any], NDArray[np.int64]] | None) -> NDArray[Any]:
    if flat is None:
        return key.codes(chunk)
    assert isinstance(expr, Column)
    reader, positions = chunk.columns.reader(expr.name), flat[0]
    if isinstance(key, DictionaryKey):
        return np.asarray(reader.dict_ids()[positions])
    assert isinstance(key, ValueKey)
    if reader.dictionary is not None:
        values = reader.dictionary.arrow().take(pa.array(reader.dict_ids()[positions]))
    elif reader.type.value in ("STRING", "JSON", "BYTES", "BIG_DECIMAL"):
        values = reader.strings().take(pa.array(positions))
    else:
        values = pa.array(reader.values()[positions])
    return key.encode(values.cast(arrow_type(SqlType(reader.type))))


def _finish(
    keys: Sequence[Key],
    packed: NDArray[np.int64],
    accumulators: Sequence[Accumulator],
    groups: NDArray[np.int64],
    context: ExecutionContext,
) -> list[pa.Array]:
    check_groups(context.limits, len(groups))
    values: list[pa.Array] = []
    for key in reversed(keys):
        packed, codes = np.divmod(packed, key.cardinality) if len(keys) > 1 else (packed, packed)
        values.append(key.values(codes))
    values.reverse()
    return values + [state for one in accumulators for state in one.states(groups)]
