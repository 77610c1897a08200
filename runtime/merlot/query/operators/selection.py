"""Selected rows of one segment: order keys for all matching docs, the other columns only for rows that stay."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.functions.evaluate import evaluate
from merlot.query.filter.docset import DocSet
from merlot.query.operators.order import Keys, Rows, first_rows, sort_keys, text_ranks
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns
from merlot.segment.index.dictionary import OrderedDictionary, ValueDictionary
from merlot.segment.reader import Reader
from merlot.tree.nodes import Column, OrderKey
from merlot.tree.types import LONG
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import Vector


def select_first(work: LeafWork, columns: Columns, docs: DocSet, num_rows: int) -> list[pa.Array]:
    """Return the first num_rows matching docs, in the segment's order."""
    listed = _first_docs(docs, num_rows)
    return materialise(work, Chunk(columns, 0, 0, listed, null_handling=work.null_handling))


def select_top(work: LeafWork, columns: Columns, docs: DocSet) -> list[pa.Array]:
    """Return the rows that come first by ORDER BY, at most limit + offset."""
    return materialise(work, top_chunk(work, columns, docs))


def top_chunk(work: LeafWork, columns: Columns, docs: DocSet) -> Chunk:
    """Return the docs of `select_top`, in order."""
    chunk = _whole(docs, columns, work)
    keys = [partial(_sort_keys, work, key, chunk) for key in work.order_by]
    return chunk.at(first_rows(keys, chunk.num_rows, work.rows_needed))


def materialise(work: LeafWork, chunk: Chunk) -> list[pa.Array]:
    """Return the slots c0, c1, … of a chunk."""
    spending, made = account.current(), []
    for expr in work.columns:
        column = evaluate(expr, chunk).to_arrow(chunk.num_rows)
        spending.hold("selected rows", column.nbytes)
        made.append(column)
    return made


def _sort_keys(work: LeafWork, key: OrderKey, every: Chunk, rows: Rows | None) -> list[Keys]:
    """Return sort keys: dict ids, or ranks of the dictionary's entries, if the column has a dictionary; else values."""
    chunk = every if rows is None else every.at(rows)
    assert isinstance(key.expr, Column)
    expr = work.columns[int(key.expr.name.removeprefix("c"))]
    if isinstance(expr, Column):
        reader = chunk.columns.reader(expr.name)
        ranks = None if reader.dictionary is None else _ranks(chunk, reader, reader.dictionary)
        if ranks is not None:
            vector = Vector(LONG, ranks, chunk.visible_nulls(expr.name))
            return sort_keys(vector, ascending=key.ascending, nulls_last=key.nulls_last)
    vector = evaluate(expr, chunk).spread(chunk.num_rows)
    return sort_keys(vector, ascending=key.ascending, nulls_last=key.nulls_last)


def _ranks(chunk: Chunk, reader: Reader, dictionary: ValueDictionary) -> NDArray[Any] | None:
    """Return whole numbers in the order of the rows' values; None if the dictionary is of no help."""
    if isinstance(dictionary, OrderedDictionary):
        return chunk.dict_ids(reader) if _orders_like_values(dictionary, reader.type) else None
    if dictionary.numeric is not None or len(dictionary) > chunk.num_rows:
        return None
    ranks = text_ranks(dictionary.arrow(), is_decimal=reader.type is TypeName.BIG_DECIMAL)
    return np.asarray(ranks[chunk.dict_ids(reader)])


def _orders_like_values(dictionary: OrderedDictionary, type_: TypeName) -> bool:
    """Return whether dict ids order rows as values do: two zeros are equal, and a BOOLEAN may be any number."""
    if type_ not in (TypeName.FLOAT, TypeName.DOUBLE):
        return type_ is not TypeName.BOOLEAN
    first, last = dictionary.range_of(0.0, 0.0, True, True)
    return last - first < 2


def _whole(docs: DocSet, columns: Columns, work: LeafWork) -> Chunk:
    if len(docs.pieces) == 1 and docs.pieces[0].is_span:
        piece = docs.pieces[0]
        return Chunk(columns, piece.start, piece.stop, null_handling=work.null_handling)
    return Chunk(columns, 0, 0, docs.docs(), null_handling=work.null_handling)


def _first_docs(docs: DocSet, num_rows: int) -> NDArray[np.uint32]:
    if len(docs.pieces) == 1 and docs.pieces[0].is_span:
        piece = docs.pieces[0]
        return np.arange(piece.start, min(piece.stop, piece.start + num_rows), dtype=np.uint32)
    return docs.docs()[:num_rows]
