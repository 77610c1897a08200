"""Values of one expression for some rows, between numpy and Arrow.

Fixed-width types are numpy arrays (BOOLEAN as bool, TIMESTAMP as int64 milliseconds); STRING, JSON and BYTES are Arrow
arrays without nulls; BIG_DECIMAL is whole numbers of a scale (`vectors.scaled`), or a numpy array of Decimal objects
where 64 bits do not hold them; multi-value columns are Arrow lists. Nulls are a mask beside the values, and so are the
rows whose value could not be computed: an overflow belongs to its row, which the rest of the query may not need. A
constant has one value: numpy of shape (), or an Arrow scalar.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.tree.nodes import Literal
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.decimals import plain_text
from merlot.vectors.scaled import Scaled, constant_of, scaled_of, texts_of

DTYPES: dict[TypeName, np.dtype[Any]] = {
    TypeName.INT: np.dtype(np.int32),
    TypeName.LONG: np.dtype(np.int64),
    TypeName.FLOAT: np.dtype(np.float32),
    TypeName.DOUBLE: np.dtype(np.float64),
    TypeName.BOOLEAN: np.dtype(np.bool_),
    TypeName.TIMESTAMP: np.dtype(np.int64),
}
"""Dtypes in which vectors hold fixed-width types."""

TEXT = frozenset({TypeName.STRING, TypeName.JSON, TypeName.BYTES})
INTEGERS = frozenset({TypeName.INT, TypeName.LONG, TypeName.BOOLEAN, TypeName.TIMESTAMP})

_ARROW: dict[TypeName, pa.DataType] = {
    TypeName.INT: pa.int32(),
    TypeName.LONG: pa.int64(),
    TypeName.FLOAT: pa.float32(),
    TypeName.DOUBLE: pa.float64(),
    TypeName.BOOLEAN: pa.bool_(),
    TypeName.TIMESTAMP: pa.int64(),
    TypeName.BIG_DECIMAL: pa.string(),
    TypeName.STRING: pa.string(),
    TypeName.JSON: pa.string(),
    TypeName.BYTES: pa.binary(),
    TypeName.UNKNOWN: pa.null(),
}

_FEW_BYTES = 8 << 20
_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def arrow_type(type_: SqlType) -> pa.DataType:
    """Return the type of a result column, partial or final: TIMESTAMP as int64 milliseconds, BIG_DECIMAL as plain
    text."""
    base = _ARROW[type_.base]
    return pa.list_(base) if type_.is_array else base


Rows = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows without a value, True where computing it failed, and the reason."""

    rows: Rows
    reason: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """Result of a function: values, which mean nothing at failed rows."""

    data: Any
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Vector:
    """Values of one type; nulls is a bool mask, True where null, or None. No row is both null and failed."""

    type: SqlType
    data: Any
    nulls: Rows | None = None
    failure: Failure | None = None

    @property
    def is_constant(self) -> bool:
        return isinstance(self.data, pa.Scalar) or (isinstance(self.data, np.ndarray | Scaled) and self.data.ndim == 0)

    def spread(self, num_rows: int) -> Vector:
        """Return the same values, a constant repeated for every row."""
        nulls = None if self.nulls is None else np.broadcast_to(self.nulls, num_rows)
        failure = self.failure and Failure(np.broadcast_to(self.failure.rows, num_rows), self.failure.reason)
        if not self.is_constant:
            return Vector(self.type, self.data, nulls, failure)
        if isinstance(self.data, pa.Scalar):
            return Vector(self.type, repeated(self.data, num_rows), nulls, failure)
        if isinstance(self.data, Scaled):
            every = np.full(num_rows, self.data.values[()], np.int64)
            return Vector(self.type, self.data.with_values(every), nulls, failure)
        return Vector(self.type, np.full(num_rows, self.data[()], dtype=self.data.dtype), nulls, failure)

    def take(self, rows: NDArray[Any]) -> Vector:
        """Return the values of chosen rows; a constant stays a constant."""
        if self.is_constant:
            return self
        nulls = None if self.nulls is None else self.nulls[rows]
        failure = self.failure and Failure(self.failure.rows[rows], self.failure.reason)
        return Vector(self.type, _taken(self.data, rows), nulls, failure)

    def with_objects(self) -> Vector:
        """Return BIG_DECIMAL as Decimal objects, for callers that know no other form; values of other types as they
        are."""
        if not isinstance(self.data, Scaled):
            return self
        return Vector(self.type, self.data.objects(), self.nulls, self.failure)

    def to_arrow(self, num_rows: int) -> pa.Array:
        """Return an Arrow array of `arrow_type(self.type)`."""
        full = self.spread(num_rows)
        type_ = arrow_type(self.type)
        if self.type.base is TypeName.UNKNOWN:
            return pa.nulls(num_rows)
        if isinstance(full.data, Scaled):
            texts = texts_of(full.data.values, full.data.scale)
            if texts is None:
                return full.with_objects().to_arrow(num_rows)
            return texts if full.nulls is None else pc.if_else(pa.array(~full.nulls), texts, pa.scalar(None, type_))
        if not isinstance(full.data, np.ndarray):
            data = full.data if full.data.type == type_ else full.data.cast(type_)
            return data if full.nulls is None else pc.if_else(pa.array(~full.nulls), data, pa.scalar(None, type_))
        if full.data.dtype == object:
            texts = account.gathered(None if value is None else plain_text(value) for value in full.data)
            return pa.array(texts, type=type_, mask=full.nulls)
        return pa.array(full.data, type=type_, mask=full.nulls)


