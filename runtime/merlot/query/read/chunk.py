"""Docs of a segment that are evaluated at once, with their values: the input of expressions and aggregates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.functions.source import Coded
from merlot.kernels.take import look_up, take, take_bits, take_look_up
from merlot.query.read.columns import Columns
from merlot.segment.reader import Reader, ScaledReader
from merlot.tree.nodes import Expr
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.runs import ends_of, rows_of_runs
from merlot.vectors.vector import DTYPES, Vector, from_arrow, narrowed, numbers_of, values_at

Docs = NDArray[np.uint32]
FEW_DIVISOR: Final = 16
"""Divisor of a column's number of docs: a chunk with fewer rows than the quotient parses only its own texts."""


class Chunk:
    """Docs [start, stop) if docs is None, else the listed docs (a doc may be listed more than once)."""

    def __init__(
        self,
        columns: Columns,
        start: int,
        stop: int,
        docs: Docs | None = None,
        *,
        null_handling: bool = False,
        shared: Iterable[Expr] = (),
    ) -> None:
        """`shared` are expressions that are used more than once, so their values are cached."""
        self.columns = columns
        self.start = start
        self.stop = stop
        self.docs = docs
        self.num_rows = stop - start if docs is None else len(docs)
        self._null_handling = null_handling
        self.remembered: dict[Expr, Vector | None] = dict.fromkeys(shared)

    def at(self, rows: NDArray[np.int64]) -> Chunk:
        """Return the chunk of the rows at these positions, some of which may be repeated."""
        docs = (rows + self.start).astype(np.uint32) if self.docs is None else self.docs[rows]
        null_handling, shared = self._null_handling, self.remembered
        return Chunk(self.columns, self.start, self.stop, docs, null_handling=null_handling, shared=shared)

    def doc_ids(self) -> Docs:
        """Return the docs as a list."""
        return np.arange(self.start, self.stop, dtype=np.uint32) if self.docs is None else self.docs

    def column(self, name: str, type_: SqlType) -> Vector:
        """Return the values of a column; nulls only with null handling."""
        reader = self.columns.reader(name)
        nulls = self.visible_nulls(name)
        data = self._lists(reader) if reader.multi_value else self._values(reader)
        return Vector(type_, data, nulls)

    def coded(self, name: str) -> Coded | None:
        """Return the column by dict ids; None if it has no dictionary, or more than one value for every two rows."""
        reader = self.columns.reader(name)
        dictionary = None if reader.multi_value else reader.dictionary
        if dictionary is None or 2 * len(dictionary) > self.num_rows:
            return None
        values = from_arrow(SqlType(reader.type), dictionary.arrow())
        return Coded(values, self.dict_ids(reader), self.visible_nulls(name))

    def visible_nulls(self, name: str) -> NDArray[np.bool_] | None:
        """Return the mask of null rows; None if no row is null, or without null handling."""
        return self.nulls(name) if self._null_handling else None

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        """Return the mask of null rows; None if no row is null."""
        words = self.columns.reader(name).nulls
        if words is None:
            return None
        out = np.empty(self.num_rows, np.bool_)
        take_bits(words, self.doc_ids(), out)
        return out if out.any() else None

    def dict_ids(self, reader: Reader) -> NDArray[Any]:
        """Return the dict ids of a single-value dictionary column: a slice, or gathered in the column's width."""
        return self._gather(reader.dict_ids())

    def _gather(self, values: NDArray[Any]) -> NDArray[Any]:
        if self.docs is None:
            return values[self.start : self.stop]
        out = np.empty(self.num_rows, values.dtype)
        take(values, self.docs, out)
        return out

    def _values(self, reader: Reader) -> Any:
        if reader.type is TypeName.BIG_DECIMAL:
            return self._decimals(reader)
        return self._stored(reader)

    def _decimals(self, reader: Reader) -> Any:
        """Return the numbers of a BIG_DECIMAL column. If the chunk has few rows, only their texts are parsed, unless
        the column has a dictionary or is parsed already."""
        # An attribute check: isinstance of a protocol takes microseconds, for every chunk.
        is_scaled: bool | None = getattr(reader, "is_scaled", None)
        has_few_rows = reader.dictionary is None and self.num_rows * FEW_DIVISOR < self.columns.num_docs
        if is_scaled is None or (has_few_rows and not is_scaled):
            return numbers_of(self._stored(reader))
        numbers = cast(ScaledReader, reader).scaled()
        if numbers is None:
            return numbers_of(self._stored(reader))
        return numbers.with_values(self.gathered(reader, numbers.values))

    def _stored(self, reader: Reader) -> Any:
        dictionary = reader.dictionary
        if dictionary is None:
            if reader.type in DTYPES:
                return self._gather(reader.values()).astype(DTYPES[reader.type], copy=False)
            return self._texts(reader)
        numeric = dictionary.numeric
        if numeric is None:
            return narrowed(values_at(dictionary.arrow(), self.dict_ids(reader)))
        return self._looked_up(reader, numeric).astype(DTYPES[reader.type], copy=False)

    def gathered(self, reader: Reader, values: NDArray[Any]) -> NDArray[Any]:
        """Return the rows' values. `values` are by dict id, or by doc if the column has no dictionary."""
        return self._gather(values) if reader.dictionary is None else self._looked_up(reader, values)

    def _looked_up(self, reader: Reader, numeric: NDArray[Any]) -> NDArray[Any]:
        out = np.empty(self.num_rows, numeric.dtype)
        if self.docs is None:
            look_up(reader.dict_ids()[self.start : self.stop], numeric, out)
        else:
            take_look_up(reader.dict_ids(), numeric, self.docs, out)
        return out

    def _texts(self, reader: Reader) -> Any:
        whole = reader.strings()
        texts = whole.slice(self.start, self.num_rows) if self.docs is None else whole.take(pa.array(self.docs))
        return narrowed(texts)

    def _lists(self, reader: Reader) -> pa.Array:
        """Return a multi-value column's rows as Arrow lists."""
        offsets, rows = self.multi_values(reader)
        if reader.dictionary is not None:
            flat = reader.dictionary.arrow().take(pa.array(reader.dict_ids()[rows]))
        elif reader.type in DTYPES:
            flat = pa.array(reader.values()[rows])
        else:
            flat = reader.strings().take(pa.array(rows))
        if reader.type is TypeName.BOOLEAN:
            flat = flat.cast(pa.bool_())
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), narrowed(flat))

    def multi_values(self, reader: Reader) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return offsets, of shape (num_rows + 1,), and the positions in the column of all values of the rows. Row `k`
        has the positions [offsets[k], offsets[k + 1])."""
        starts = reader.offsets()
        docs = self.doc_ids().astype(np.int64)
        first = starts[docs].astype(np.int64)
        lengths = starts[docs + 1].astype(np.int64) - first
        offsets = ends_of(lengths)
        return offsets, rows_of_runs(first, offsets)
