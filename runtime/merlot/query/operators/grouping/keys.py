"""Group keys of one segment: a code per row, and the values behind the codes.

Codes of a dictionary column are its dict ids, codes of an expression over a single-value dictionary column are the ids
of its distinct results. Without null handling, codes of other whole numbers are their distances from the smallest, and
codes of other floats are their bits. All other keys are encoded by value, which needs all rows at once. With null
handling, null is a value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import CorruptionError
from merlot.functions.evaluate import evaluate
from merlot.functions.source import ValueSource
from merlot.kernels import group as kernels
from merlot.kernels.jit import read_only
from merlot.query.bounds import bounds_of
from merlot.query.plan.expressions import columns_of
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns, has_both_zeros
from merlot.segment.reader import Reader
from merlot.tree.nodes import Column, Expr
from merlot.tree.types import BIG_DECIMAL, SqlType
from merlot.values.types import TypeName
from merlot.vectors.encoding import Encoded, encode, group_rows, one_zero, with_one_zero
from merlot.vectors.errors import QueryArithmeticError
from merlot.vectors.partitioned import Run
from merlot.vectors.scaled import Scaled, bounded
from merlot.vectors.vector import INTEGERS, Vector, arrow_type

T = TypeVar("T")
R = TypeVar("R")

_BITS: dict[TypeName, Any] = {TypeName.FLOAT: np.uint32, TypeName.DOUBLE: np.uint64}
LEAST_MAPPED: Final = 1 << 14
"""Fewest distinct values for which tasks share the results of an expression."""
VALUES_PER_PIECE: Final = 1 << 14
Keys = NDArray[Any]
Words = NDArray[np.uint64]


class GroupKey(Protocol):
    """Codes of one group key."""

    @property
    def cardinality(self) -> int:
        """Upper bound of the codes, exclusive."""
        ...

    def append(self, chunk: Chunk, radix: int, keys: Keys) -> None:
        """Set keys[k] = keys[k] * radix + the code of row k; radix 0 starts anew."""
        ...

    def values(self, codes: Words) -> pa.Array: ...


_NONE: Final[Mapping[Expr, GroupKey]] = {}


def _one_by_one(work: Callable[[T], R], items: Sequence[T], /) -> list[R]:
    return [work(item) for item in items]


def key_of(expr: Expr, columns: Columns, *, null_handling: bool, mapped: Mapping[Expr, GroupKey] = _NONE) -> GroupKey:
    """Return the cheapest kind of key for an expression in a segment; a ValueKey for multi-value columns without ids.

    `mapped` holds keys that `mapped_keys` has made."""
    if mapped and expr in mapped:
        return mapped[expr]
    names = columns_of(expr)
    if len(names) == 1:
        key = _by_dictionary(expr, columns.reader(next(iter(names))), null_handling)
        if key is not None:
            return key
    if not expr.type.is_array and not null_handling:
        if expr.type.base in INTEGERS:
            return WholeKey(expr, *bounds_of(expr, columns))
        if expr.type.base in _BITS:
            return FloatKey(expr)
    return ValueKey(expr)


def applies_function(expr: Expr, columns: Columns) -> bool:
    """Return True if `key_of` would apply a function to each distinct value of a column."""
    names = columns_of(expr)
    if isinstance(expr, Column) or len(names) != 1:
        return False
    reader = columns.reader(next(iter(names)))
    return reader.dictionary is not None and _is_mapped(expr, reader)


def mapped_keys(exprs: Sequence[Expr], columns: Columns, run: Run, *, null_handling: bool) -> Mapping[Expr, GroupKey]:
    """Return the keys that apply a function to each of many dict ids, computed by several threads, for several
    tasks."""
    mapped: dict[Expr, GroupKey] = {}
    for expr in exprs:
        names = columns_of(expr)
        reader = columns.reader(next(iter(names))) if len(names) == 1 and not isinstance(expr, Column) else None
        if reader is None or reader.dictionary is None or len(reader.dictionary) < LEAST_MAPPED:
            continue
        key = _by_dictionary(expr, reader, null_handling, run)
        if key is not None:
            mapped[expr] = key
    return mapped


def _is_mapped(expr: Expr, reader: Reader) -> bool:
    """Return True if an expression over a dictionary column has a single value for each dict id."""
    has_nulls = reader.nulls is not None and not isinstance(expr, Column)
    return not (reader.multi_value or expr.type.is_array or has_nulls)


def _by_dictionary(expr: Expr, reader: Reader, null_handling: bool, run: Run = _one_by_one) -> GroupKey | None:
    if reader.dictionary is None or (null_handling and reader.nulls is not None):
        return None
    if isinstance(expr, Column) and not has_both_zeros(reader.dictionary):
        return DictionaryKey(reader, SqlType(reader.type))
    if not _is_mapped(expr, reader):
        return None
    with contextlib.suppress(QueryArithmeticError):
        # The value that raised may belong to no row that the filter keeps.
        return MappedKey(expr, reader, run)
    return None


class DictionaryKey:
    """Key of a dictionary column. If it is multi-value, each value counts as a row."""

    def __init__(self, reader: Reader, type_: SqlType) -> None:
        assert reader.dictionary is not None
        self.reader = reader
        self.cardinality = len(reader.dictionary)
        self._dictionary = reader.dictionary
        self._type = type_

    def append(self, chunk: Chunk, radix: int, keys: Keys) -> None:
        ids = self.reader.dict_ids()
        if chunk.docs is None:
            kernels.append_key(ids[chunk.start : chunk.stop], radix, keys)
        else:
            kernels.take_append_key(ids, radix, chunk.docs, keys)

    def values(self, codes: Words) -> pa.Array:
        numeric = self._dictionary.numeric
        wanted = arrow_type(self._type)
        if numeric is not None:
            taken = numeric[codes.astype(np.int64)]
            if self._type.base is TypeName.BOOLEAN:
                return pa.array(taken != 0, wanted)
            return pa.array(taken + 0.0 if taken.dtype.kind == "f" else taken, wanted)
        values = self._dictionary.arrow().take(pa.array(codes))
        return values if values.type == wanted else values.cast(wanted)


class MappedKey:
    """Key of an expression over one dictionary column, evaluated once per dict id. Any thread."""

    def __init__(self, expr: Expr, reader: Reader, run: Run) -> None:
        assert reader.dictionary is not None
        values = reader.dictionary.arrow()
        starts = range(0, max(1, len(values)), VALUES_PER_PIECE)
        result = pa.concat_arrays(
            run(lambda start: _result(expr, reader, values[start : start + VALUES_PER_PIECE]), starts)
        )
        groups = group_rows([result], len(values))
        self._reader = reader
        self._values = result.take(pa.array(groups.first_rows))
        self._mapping = groups.of_rows
        self.cardinality = max(1, len(groups))

    def append(self, chunk: Chunk, radix: int, keys: Keys) -> None:
        kernels.append_key(read_only(self._mapping[chunk.dict_ids(self._reader)]), radix, keys)

    def values(self, codes: Words) -> pa.Array:
        return self._values.take(pa.array(codes))


def _result(expr: Expr, reader: Reader, values: pa.Array) -> pa.Array:
    return with_one_zero(evaluate(expr, ValueSource(reader.type, values)).to_arrow(len(values)))


class WholeKey:
    """Key of whole numbers in [low, high]."""

    def __init__(self, expr: Expr, low: int, high: int) -> None:
        self._expr = expr
        self._low = max(low, -(1 << 63))
        self._high = min(high, (1 << 63) - 1)
        self.cardinality = max(1, self._high - self._low + 1)

    def append(self, chunk: Chunk, radix: int, keys: Keys) -> None:
        values = evaluate(self._expr, chunk).spread(chunk.num_rows).data
        values = read_only(values.view(np.uint8) if values.dtype == np.bool_ else values)
        # The bounds were claimed by the segment and derived from its claims: groups outside of them would be written
        # past the end of the memory that is reserved for them.
        if not kernels.append_whole(values, np.int64(self._low), np.uint64(self.cardinality - 1), radix, keys):
            raise CorruptionError(f"value out of its bounds key={self._expr} low={self._low} high={self._high}")

    def values(self, codes: Words) -> pa.Array:
        data = (codes + np.uint64(self._low % (1 << 64))).view(np.int64)
        type_ = arrow_type(self._expr.type)
        return pa.array(data != 0, type_) if pa.types.is_boolean(type_) else pa.array(data).cast(type_)


class FloatKey:
    """Key of floats by their bits; one zero, one NaN."""

    def __init__(self, expr: Expr) -> None:
        self._expr = expr
        self._bits = _BITS[expr.type.base]
        self.cardinality = 1 << (8 * np.dtype(self._bits).itemsize)

    def append(self, chunk: Chunk, radix: int, keys: Keys) -> None:
        values = one_zero(evaluate(self._expr, chunk).spread(chunk.num_rows).data)
        kernels.append_key(read_only(values.view(self._bits)), radix, keys)

    def values(self, codes: Words) -> pa.Array:
        bits = codes.astype(self._bits)
        return pa.array(bits.view(np.float32 if self._bits is np.uint32 else np.float64))


@dataclass(slots=True)
class ValueKey:
    """Key of any expression, by value; null is a value. Rows must be encoded, all at once, before it has codes."""

    expr: Expr
    _encoded: Encoded | None = field(default=None)
    _scale: int | None = field(default=None)
    """Scale of a BIG_DECIMAL that is encoded as whole numbers."""

    @property
    def cardinality(self) -> int:
        return self._known.num_codes

    def encode_rows(self, chunk: Chunk) -> NDArray[Any]:
        """Return the codes of all rows."""
        vector: Vector = evaluate(self.expr, chunk)
        if isinstance(vector.data, Scaled):
            self._scale = vector.data.scale
            whole = vector.spread(chunk.num_rows)
            return self.encode(pa.array(whole.data.values, mask=whole.nulls))
        return self.encode(vector.to_arrow(chunk.num_rows))

    def encode(self, values: pa.Array) -> NDArray[Any]:
        """Return the codes of given values."""
        self._encoded = encode(values)
        return self._encoded.codes

    def append(self, chunk: Chunk, radix: int, keys: Keys) -> None:
        raise AssertionError("codes of a key by value come with its encoding")

    def values(self, codes: Words) -> pa.Array:
        values = self._known.values(codes.astype(np.int64))
        if self._scale is None:
            return values
        nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
        numbers = (values.fill_null(0) if values.null_count else values).to_numpy()
        return Vector(BIG_DECIMAL, bounded(numbers, self._scale), nulls).to_arrow(len(codes))

    @property
    def _known(self) -> Encoded:
        assert self._encoded is not None, "encode comes first"
        return self._encoded
