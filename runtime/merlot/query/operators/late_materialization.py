"""Late materialization of ORDER BY … LIMIT with many columns: read the order keys of all rows, then the other columns
of the first rows alone.

A task that returns whole rows reads each column for its own first rows, most of which the merge drops: ten rows of
eight segments and 105 columns took 44 ms of one thread, and now take 15. For few rows a column is read value by value;
a segment's column is not decoded as a whole. Rows equal those of `selection` and the merge (`answer.combine`).
`keys_of` returns None for leaves that do not fit and leaves them to that code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.filter.docset import DocSet
from merlot.query.operators.order import order_table
from merlot.query.operators.selection import materialise, top_chunk
from merlot.query.plan.nodes import LeafKind, LeafWork
from merlot.query.read.columns import Columns, SegmentColumns
from merlot.segment.reader import Docs, Reader, RowReader
from merlot.tree.nodes import Column, Expr
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import DTYPES, arrow_type

MAX_ROWS: Final = 256
"""Most rows. More are read faster by whole columns."""
MIN_COLUMNS: Final = 8
"""Fewest columns beside the order keys. Fewer cost less than the work that is done twice."""
_TEXTS: Final = frozenset({TypeName.STRING, TypeName.JSON})
_NUMBERS: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.TIMESTAMP})


@dataclass(frozen=True, slots=True)
class Chosen:
    """First rows of one task: their order keys, in the slots of `keys_of`, and their docs."""

    keys: pa.Table
    columns: Columns
    docs: Docs


def keys_of(work: LeafWork) -> LeafWork | None:
    """Return the leaf's work with only its order keys as columns; None if its rows are better read at once."""
    return work.memo.cached(_make_keys, work)


def _make_keys(work: LeafWork) -> LeafWork | None:
    is_few = work.rows_needed <= MAX_ROWS and not work.null_handling
    if work.kind is not LeafKind.SELECTION or not work.order_by or not is_few:
        return None
    if len(work.columns) < MIN_COLUMNS + len(work.order_by) or not all(map(_is_plain, work.columns)):
        return None
    exprs = []
    order_by = []
    for number, key in enumerate(work.order_by):
        assert isinstance(key.expr, Column)
        exprs.append(work.columns[int(key.expr.name.removeprefix("c"))])
        order_by.append(replace(key, expr=Column(f"c{number}", key.expr.type)))
    return replace(work, columns=tuple(exprs), order_by=tuple(order_by))


def _is_plain(expr: Expr) -> bool:
    if not isinstance(expr, Column) or expr.type.is_array or expr.name.startswith("$"):
        return False
    return expr.type.base in _NUMBERS or expr.type.base in _TEXTS


def choose(keys: LeafWork, columns: Columns, docs: DocSet) -> Chosen:
    """Select the first rows of some docs. `keys` is the work that `keys_of` returned."""
    chunk = top_chunk(keys, columns, docs)
    return Chosen(pa.Table.from_arrays(materialise(keys, chunk), schema=keys.partial_schema), columns, chunk.doc_ids())


def rows(
    work: LeafWork, keys: LeafWork, chosen: Sequence[Chosen], order: Sequence[tuple[str, SqlType, bool, bool]]
) -> pa.Table:
    """Return the first rows of all tasks, in order, as a table of `work.partial_schema`. `order` refers to the slots of
    `keys`."""
    first = order_table(pa.concat_tables([selection.keys for selection in chosen]), order, work.rows_needed)
    starts = np.cumsum([0, *(len(selection.docs) for selection in chosen)])
    tasks = np.searchsorted(starts, first, side="right") - 1
    docs = np.concatenate([selection.docs for selection in chosen])[first]
    parts = [
        (selection.columns, np.flatnonzero(tasks == number))
        for number, selection in enumerate(chosen)
        if np.any(tasks == number)
    ]
    arrays = []
    for expr in work.columns:
        assert isinstance(expr, Column)
        read = _read_texts if expr.type.base in _TEXTS else _read_numbers
        arrays.append(read(expr, [(_reader(columns, expr.name), rows, docs[rows]) for columns, rows in parts]))
    return pa.Table.from_arrays(arrays, schema=work.partial_schema)


@dataclass(frozen=True, slots=True)
class _ValuesAtDocs:
    """Functions that read values at docs; of a segment's column they do so without decoding the other values."""

    reader: Reader
    dict_ids: Callable[[Docs], NDArray[Any]]
    values: Callable[[Docs], NDArray[Any]]


def _reader(columns: Columns, name: str) -> _ValuesAtDocs:
    reader = columns.reader(name)
    if isinstance(columns, SegmentColumns):
        row_reader: RowReader = reader  # type: ignore[assignment]  # every reader of a segment's column is a RowReader
        return _ValuesAtDocs(reader, row_reader.take_dict_ids, row_reader.take_values)
    return _ValuesAtDocs(reader, lambda docs: reader.dict_ids()[docs], lambda docs: reader.values()[docs])


_Part = tuple[_ValuesAtDocs, NDArray[np.int64], Docs]
"""Reader, rows of the answer, and their docs."""


def _read_numbers(expr: Column, parts: Sequence[_Part]) -> pa.Array:
    num_rows = sum([len(docs) for _, _, docs in parts])
    out = np.empty(num_rows, DTYPES[expr.type.base])
    for taken, at, docs in parts:
        dictionary = taken.reader.dictionary
        if dictionary is None:
            out[at] = taken.values(docs)
        else:
            assert dictionary.numeric is not None
            out[at] = dictionary.numeric[taken.dict_ids(docs)]
    return pa.array(out, arrow_type(expr.type))


def _read_texts(expr: Column, parts: Sequence[_Part]) -> pa.Array:
    num_rows = sum([len(docs) for _, _, docs in parts])
    out = [""] * num_rows
    for taken, at, docs in parts:
        dictionary = taken.reader.dictionary
        texts = taken.reader.strings() if dictionary is None else dictionary.arrow()
        positions = docs if dictionary is None else taken.dict_ids(docs)
        for row, position in zip(at.tolist(), positions.tolist(), strict=True):
            out[row] = texts[position].as_py()
    return pa.array(out, arrow_type(expr.type))