def constant(literal: Literal) -> Vector:
    """Return the vector of a literal; NULL of type UNKNOWN has a bool as its data."""
    base = literal.type.base
    nulls = np.array(True) if literal.value is None else None
    if base is TypeName.UNKNOWN:
        return Vector(literal.type, np.array(False), nulls)
    if base in DTYPES:
        return Vector(literal.type, np.array(0 if literal.value is None else literal.value, dtype=DTYPES[base]), nulls)
    if base is TypeName.BIG_DECIMAL:
        number = Decimal(0) if literal.value is None else Decimal(str(literal.value))
        scaled = constant_of(number)
        return Vector(literal.type, np.array(number, object) if scaled is None else scaled, nulls)
    empty: Any = b"" if base is TypeName.BYTES else ""
    return Vector(literal.type, pa.scalar(empty if literal.value is None else literal.value, type=_ARROW[base]), nulls)


def narrowed(values: pa.Array) -> pa.Array:
    """Return the values with 32-bit offsets, where those suffice. A column of 2**31 bytes or more has 64-bit offsets,
    but the rows taken from it seldom need them, and Arrow's functions do not take both widths at once."""
    small = _SMALL.get(values.type)
    return values if small is None or values.nbytes >= 1 << 31 else values.cast(small)


def from_arrow(type_: SqlType, values: pa.Array | pa.ChunkedArray) -> Vector:
    """Return a vector over an Arrow array, which may be of the stored type (BOOLEAN as int32) and may hold nulls."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    if type_.is_array:
        return Vector(type_, values, nulls)
    base = type_.base
    if base is TypeName.UNKNOWN:
        return Vector(type_, np.zeros(len(values), np.bool_), np.ones(len(values), np.bool_))
    if base in TEXT:
        filled = values.fill_null(b"" if base is TypeName.BYTES else "") if nulls is not None else values
        return Vector(type_, narrowed(filled), nulls)
    if base is TypeName.BIG_DECIMAL:
        return Vector(type_, numbers_of(values), nulls)
    if nulls is not None:
        values = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
    return Vector(type_, values.to_numpy(zero_copy_only=False).astype(DTYPES[base], copy=False), nulls)


def _taken(data: Any, rows: NDArray[Any]) -> Any:
    if isinstance(data, Scaled):
        return data.with_values(data.values[rows])
    return data[rows] if isinstance(data, np.ndarray) else values_at(data, rows)


def values_at(values: pa.Array, rows: NDArray[Any]) -> pa.Array:
    """Return the values of chosen rows, which may repeat. Raises LimitExceededError where they are too long
    together."""
    if len(rows) and len(values) and not pa.types.is_primitive(values.type):
        lengths = _lengths_at(values, rows)
        if lengths is not None:
            account.current().expect("values that repeat", lengths)
    return values.take(pa.array(rows))


def _lengths_at(values: pa.Array, rows: NDArray[Any]) -> int | None:
    """Return the bytes of the values at some rows, or an upper bound if it is low. Return None for a type without
    offsets, and for few rows if their bytes would be few even if every row had all values."""
    is_few = len(values) > len(rows)
    if is_few and len(rows) * values.nbytes < _FEW_BYTES:
        return None
    offsets = _offsets(values)
    if offsets is None:
        return None
    if is_few:  # the lengths of all values would take longer than the take
        places = rows.astype(np.intp)
        total = int((offsets[1:].take(places) - offsets.take(places)).sum(dtype=np.int64))
    else:
        lengths = np.diff(offsets)
        total = int(lengths.max()) * len(rows)
        if total > _FEW_BYTES:
            total = int(lengths[rows].sum(dtype=np.int64))
    is_list = pa.types.is_list(values.type)
    return total * (1 + values.values.nbytes // max(1, len(values.values))) if is_list else total


def _offsets(values: pa.Array) -> NDArray[Any] | None:
    """Return the offsets of each text or list of an array."""
    if pa.types.is_list(values.type):
        return np.asarray(values.offsets)
    is_large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    if not (is_large or pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return None
    words = np.frombuffer(values.buffers()[1], np.int64 if is_large else np.int32)
    return words[values.offset : values.offset + len(values) + 1]


def repeated(value: pa.Scalar, num_rows: int) -> pa.Array:
    """Return a constant in every row. Raises LimitExceededError where that is too long."""
    account.current().expect("a constant in every row", num_rows * scalar_bytes(value))
    # Arrow cannot repeat a list no times.
    return pa.repeat(value, num_rows) if num_rows else pa.array([], value.type)


def scalar_bytes(value: pa.Scalar) -> int:
    """Return the bytes of a text's or list's value; few for a number."""
    if not value.is_valid:
        return 0
    if isinstance(value, pa.BinaryScalar | pa.LargeBinaryScalar):
        return int(value.as_buffer().size)
    return int(value.values.nbytes) if isinstance(value, pa.ListScalar) else 8


def numbers_of(texts: pa.Array) -> Scaled | NDArray[np.object_]:
    """Return BIG_DECIMAL of plain texts; null is 0."""
    filled = texts.fill_null("0") if texts.null_count else texts
    scaled = scaled_of(filled)
    return decimals(texts) if scaled is None else scaled


def decimals(values: pa.Array) -> NDArray[np.object_]:
    """Return the Decimal objects of plain texts; null is 0."""
    out = np.empty(len(values), dtype=object)
    out[:] = [Decimal(0) if text is None else Decimal(text) for text in values.to_pylist()]
    return out


def failed(rows: Any, reason: str) -> Failure | None:
    """Return the failure of these rows; None if there is no row."""
    return Failure(np.asarray(rows, np.bool_), reason) if np.any(rows) else None


def either_failed(left: Failure | None, right: Failure | None) -> Failure | None:
    """Return the rows where either failed, with the left one's reason if it has one."""
    if left is None:
        return right
    return left if right is None else Failure(left.rows | right.rows, left.reason)


def outside(failure: Failure | None, nulls: Rows | None) -> Failure | None:
    """Return the failure where no null is: a value under a null is not needed."""
    return failure if failure is None or nulls is None else failed(failure.rows & ~nulls, failure.reason)


def either_null(left: NDArray[np.bool_] | None, right: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Return the rows where either is null."""
    if left is None:
        return right
    return left if right is None else left | right
