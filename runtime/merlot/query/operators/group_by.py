"""GROUP BY and plain aggregation over the selected docs of one segment: one task, one thread.

Keys are packed into words, chunk by chunk. If few words are possible, they index the accumulators directly; otherwise a
hash table assigns a group to each word that occurs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.functions.evaluate import evaluate
from merlot.kernels import group as kernels
from merlot.kernels.jit import read_only
from merlot.query.accumulators import Accumulator, StateAccumulator
from merlot.query.constant_sums import SumPlusConstant, accumulators
from merlot.query.context import ExecutionContext, check_groups
from merlot.query.filter.docset import CHUNK_DOCS, DocSet
from merlot.query.operators.group_keys import DictionaryKey, GroupKey, ValueKey, key_of
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns
from merlot.tree.nodes import Column, Expr
from merlot.tree.types import SqlType
from merlot.vectors import account
from merlot.vectors.errors import LimitExceededError
from merlot.vectors.groups import GroupTable, Packing
from merlot.vectors.vector import Vector, arrow_type

SMALL_SPACE = 4_096
MAX_DENSE_SPACE = 1 << 22
HASH_CHUNK_DOCS = 16_384
MAX_COMBINATIONS = 1 << 62


def aggregate(work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext) -> list[pa.Array]:
    """Return the state columns of the aggregates, each of one row."""
    accumulators = accumulators_of(work, columns, 1)
    for chunk in docs.chunks(columns, null_handling=work.null_handling, shared=work.shared):
        context.cancel.check()
        for accumulator in accumulators:
            accumulator.add(chunk, None)
    row = np.zeros(1, np.int64)
    return [state for accumulator in accumulators for state in accumulator.states(row)]


def group(
    work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext, mapped: Mapping[Expr, GroupKey]
) -> list[pa.Array]:
    """Return key columns, then state columns, with a row per group. `mapped` holds the keys that tasks share."""
    keys = [key_of(expr, columns, null_handling=work.null_handling, mapped=mapped) for expr in work.keys]
    if any(expr.type.is_array for expr in work.keys) or any(isinstance(key, ValueKey) for key in keys):
        return _group_encoded(work, columns, docs, context, keys)
    packing = Packing([key.cardinality for key in keys])
    if packing.space <= SMALL_SPACE or packing.space <= min(2 * docs.count, MAX_DENSE_SPACE):
        return _group_dense(work, columns, docs, context, keys)
    return _group_hashed(work, columns, docs, context, keys)


def accumulators_of(
    work: LeafWork, columns: Columns, num_groups: int
) -> Sequence[Accumulator | SumPlusConstant | StateAccumulator]:
    stored = columns.stored_states
    if stored is None:
        return accumulators(work, num_groups, columns)
    pairs = zip(work.aggregations, stored, strict=True)
    return [StateAccumulator(aggregation, num_groups, states_of) for aggregation, states_of in pairs]


def pack(keys: Sequence[GroupKey], packing: Packing, chunk: Chunk, out: NDArray[Any]) -> NDArray[Any]:
    """Pack the keys of each row into words (W, N) of out's dtype. `out` is scratch memory with room for them."""
    words = out[: packing.width * chunk.num_rows].reshape(packing.width, chunk.num_rows)
    for key, (word, radix) in zip(keys, packing.places, strict=True):
        key.append(chunk, radix, words[word])
    return words


def _group_dense(
    work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext, keys: list[GroupKey]
) -> list[pa.Array]:
    packing = Packing([key.cardinality for key in keys])
    accumulators = accumulators_of(work, columns, packing.space)
    rows = next((candidate for candidate in accumulators if candidate.rows_by_group is not None), None)
    present = np.zeros(packing.space, np.uint8) if rows is None else None
    scratch = np.zeros(min(CHUNK_DOCS, docs.count), np.uint32)
    for chunk in docs.chunks(columns, null_handling=work.null_handling, shared=work.shared):
        context.cancel.check()
        groups = pack(keys, packing, chunk, scratch)[0]
        if present is not None:
            kernels.mark(groups, present)
        for accumulator in accumulators:
            accumulator.add(chunk, groups)
    counted = present if rows is None else rows.rows_by_group
    assert counted is not None
    occurring = np.flatnonzero(counted)
    packed = occurring.astype(np.uint64).reshape(-1, 1)
    return finish(keys, packing, packed, accumulators, occurring, context)


def _group_hashed(
    work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext, keys: list[GroupKey]
) -> list[pa.Array]:
    packing = Packing([key.cardinality for key in keys])
    table = GroupTable(packing.width, docs.count)
    accumulators = accumulators_of(work, columns, 1024)
    scratch = np.zeros(packing.width * HASH_CHUNK_DOCS, np.uint64)
    for chunk in docs.chunks(columns, null_handling=work.null_handling, max_docs=HASH_CHUNK_DOCS, shared=work.shared):
        context.cancel.check()
        groups = table.assign(pack(keys, packing, chunk, scratch))
        check_groups(context.limits, table.num_groups)
        for accumulator in accumulators:
            accumulator.grow(table.num_groups)
            accumulator.add(chunk, groups)
    result = finish(keys, packing, table.keys(), accumulators, np.arange(table.num_groups), context)
    table.close()
    return result


