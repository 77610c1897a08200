"""Columns of one segment as the table's schema declares them today.

A column that the segment lacks holds the schema's default value for every doc; a column that was widened since is cast
as it is read; virtual columns (`$segmentName`, `$docId`) are made up. All look like readers of a segment.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.segment.arrow_types import STORED_DTYPES, is_fixed_width, stored_arrow_type
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.dictionary import DecimalDictionary, Dictionary, NumericDictionary, VariableDictionary
from merlot.segment.index.kind import ColumnIndexes
from merlot.segment.index.variable import buffers_of
from merlot.segment.index.zones import ZoneMaps
from merlot.spec.evolution import can_widen
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text
from merlot.vectors.errors import UnsupportedQueryError

Array = NDArray[Any]


class Reader(Protocol):
    """What execution asks of a column; `segment.column.ColumnReader` says what each means."""

    @property
    def type(self) -> TypeName: ...
    @property
    def multi_value(self) -> bool: ...
    @property
    def dictionary(self) -> Dictionary | None: ...
    @property
    def nulls(self) -> NDArray[np.uint64] | None: ...
    @property
    def zones(self) -> ZoneMaps | None: ...
    @property
    def runs(self) -> NDArray[np.uint32] | None: ...
    @property
    def is_sorted(self) -> bool: ...
    @property
    def indexes(self) -> ColumnIndexes | None: ...
    def dict_ids(self) -> Array: ...
    def values(self) -> Array: ...
    def strings(self) -> pa.Array: ...
    def offsets(self) -> NDArray[np.uint32]: ...


class Columns(Protocol):
    """Docs of one segment, or of several seen as one."""

    @property
    def num_docs(self) -> int: ...
    def reader(self, name: str) -> Reader:
        """Reader of a column of the schema; raises InvalidInputError for others."""
        ...

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Smallest and largest whole number that the column holds, if known."""
        ...


