"""ORDER BY … LIMIT of many columns: order keys of all rows first, the other columns of the few rows that stay.

A task that hands over whole rows reads each column for its own first rows, of which the merge drops most: ten rows of
eight segments and 105 columns took 44 ms of one thread, and take 15. A column of few rows is read value by value, of a
segment without decoding the others. Rows are those of `selection` and the merge (`answer.combine`), to which `keys_of`
leaves what does not fit by returning None.
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
"""More are read faster by whole columns."""
MIN_COLUMNS: Final = 8
"""Fewer cost less than what is done twice."""
_MEMO: Final = "late_rows"
_TEXTS: Final = frozenset({TypeName.STRING, TypeName.JSON})
_NUMBERS: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.TIMESTAMP})


@dataclass(frozen=True, slots=True)
class Chosen:
    """The first rows of one task: their order keys, slots of `keys_of`, and where they are."""

    keys: pa.Table
    columns: Columns
    docs: Docs


def keys_of(work: LeafWork) -> LeafWork | None:
    """The leaf's work with its order keys for columns; None if its rows are better read at once. Made once per plan."""
    if _MEMO not in work.memo:
        work.memo[_MEMO] = _make_keys(work)
    made: LeafWork | None = work.memo[_MEMO]
    return made


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
    return replace(work, columns=tuple(exprs), order_by=tuple(order_by), memo={})


def _is_plain(expr: Expr) -> bool:
    if not isinstance(expr, Column) or expr.type.is_array or expr.name.startswith("$"):
        return False
    return expr.type.base in _NUMBERS or expr.type.base in _TEXTS


def choose(keys: LeafWork, columns: Columns, docs: DocSet) -> Chosen:
    """The first rows of some docs, by `keys_of` the leaf."""
    chunk = top_chunk(keys, columns, docs)
    return Chosen(pa.Table.from_arrays(materialise(keys, chunk), schema=keys.partial_schema), columns, chunk.doc_ids())


def rows(
    work: LeafWork, keys: LeafWork, chosen: Sequence[Chosen], order: Sequence[tuple[str, SqlType, bool, bool]]
) -> pa.Table:
    """The first rows of all tasks, in order, of the leaf's `partial_schema`; order: of the keys' slots."""
    first = order_table(pa.concat_tables([one.keys for one in chosen]), order, work.rows_needed)
    starts = np.cumsum([0, *(len(one.docs) for one in chosen)])
    tasks = np.searchsorted(starts, first, side="right") - 1
    docs = np.concatenate([one.docs for one in chosen])[first]
    parts = [
        (one.columns, np.flatnonzero(tasks == number)) for number, one in enumerate(chosen) if np.any(tasks == number)
    ]
    arrays = []
    for expr in work.columns:
        assert isinstance(expr, Column)
        read = _read_texts if expr.type.base in _TEXTS else _read_numbers
        arrays.append(read(expr, [(_reader(columns, expr.name), rows, docs[rows]) for columns, rows in parts]))
    return pa.Table.from_arrays(arrays, schema=work.partial_schema)


@dataclass(frozen=True, slots=True)
class _Taken:
    """How values at docs are read: of a segment's column without decoding the others."""

    reader: Reader
    dict_ids: Callable[[Docs], NDArray[Any]]
    values: Callable[[Docs], NDArray[Any]]


def _reader(columns: Columns, name: str) -> _Taken:
    reader = columns.reader(name)
    if isinstance(columns, SegmentColumns):
        row_reader: RowReader = reader  # type: ignore[assignment]  # of a segment's columns every reader is one
        return _Taken(reader, row_reader.take_dict_ids, row_reader.take_values)
    return _Taken(reader, lambda docs: reader.dict_ids()[docs], lambda docs: reader.values()[docs])


_Part = tuple[_Taken, NDArray[np.int64], Docs]
"""A reader, rows of the answer and their docs."""


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
        places = docs if dictionary is None else taken.dict_ids(docs)
        for row, place in zip(at.tolist(), places.tolist(), strict=True):
            out[row] = texts[place].as_py()
    return pa.array(out, arrow_type(expr.type))