def _group_encoded(
    work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext, keys: list[GroupKey]
) -> list[pa.Array]:
    """Group by keys that have codes only once all rows are seen, or that have several values in a row, which then
    counts in several groups."""
    every = Chunk(columns, 0, 0, docs.docs(), null_handling=work.null_handling, shared=work.shared)
    encoded = [_encoded(key, expr, every) for key, expr in zip(keys, work.keys, strict=True)]
    packing = Packing([key.cardinality for key in keys])
    table = GroupTable(packing.width, every.num_rows)
    accumulators = accumulators_of(work, columns, 1024)
    for rows, positions in _blocks(every.num_rows, [None if key is None else key.offsets for key in encoded]):
        context.cancel.check()
        chunk = every.at(rows)
        words = np.zeros((packing.width, len(rows)), np.uint64)
        for number, (key, (word, radix)) in enumerate(zip(keys, packing.places, strict=True)):
            column = encoded[number]
            if column is None:
                key.append(chunk, radix, words[word])
            else:
                kernels.append_key(read_only(column.codes[positions.get(number, rows)]), radix, words[word])
        groups = table.assign(words)
        check_groups(context.limits, table.num_groups)
        for accumulator in accumulators:
            accumulator.grow(table.num_groups)
            accumulator.add(chunk, groups)
    result = finish(keys, packing, table.keys(), accumulators, np.arange(table.num_groups), context)
    table.close()
    return result


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Codes of a key for all rows. If rows have several values: codes of all values, with the offsets of each row's
    values."""

    codes: NDArray[Any]
    offsets: NDArray[np.int64] | None


def _encoded(key: GroupKey, expr: Expr, every: Chunk) -> _Encoded | None:
    """Return the codes of a key for all rows; None if the key can compute the codes of any chunk."""
    if not expr.type.is_array:
        return _counted(_Encoded(key.encode_rows(every), None)) if isinstance(key, ValueKey) else None
    if not isinstance(expr, Column):
        assert isinstance(key, ValueKey)
        return _counted(_encoded_lists(key, evaluate(expr, every).spread(every.num_rows)))
    reader = every.columns.reader(expr.name)
    offsets, positions = every.multi_values(reader)
    if isinstance(key, DictionaryKey):
        return _counted(_Encoded(reader.dict_ids()[positions], offsets))
    assert isinstance(key, ValueKey)
    if reader.dictionary is not None:
        values = reader.dictionary.arrow().take(pa.array(reader.dict_ids()[positions]))
    elif reader.type.value in ("STRING", "JSON", "BYTES", "BIG_DECIMAL"):
        values = reader.strings().take(pa.array(positions))
    else:
        values = pa.array(reader.values()[positions])
    nulls = every.visible_nulls(expr.name)
    if nulls is not None:
        present = pa.array(~np.repeat(nulls, np.diff(offsets)))
        values = pc.if_else(present, values, pa.scalar(None, values.type))
    return _counted(_Encoded(key.encode(values.cast(arrow_type(SqlType(reader.type)))), offsets))


def _counted(encoded: _Encoded) -> _Encoded:
    """Charge the codes to the query's memory until it ends."""
    account.current().hold("keys of rows", encoded.codes.nbytes)
    return encoded


def _encoded_lists(key: ValueKey, lists: Vector) -> _Encoded:
    """Encode an expression whose values are lists. A null list counts as one null; a row with an empty list is in no
    group."""
    data = lists.data
    if lists.nulls is not None:
        data = pc.if_else(pa.array(lists.nulls), pa.scalar([None], data.type), data)
    offsets = np.concatenate([[0], np.cumsum(np.diff(data.offsets.to_numpy().astype(np.int64)))])
    return _Encoded(key.encode(data.flatten().cast(arrow_type(SqlType(lists.type.base)))), offsets)


Offsets = NDArray[np.int64]


def _blocks(
    num_rows: int, offsets: Sequence[Offsets | None]
) -> Iterator[tuple[NDArray[np.int64], dict[int, NDArray[np.int64]]]]:
    """Yield all combinations of the values of rows, in blocks: the rows, and for each column with offsets, by its
    number, the positions of the values."""
    lists = {number: starts for number, starts in enumerate(offsets) if starts is not None}
    lengths = {number: np.diff(starts) for number, starts in lists.items()}
    # Floats do not wrap around.
    if np.prod([length.astype(np.float64) for length in lengths.values()], axis=0).sum() >= MAX_COMBINATIONS:
        raise LimitExceededError("rows have too many combinations of values of multi-value keys")
    per_row = np.ones(num_rows, np.int64)
    for length in lengths.values():
        per_row *= length
    ends = np.cumsum(per_row)
    total = int(ends[-1]) if num_rows else 0
    for start in range(0, total, HASH_CHUNK_DOCS):
        at = np.arange(start, min(start + HASH_CHUNK_DOCS, total))
        rows = np.searchsorted(ends, at, "right") if lists else at
        within = at - (ends[rows] - per_row[rows])
        positions: dict[int, NDArray[np.int64]] = {}
        for number in reversed(lists):
            within, position = np.divmod(within, lengths[number][rows])
            positions[number] = lists[number][rows] + position
        yield rows, positions


def finish(
    keys: Sequence[GroupKey],
    packing: Packing,
    packed: NDArray[np.uint64],
    accumulators: Sequence[Accumulator | SumPlusConstant | StateAccumulator],
    groups: NDArray[np.int64],
    context: ExecutionContext,
) -> list[pa.Array]:
    """Return the key columns of packed keys (G, W), then the state columns of their groups."""
    check_groups(context.limits, len(groups))
    values = [key.values(codes) for key, codes in zip(keys, packing.codes(packed), strict=True)]
    account.current().hold("keys of groups", packed.nbytes + sum([column.nbytes for column in values]))
    return values + [state for accumulator in accumulators for state in accumulator.states(groups)]
