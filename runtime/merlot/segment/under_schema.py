"""Columns of a segment as a table's schema declares them today, for readers of rows in queries and in merges.

A column that the segment lacks holds the schema's default value for every doc, and is null. A column whose type was
widened after the segment was built is cast as it is read. Both look like columns of the segment.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels.jit import read_only
from merlot.segment.arrow_types import STORED_DTYPES, is_fixed_width, stored_arrow_type
from merlot.segment.index.dictionary import (
    DecimalDictionary,
    NumericDictionary,
    OrderedDictionary,
    UnorderedDictionary,
    ValueDictionary,
    VariableDictionary,
)
from merlot.segment.index.kind import ColumnIndexes
from merlot.segment.index.variable import buffers_of
from merlot.segment.index.zones import ZoneMaps
from merlot.segment.reader import Array, Docs, RowReader, Segment
from merlot.spec.evolution import can_widen
from merlot.spec.schema import FieldSpec
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text
from merlot.vectors.errors import UnsupportedQueryError


def column_under(segment: Segment, field: FieldSpec) -> RowReader:
    """Return a column of a segment as `field` declares it. Raises UnsupportedQueryError if the stored column cannot be
    read as that type."""
    stored = segment.column(field.name)
    if stored is None:
        return ConstantColumn(field.type, field.default_value, segment.num_docs, field.multi_value, is_null=True)
    if stored.multi_value != field.multi_value or not can_widen(stored.type, field.type):
        what = f"column={field.name} segment={segment.key}"
        old, new = _shape(stored.type, stored.multi_value), _shape(field.type, field.multi_value)
        raise UnsupportedQueryError(f"column cannot be read as its new type {what} old={old} new={new}")
    return stored if stored.type is field.type else WidenedColumn(stored, field.type)


def _shape(type_: TypeName, multi_value: bool) -> str:
    return f"{type_}[]" if multi_value else str(type_)


class ConstantColumn:
    """Column with one value for every doc."""

    zones: ZoneMaps | None = None
    indexes: ColumnIndexes | None = None
    is_sorted = True

    def __init__(
        self, type_: TypeName, value: Any, num_docs: int, multi_value: bool = False, *, is_null: bool = False
    ) -> None:
        self.type = type_
        self.multi_value = multi_value
        self.num_docs = num_docs
        self._is_null = is_null
        self.dictionary: OrderedDictionary | None = _dictionary_of_one(type_, value)

    @cached_property
    def nulls(self) -> NDArray[np.uint64] | None:
        if not self._is_null:
            return None
        words = np.full((self.num_docs + 63) // 64, np.uint64(0xFFFFFFFFFFFFFFFF))
        if self.num_docs % 64:
            words[-1] >>= np.uint64(64 - self.num_docs % 64)
        return words

    @property
    def runs(self) -> NDArray[np.uint32] | None:
        return None if self.multi_value else np.array([0, self.num_docs], np.uint32)

    def dict_ids(self) -> Array:
        ids = np.zeros(self.num_docs, np.uint8)
        ids.flags.writeable = False
        return ids

    def take_dict_ids(self, docs: Docs) -> Array:
        return np.zeros(len(docs), np.uint8)

    def offsets(self) -> NDArray[np.uint32]:
        return np.arange(self.num_docs + 1, dtype=np.uint32)

    def values(self) -> Array:
        raise AssertionError("a constant column has a dictionary")

    def take_values(self, docs: Docs) -> Array:
        return self.values()[docs]

    def strings(self) -> pa.Array:
        raise AssertionError("a constant column has a dictionary")

    def take_strings(self, docs: Docs) -> pa.Array:
        return self.strings().take(pa.array(docs))


class WidenedColumn:
    """A stored column of numbers whose type was widened after the segment was built."""

    def __init__(self, stored: RowReader, type_: TypeName) -> None:
        self._stored = stored
        self.type = type_
        self.num_docs = stored.num_docs
        self.multi_value = stored.multi_value
        self.nulls = stored.nulls
        self.is_sorted = stored.is_sorted
        # Indexes of dict ids stay valid; those of raw columns answer for numbers of the old type.
        self.indexes = stored.indexes if stored.dictionary is not None else None

    @cached_property
    def dictionary(self) -> ValueDictionary | None:
        stored = self._stored.dictionary
        if stored is None:
            return None
        numbers = stored.numeric
        assert numbers is not None
        wide = numbers.astype(STORED_DTYPES[self.type]) if is_fixed_width(self.type) else _texts(numbers)
        if stored.ascending is None:
            return UnorderedDictionary(read_only(wide) if isinstance(wide, np.ndarray) else wide)
        return NumericDictionary(wide) if isinstance(wide, np.ndarray) else DecimalDictionary(*buffers_of(wide))

    @property
    def zones(self) -> ZoneMaps | None:
        return self._stored.zones if self._stored.dictionary is not None else None

    @property
    def runs(self) -> NDArray[np.uint32] | None:
        return self._stored.runs

    def dict_ids(self) -> Array:
        return self._stored.dict_ids()

    def take_dict_ids(self, docs: Docs) -> Array:
        return self._stored.take_dict_ids(docs)

    def offsets(self) -> NDArray[np.uint32]:
        return self._stored.offsets()

    def values(self) -> Array:
        return self._stored.values().astype(STORED_DTYPES[self.type])

    def take_values(self, docs: Docs) -> Array:
        return self._stored.take_values(docs).astype(STORED_DTYPES[self.type])

    def strings(self) -> pa.Array:
        return _texts(self._stored.values())

    def take_strings(self, docs: Docs) -> pa.Array:
        return _texts(self._stored.take_values(docs))


def _texts(whole_numbers: Array) -> pa.Array:
    """Return numbers as BIG_DECIMAL's plain text."""
    return pa.array(whole_numbers).cast(pa.string())


def _dictionary_of_one(type_: TypeName, value: Any) -> OrderedDictionary:
    if is_fixed_width(type_):
        return NumericDictionary(np.array([value], dtype=STORED_DTYPES[type_]))
    if type_ is TypeName.BIG_DECIMAL:
        text = value if isinstance(value, str) else plain_text(Decimal(value))
        return DecimalDictionary(*buffers_of(pa.array([text], pa.string())))
    return VariableDictionary(type_, *buffers_of(pa.array([value], stored_arrow_type(type_))))
