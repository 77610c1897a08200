"""GROUP BY with keys that have codes only once all rows are seen, or that have several values in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.functions.evaluate import evaluate
from merlot.kernels import group as kernels
from merlot.kernels.jit import read_only
from merlot.query.context import check_groups
from merlot.query.operators.grouping.groups import HASH_CHUNK_DOCS, GroupTask, finish
from merlot.query.operators.grouping.keys import DictionaryKey, GroupKey, ValueKey
from merlot.query.read.chunk import Chunk
from merlot.tree.nodes import Column, Expr
from merlot.tree.types import SqlType
from merlot.vectors import account
from merlot.vectors.errors import LimitExceededError
from merlot.vectors.groups import GroupTable, Packing
from merlot.vectors.vector import Vector, arrow_type

MAX_COMBINATIONS = 1 << 62


def group(task: GroupTask, keys: Sequence[GroupKey]) -> list[pa.Array]:
    """Group by keys that have codes only once all rows are seen, or that have several values in a row. A row with
    several values counts in several groups."""
    work = task.work
    every = Chunk(task.columns, 0, 0, task.docs.docs(), null_handling=work.null_handling, shared=work.shared)
    encoded = [_encoded(key, expr, every) for key, expr in zip(keys, task.work.keys, strict=True)]
    packing = Packing([key.cardinality for key in keys])
    table = GroupTable(packing.width, every.num_rows)
    accumulators = task.accumulators(1024)
    for rows, positions in _blocks(every.num_rows, [None if key is None else key.offsets for key in encoded]):
        task.context.cancel.check()
        chunk = every.at(rows)
        words = np.zeros((packing.width, len(rows)), np.uint64)
        for number, (key, (word, radix)) in enumerate(zip(keys, packing.places, strict=True)):
            column = encoded[number]
            if column is None:
                key.append(chunk, radix, words[word])
            else:
                kernels.append_key(read_only(column.codes[positions.get(number, rows)]), radix, words[word])
        groups = table.assign(words)
        check_groups(task.context.limits, table.num_groups)
        for accumulator in accumulators:
            accumulator.grow(table.num_groups)
            accumulator.add(chunk, groups)
    result = finish(keys, packing, table.keys(), accumulators, np.arange(table.num_groups), task.context)
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
    """Charge the codes to the query's memory until the task ends."""
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
