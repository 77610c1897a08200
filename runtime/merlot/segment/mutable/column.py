"""One column of a consuming segment: all rows, to which its writer appends, and the prefix that a reader sees."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.segment.arrow_types import is_fixed_width
from merlot.segment.buffers import Array
from merlot.segment.build.rows import StoredColumn
from merlot.segment.index.dictionary import ValueDictionary
from merlot.segment.index.kind import ColumnIndexes
from merlot.segment.index.zones import ZoneMaps
from merlot.segment.mutable.coded import CodedValues
from merlot.segment.mutable.growing_arrays import GrowingArray, GrowingBits
from merlot.segment.mutable.values import GrowingValues, Numbers, Texts
from merlot.segment.reader import Docs
from merlot.spec.indexing import Encoding
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.values.types import TypeName

_IDS = frozenset({TypeName.INT, TypeName.LONG})


class ConsumingColumn:
    """All rows of a column so far. One thread appends; any may take a `prefix` of rows that were appended."""

    def __init__(self, field: FieldSpec, encoding: Encoding) -> None:
        self.field = field
        self._values = _values_of(field, encoding)
        self._nulls: GrowingBits | None = None
        self._starts: GrowingArray | None = None
        if field.multi_value:
            self._starts = GrowingArray(np.uint32)
            self._starts.put(0, np.zeros(1, np.uint32))

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Whole numbers between which every value lies; None if not known."""
        return self._values.bounds

    def append(self, doc: int, column: StoredColumn) -> None:
        """Write rows from doc `doc` on. Rows that a failed append has left there are overwritten.

        Raises InvalidInputError if the column would have 2**32 values."""
        position = doc
        if self._starts is not None:
            assert column.offsets is not None
            position = int(self._starts.view(doc + 1)[doc])
            if position + column.num_values >= 1 << 32:
                raise InvalidInputError(f"a segment holds fewer than 2**32 values column={self.field.name}")
            self._starts.put(doc + 1, column.offsets[1:] + np.uint32(position))
        self._values = self._values.append(position, column.values)
        if column.nulls is not None and self._nulls is None:
            self._nulls = GrowingBits()
        if self._nulls is not None:
            self._nulls.put(doc, _bits(column.nulls, column.num_docs))

    def prefix(self, num_docs: int) -> ColumnPrefix:
        """Return a reader of the first docs."""
        return ColumnPrefix(self.field, num_docs, self._values, self._starts, self._nulls)

    def nbytes(self, num_docs: int) -> int:
        """Return the memory of the first docs."""
        nulls = 0 if self._nulls is None else num_docs >> 3
        if self._starts is None:
            return self._values.nbytes(num_docs) + nulls
        return self._values.nbytes(int(self._starts.view(num_docs + 1)[num_docs])) + 4 * num_docs + nulls


def _values_of(field: FieldSpec, encoding: Encoding) -> GrowingValues:
    """Return the container of a column's values. Texts, and whole numbers that are dimensions, begin with a dictionary
    unless the table stores them raw."""
    is_fixed = is_fixed_width(field.type)
    if encoding is Encoding.RAW or (is_fixed and not (field.type in _IDS and field.role is FieldRole.DIMENSION)):
        return Numbers(field.type) if is_fixed else Texts(field.type)
    return CodedValues(field.type, is_wanted=encoding is Encoding.DICTIONARY)


def _bits(words: NDArray[np.uint64] | None, count: int) -> NDArray[np.bool_]:
    if words is None:
        return np.zeros(count, np.bool_)
    return np.unpackbits(words.view(np.uint8), count=count, bitorder="little").view(np.bool_)


class ColumnPrefix:
    """The first docs of a column; a `segment.reader.RowReader`."""

    zones: ZoneMaps | None = None
    runs: NDArray[np.uint32] | None = None
    indexes: ColumnIndexes | None = None
    is_sorted = False

    def __init__(
        self,
        field: FieldSpec,
        num_docs: int,
        values: GrowingValues,
        starts: GrowingArray | None,
        nulls: GrowingBits | None,
    ) -> None:
        self.type = field.type
        self.multi_value = field.multi_value
        self.num_docs = num_docs
        self._starts = None if starts is None else starts.view(num_docs + 1)
        self._values = values.prefix(num_docs if self._starts is None else int(self._starts[num_docs]))
        self._nulls = nulls

    @property
    def dictionary(self) -> ValueDictionary | None:
        return self._values.dictionary

    @cached_property
    def nulls(self) -> NDArray[np.uint64] | None:
        """Bit words, lowest bit first, 1 = null; None if no doc is null."""
        return None if self._nulls is None else self._nulls.words(self.num_docs)

    def dict_ids(self) -> Array:
        """Return every dict id."""
        return self._values.dict_ids()

    def take_dict_ids(self, docs: Docs) -> Array:
        """Return the dict ids at `docs`."""
        return self.dict_ids()[docs]

    def values(self) -> Array:
        """Return every number of a column without a dictionary."""
        return self._values.values()

    def take_values(self, docs: Docs) -> Array:
        """Return the numbers at `docs`."""
        return self.values()[docs]

    def strings(self) -> pa.Array:
        """Return every text of a column without a dictionary."""
        return self._values.strings()

    def take_strings(self, docs: Docs) -> pa.Array:
        """Return the texts at `docs`."""
        return self.strings().take(pa.array(docs))

    def offsets(self) -> NDArray[np.uint32]:
        """Return the offsets of a multi-value column: doc d holds values [offsets[d], offsets[d + 1])."""
        assert self._starts is not None
        return self._starts
