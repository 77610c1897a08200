"""Convert Arrow columns of rows to values as a segment stores them: defaults for nulls, one array per column.

In a multi-value column, a null doc becomes one default value, a null element the default value, and an empty list stays
empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.segment.arrow_types import ARROW_TYPES, STORED_DTYPES, arrow_type
from merlot.segment.buffers import Array
from merlot.segment.build.coding import DictionaryEncoded
from merlot.segment.index import nulls
from merlot.spec.schema import FieldSpec
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text
from merlot.vectors.runs import ends_of

_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_STRING_LIMIT = (1 << 31) - 1


class ColumnarRows(Protocol):
    """Rows by column, as an Arrow table has them."""

    @property
    def num_rows(self) -> int: ...
    @property
    def column_names(self) -> Sequence[str]: ...
    def column(self, name: str) -> pa.ChunkedArray: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredColumn:
    """Values of a column in order: numbers as an array, others as Arrow strings or binary without nulls."""

    field: FieldSpec
    num_docs: int
    values: Array | pa.Array
    offsets: NDArray[np.uint32] | None
    """Starts of the docs' values in a multi-value column, and the end of the last, shape (num_docs + 1,); else None."""
    nulls: NDArray[np.uint64] | None
    """Bit words, lowest bit first, 1 = null; None if no doc is null."""
    num_nulls: int

    @property
    def num_values(self) -> int:
        return len(self.values)


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedColumn:
    """`StoredColumn` whose values have a dictionary already. Every entry of the dictionary occurs."""

    field: FieldSpec
    num_docs: int
    coded: DictionaryEncoded
    offsets: NDArray[np.uint32] | None
    nulls: NDArray[np.uint64] | None
    num_nulls: int

    @property
    def num_values(self) -> int:
        return len(self.coded.ids)

    @property
    def values(self) -> Array | pa.Array:
        """Values, made anew at each access."""
        dictionary, ids = self.coded.values, self.coded.ids
        return dictionary[ids] if isinstance(dictionary, np.ndarray) else dictionary.take(pa.array(ids))


BuildColumn = StoredColumn | EncodedColumn


def stored_column(field: FieldSpec, column: pa.ChunkedArray) -> StoredColumn:
    """Convert one column of rows to its stored form. Raises InvalidInputError if its type or a value does not fit, or
    if it has 2**32 values or more."""
    array = _one_array(column)
    if pa.types.is_null(array.type):
        array = array.cast(arrow_type(field))
    num_nulls = array.null_count
    words = nulls.words_of(array.is_null().to_numpy(zero_copy_only=False)) if num_nulls else None
    offsets = None
    if field.multi_value:
        array, offsets = _flatten(field, array)
    return StoredColumn(
        field=field,
        num_docs=len(column),
        values=_stored_values(field, array),
        offsets=offsets,
        nulls=words,
        num_nulls=num_nulls,
    )


def default_scalar(field: FieldSpec) -> pa.Scalar:
    """Return the value that stands for null, in the type of the rows."""
    value = field.default_value
    return pa.scalar(plain_text(value) if isinstance(value, Decimal) else value, type=ARROW_TYPES[field.type])


def widened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column with 64-bit offsets if it has more bytes of text than 32-bit offsets reach."""
    wider = _LARGE.get(column.type)
    return column if wider is None or column.nbytes <= _STRING_LIMIT else column.cast(wider)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return widened(column).combine_chunks() if column.num_chunks else pa.array([], type=column.type)


def _flatten(field: FieldSpec, array: pa.Array) -> tuple[pa.Array, NDArray[np.uint32]]:
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise InvalidInputError(f"column must hold lists column={field.name} type={array.type}")
    flat = array.flatten()
    lengths = array.value_lengths()
    if array.null_count:
        lengths = lengths.fill_null(1)
    counts = lengths.to_numpy(zero_copy_only=False)
    offsets = ends_of(counts)
    if offsets[-1] >= 1 << 32:
        raise InvalidInputError(f"a segment holds fewer than 2**32 values column={field.name} got={offsets[-1]}")
    if array.null_count:
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        sources = np.full(int(offsets[-1]), len(flat), dtype=np.int64)
        own = np.ones(len(sources), dtype=np.bool_)
        own[offsets[:-1][is_null]] = False
        sources[own] = np.arange(len(flat))
        flat = pa.concat_arrays([flat, pa.nulls(1, flat.type)]).take(pa.array(sources))
    return flat, offsets.astype(np.uint32)


def _stored_values(field: FieldSpec, array: pa.Array) -> Array | pa.Array:
    array = _cast(field, array)
    if array.null_count:
        array = array.fill_null(default_scalar(field).cast(array.type))
    if field.type is TypeName.BIG_DECIMAL:
        return _plain_decimals(field, array)
    if field.type not in STORED_DTYPES:
        return array
    if field.type is TypeName.BOOLEAN:
        return array.to_numpy(zero_copy_only=False).astype("<i4")
    if field.type is TypeName.TIMESTAMP:
        array = array.view(pa.int64())
    values: Array = array.to_numpy(zero_copy_only=True)
    return _with_one_nan(values) if values.dtype.kind == "f" else values


def _with_one_nan(values: Array) -> Array:
    """Replace every NaN by the same NaN, as in dictionaries: equal rows are equal bytes, whatever payload their NaN
    had."""
    is_nan = np.isnan(values)
    return np.where(is_nan, np.array(np.nan, values.dtype), values) if is_nan.any() else values


def _cast(field: FieldSpec, array: pa.Array) -> pa.Array:
    wanted = ARROW_TYPES[field.type]
    if array.type == wanted or array.type == _LARGE.get(wanted):
        return array
    if _LARGE.get(wanted) is not None and array.nbytes > _STRING_LIMIT:
        wanted = _LARGE[wanted]
    try:
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(f"rows do not fit the schema column={field.name}: {error}") from error


def _plain_decimals(field: FieldSpec, array: pa.Array) -> pa.Array:
    """Return one text per number, so that equal numbers are one dictionary entry."""
    encoded = array.dictionary_encode()
    try:
        texts = [plain_text(_finite(text)) for text in encoded.dictionary.to_pylist()]
    except (InvalidOperation, ValueError) as error:
        raise InvalidInputError(f"not a number column={field.name}: {error}") from error
    return pa.array(texts, type=encoded.dictionary.type).take(encoded.indices)


def _finite(text: Any) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(f"{text!r} is not finite")
    return number
