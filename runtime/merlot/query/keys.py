"""Group keys of one segment: a small number per row, and the values behind the numbers.

A single-value dictionary column gives its dict ids; an expression over one gives the ids of its distinct results; whole
numbers of a narrow range their distance from the smallest; everything else is encoded by value, which needs all rows at
once. With null handling, null has the code after the last.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.bounds import bounds_of
from merlot.query.chunk import Chunk
from merlot.query.columns import Columns, Reader
from merlot.query.context import QueryArithmeticError
from merlot.query.encoding import encode
from merlot.query.evaluate import ValueSource, evaluate
from merlot.query.expressions import columns_of
from merlot.query.vector import INTEGERS, Vector, arrow_type
from merlot.spec.types import TypeName
from merlot.sql.tree import Column, Expr
from merlot.sql.types import SqlType

NARROW_RANGE = 1 << 16


class Key(Protocol):
    """Codes of one group key."""

    needs_all_rows: bool
    """Whether codes of different chunks cannot be compared: the whole task must be one chunk."""

    @property
    def cardinality(self) -> int:
        """Codes are below it; of a key that needs all rows, valid after `codes`."""
        ...

    def codes(self, chunk: Chunk) -> NDArray[Any]: ...
    def values(self, codes: NDArray[np.int64]) -> pa.Array: ...


def key_of(expr: Expr, columns: Columns, *, null_handling: bool) -> Key:
    """The cheapest kind of key for an expression in a segment."""
    names = columns_of(expr)
    if len(names) == 1:
        reader = columns.reader(next(iter(names)))
        if reader.dictionary is not None and not (null_handling and reader.nulls is not None):
            if isinstance(expr, Column):
                return DictionaryKey(reader, SqlType(reader.type))
            if not reader.multi_value and reader.nulls is None:
                with contextlib.suppress(QueryArithmeticError):
                    # An error of a value may be of none of the rows that the filter keeps.
                    return MappedKey(expr, reader)
    if expr.type.base in INTEGERS and not expr.type.is_array and not null_handling:
        low, high = bounds_of(expr, columns)
        if high - low < NARROW_RANGE:
            return NarrowKey(expr, low, high - low + 1)
    return ValueKey(expr)


class DictionaryKey:
    """A dictionary column; of a multi-value one, codes are those of `exploded` rows."""

    needs_all_rows = False

    def __init__(self, reader: Reader, type_: SqlType) -> None:
        assert reader.dictionary is not None
        self.reader = reader
        self.cardinality = len(reader.dictionary)
        self._dictionary = reader.dictionary
        self._type = type_

    def codes(self, chunk: Chunk) -> NDArray[Any]:
        return chunk.dict_ids(self.reader)

    def values(self, codes: NDArray[np.int64]) -> pa.Array:
        numeric = self._dictionary.numeric
        if numeric is not None:
            taken = numeric[codes]
            return pa.array(taken != 0 if self._type.base is TypeName.BOOLEAN else taken, arrow_type(self._type))
        values = self._dictionary.arrow().take(pa.array(codes))
        wanted = arrow_type(self._type)
        return values if values.type == wanted else values.cast(wanted)


class MappedKey:
    """An expression over one dictionary column, evaluated once per dict id."""

    needs_all_rows = False

    def __init__(self, expr: Expr, reader: Reader) -> None:
        assert reader.dictionary is not None
        values = reader.dictionary.arrow()
        result = evaluate(expr, ValueSource(reader.type, values)).to_arrow(len(values))
        _, first, mapping = np.unique(encode(result).codes, return_index=True, return_inverse=True)
        self._reader = reader
        self._values = result.take(pa.array(first))
        self._mapping = mapping.astype(np.uint32)
        self.cardinality = len(first)

    def codes(self, chunk: Chunk) -> NDArray[Any]:
        return np.asarray(self._mapping[chunk.dict_ids(self._reader)])

    def values(self, codes: NDArray[np.int64]) -> pa.Array:
        return self._values.take(pa.array(codes))


class NarrowKey:
    """Whole numbers in [low, low + cardinality)."""

    needs_all_rows = False

    def __init__(self, expr: Expr, low: int, cardinality: int) -> None:
        self._expr = expr
        self._low = low
        self.cardinality = cardinality

    def codes(self, chunk: Chunk) -> NDArray[Any]:
        values = evaluate(self._expr, chunk).spread(chunk.num_rows).data
        return np.asarray(values.astype(np.int64) - self._low, np.uint32)

    def values(self, codes: NDArray[np.int64]) -> pa.Array:
        data = codes + self._low
        type_ = arrow_type(self._expr.type)
        return pa.array(data != 0, type_) if pa.types.is_boolean(type_) else pa.array(data).cast(type_)


@dataclass(slots=True)
class ValueKey:
    """Any expression, by value; null is a value."""

    expr: Expr
    needs_all_rows: bool = True
    cardinality: int = 1
    _values: Any = field(default=None)

    def codes(self, chunk: Chunk) -> NDArray[Any]:
        vector: Vector = evaluate(self.expr, chunk)
        return self.encode(vector.to_arrow(chunk.num_rows))

    def encode(self, values: pa.Array) -> NDArray[Any]:
        """Codes of values at hand."""
        _, first, codes = np.unique(encode(values).codes, return_index=True, return_inverse=True)
        self._values = values.take(pa.array(first))
        self.cardinality = max(1, len(first))
        return np.asarray(codes, np.uint32)

    def values(self, codes: NDArray[np.int64]) -> pa.Array:
        return self._values.take(pa.array(codes))
