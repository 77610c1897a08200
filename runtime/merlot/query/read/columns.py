"""Columns of one segment as a query reads them: those of the current schema, and virtual columns
(`sql.scope.VIRTUAL_COLUMNS`), which are computed. All are readers, as a segment's columns are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.segment.arrow_types import is_fixed_width
from merlot.segment.column import ColumnReader
from merlot.segment.index.dictionary import OrderedDictionary, ValueDictionary
from merlot.segment.reader import Reader, Segment, ValidDocs
from merlot.segment.under_schema import ConstantColumn, column_under
from merlot.spec.derived import derived_of
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

Array = NDArray[Any]


StatesOf = Callable[[NDArray[np.uint32]], list[pa.Array]]
"""Function that returns the columns of an aggregate's stored states at the given docs."""


class Columns(Protocol):
    """Columns of one segment, or of several coalesced segments."""

    @property
    def num_docs(self) -> int: ...
    @property
    def valid_docs(self) -> ValidDocs: ...
    @property
    def stored_states(self) -> Sequence[StatesOf] | None:
        """Stored states of each of the query's aggregates, if a doc stands for rows that were aggregated in advance;
        None if each doc is a row."""
        ...

    def reader(self, name: str) -> Reader:
        """Return the reader of a column of the schema. Raises InvalidInputError for other names."""
        ...

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Return whole numbers between which every value of the column lies; None if unknown."""
        ...


def reads_texts(columns: Columns, names: Iterable[str]) -> bool:
    """Return whether one of the columns stores a text of variable width for each doc."""
    readers = map(columns.reader, names)
    return any(reader.dictionary is None and not is_fixed_width(reader.type) for reader in readers)


class SegmentColumns:
    """Readers by name, for one query and segment. Any thread."""

    stored_states: Final[Sequence[StatesOf] | None] = None

    def __init__(self, segment: Segment, schema: TableSchema, host: str = "") -> None:
        self.segment = segment
        self.num_docs = segment.num_docs
        self.valid_docs = segment.valid_docs
        self._schema = schema
        self._host = host
        self._readers: dict[str, Reader] = {}

    def reader(self, name: str) -> Reader:
        """Return the reader of a column of the schema or of a virtual column. Raises InvalidInputError for other
        names."""
        reader = self._readers.get(name)
        if reader is None:
            reader = self._readers.setdefault(name, self._make(name))
        return reader

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Return whole numbers between which every value of the column lies; None if unknown."""
        return self.segment.bounds(name)

    def has_derived(self, name: str, unit: str) -> bool:
        """Return True if the segment has the derived column and its times are in this unit."""
        column = self.segment.column(name)
        return isinstance(column, ColumnReader) and column.metadata.format == unit

    def _make(self, name: str) -> Reader:
        if name.startswith("$"):
            return self._virtual(name)
        field = self._schema.field(name)
        if field is None:
            raise InvalidInputError(f"unknown column name={name}")
        return column_under(self.segment, field)

    def _virtual(self, name: str) -> Reader:
        if name == "$docId":
            return DocIdColumn(self.num_docs)
        if name == "$segmentName":
            return ConstantColumn(TypeName.STRING, self.segment.key.name, self.num_docs)
        if name == "$totalDocs":
            return ConstantColumn(TypeName.INT, self.num_docs, self.num_docs)
        if name == "$crc":
            return ConstantColumn(TypeName.LONG, self.segment.key.crc, self.num_docs)
        if name == "$hostName":
            return ConstantColumn(TypeName.STRING, self._host, self.num_docs)
        if name in _INSTANTS:
            instant = getattr(self.segment.instants, _INSTANTS[name])
            return ConstantColumn(TypeName.TIMESTAMP, instant or 0, self.num_docs, is_null=instant is None)
        if derived_of(name) is not None and (column := self.segment.column(name)) is not None:
            return column
        raise InvalidInputError(f"unknown column name={name}")


_INSTANTS: Final = {"$creationTime": "created_ms", "$startTime": "first_ms", "$endTime": "last_ms"}


class DocIdColumn(ConstantColumn):
    """Column `$docId`: raw numbers from 0."""

    def __init__(self, num_docs: int) -> None:
        super().__init__(TypeName.INT, 0, num_docs)
        self.dictionary = None

    @property
    def runs(self) -> NDArray[np.uint32] | None:
        return None

    def values(self) -> Array:
        return np.arange(self.num_docs, dtype=np.int32)


def has_both_zeros(dictionary: ValueDictionary) -> bool:
    """Return True if -0.0 and 0.0, which are equal, have different dict ids."""
    numeric = dictionary.numeric
    if numeric is None or numeric.dtype.kind != "f":
        return False
    if not isinstance(dictionary, OrderedDictionary):
        return int(np.count_nonzero(numeric == 0.0)) > 1
    first, stop = dictionary.range_of(0.0, 0.0, True, True)
    return stop - first > 1