class SegmentColumns:
    """Readers by name, for one query and segment; any thread."""

    def __init__(self, segment: ImmutableSegment, schema: TableSchema, host: str = "") -> None:
        self.segment = segment
        self.num_docs = segment.num_docs
        self._schema = schema
        self._host = host
        self._readers: dict[str, Reader] = {}

    def reader(self, name: str) -> Reader:
        """Reader of a column of the schema, or a virtual one; raises InvalidInputError for others."""
        found = self._readers.get(name)
        if found is None:
            found = self._readers.setdefault(name, self._make(name))
        return found

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Smallest and largest whole number that the column holds, if known."""
        stored = self.segment.metadata.columns.get(name)
        if stored is None or not isinstance(stored.min, int) or not isinstance(stored.max, int):
            return None
        return stored.min, stored.max

    def _make(self, name: str) -> Reader:
        if name.startswith("$"):
            return self._virtual(name)
        field = self._schema.field(name)
        if field is None:
            raise InvalidInputError(f"unknown column name={name}")
        stored = self.segment.column(name)
        if stored is None:
            return ConstantColumn(field.type, field.default_value, self.num_docs, field.multi_value, is_null=True)
        if stored.multi_value != field.multi_value or not can_widen(stored.type, field.type):
            what = f"column={name} segment={self.segment.key}"
            raise UnsupportedQueryError(
                f"column cannot be read as its new type {what} old={stored.type} new={field.type}"
            )
        return stored if stored.type is field.type else WidenedColumn(stored, field.type)

    def _virtual(self, name: str) -> Reader:
        if name == "$docId":
            return DocIdColumn(self.num_docs)
        if name == "$segmentName":
            return ConstantColumn(TypeName.STRING, self.segment.metadata.name, self.num_docs)
        if name == "$hostName":
            return ConstantColumn(TypeName.STRING, self._host, self.num_docs)
        raise InvalidInputError(f"unknown column name={name}")


class ConstantColumn:
    """One value for every doc."""

    zones: ZoneMaps | None = None
    indexes: ColumnIndexes | None = None
    is_sorted = True

    def __init__(
        self, type_: TypeName, value: Any, num_docs: int, multi_value: bool = False, *, is_null: bool = False
    ) -> None:
        self.type = type_
        self.multi_value = multi_value
        self._num_docs = num_docs
        self._is_null = is_null
        self.dictionary: Dictionary | None = dictionary_of(type_, [value])

    @cached_property
    def nulls(self) -> NDArray[np.uint64] | None:
        if not self._is_null:
            return None
        words = np.full((self._num_docs + 63) // 64, np.uint64(0xFFFFFFFFFFFFFFFF))
        if self._num_docs % 64:
            words[-1] >>= np.uint64(64 - self._num_docs % 64)
        return words

    @property
    def runs(self) -> NDArray[np.uint32] | None:
        return None if self.multi_value else np.array([0, self._num_docs], np.uint32)

    def dict_ids(self) -> Array:
        ids = np.zeros(self._num_docs, np.uint8)
        ids.flags.writeable = False
        return ids

    def offsets(self) -> NDArray[np.uint32]:
        return np.arange(self._num_docs + 1, dtype=np.uint32)

    def values(self) -> Array:
        raise AssertionError("a constant column has a dictionary")

    def strings(self) -> pa.Array:
        raise AssertionError("a constant column has a dictionary")


class DocIdColumn(ConstantColumn):
    """`$docId`: raw numbers from 0."""

    def __init__(self, num_docs: int) -> None:
        super().__init__(TypeName.INT, 0, num_docs)
        self.dictionary = None

    @property
    def runs(self) -> NDArray[np.uint32] | None:
        return None

    def values(self) -> Array:
        return np.arange(self._num_docs, dtype=np.int32)


class WidenedColumn:
    """A stored column whose type was widened after the segment was built."""

    def __init__(self, stored: Reader, type_: TypeName) -> None:
        self._stored = stored
        self.type = type_
        self.multi_value = stored.multi_value
        self.nulls = stored.nulls
        self.is_sorted = stored.is_sorted
        # Indexes answer by dict ids, which stay as they are, or by numbers of the old type.
        self.indexes = stored.indexes if stored.dictionary is not None else None
        if type_ not in STORED_DTYPES and type_ is not TypeName.BIG_DECIMAL:
            raise UnsupportedQueryError(f"column cannot be read as its new type old={stored.type} new={type_}")

    @cached_property
    def dictionary(self) -> Dictionary | None:
        stored = self._stored.dictionary
        if stored is None:
            return None
        assert stored.numeric is not None
        return dictionary_of(self.type, stored.numeric.tolist())

    @property
    def zones(self) -> ZoneMaps | None:
        return self._stored.zones if self._stored.dictionary is not None else None

    @property
    def runs(self) -> NDArray[np.uint32] | None:
        return self._stored.runs

    def dict_ids(self) -> Array:
        return self._stored.dict_ids()

    def offsets(self) -> NDArray[np.uint32]:
        return self._stored.offsets()

    def values(self) -> Array:
        return self._stored.values().astype(STORED_DTYPES[self.type])

    def strings(self) -> pa.Array:
        return pa.array([str(value) for value in self._stored.values().tolist()], pa.string())


def dictionary_of(type_: TypeName, values: list[Any]) -> Dictionary:
    """A dictionary of ascending values in memory."""
    if is_fixed_width(type_):
        return NumericDictionary(np.array(values, dtype=STORED_DTYPES[type_]))
    if type_ is TypeName.BIG_DECIMAL:
        texts = [value if isinstance(value, str) else plain_text(value) for value in map(_exact, values)]
        return DecimalDictionary(*buffers_of(pa.array(texts, pa.string())))
    return VariableDictionary(type_, *buffers_of(pa.array(values, stored_arrow_type(type_))))


def _exact(value: Any) -> Any:
    return str(value) if isinstance(value, int) else value


def has_both_zeros(dictionary: Dictionary) -> bool:
    """Whether -0.0 and 0.0, which are equal, have an id each."""
    numeric = dictionary.numeric
    if numeric is None or numeric.dtype.kind != "f":
        return False
    first, stop = dictionary.range_of(0.0, 0.0, True, True)
    return stop - first > 1
