"""Interfaces of a segment, sealed or consuming, and of its columns, for all code that reads rows.

`segment.column.ColumnReader` reads a file, `segment.mutable` a prefix of rows that are still arriving. Arrays are
read-only, do not change and may be kept. Any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.ids import SegmentKey
from merlot.segment.index.dictionary import ValueDictionary
from merlot.segment.index.kind import ColumnIndexes
from merlot.segment.index.zones import ZoneMaps
from merlot.values.types import TypeName
from merlot.vectors.scaled import Scaled

Array = NDArray[Any]
Docs = NDArray[np.uint32]


class EveryDoc(Enum):
    """Valid docs of a segment in which every doc is a row of the table."""

    VALID = "VALID"


@dataclass(frozen=True, slots=True)
class SomeDocs:
    """Valid docs of a segment in which some docs are rows of the table. Queries must not see the other docs."""

    words: NDArray[np.uint64]
    """Bit words, lowest bit first, 1 = valid."""
    with_tombstones: NDArray[np.uint64] | None = None
    """Bit words of the valid docs and the tombstones; None if there are no tombstones."""


ValidDocs = EveryDoc | SomeDocs
EVERY_DOC: Final = EveryDoc.VALID


class Reader(Protocol):
    """Reader of one column; `segment.column.ColumnReader` explains its members. Members that may be None are
    optional."""

    @property
    def type(self) -> TypeName: ...
    @property
    def multi_value(self) -> bool: ...
    @property
    def dictionary(self) -> ValueDictionary | None: ...
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


@runtime_checkable
class ScaledReader(Protocol):
    """Column that also keeps its BIG_DECIMAL values as whole numbers."""

    @property
    def is_scaled(self) -> bool:
        """True if the values have been parsed."""
        ...

    def scaled(self) -> Scaled | None:
        """Return the numbers by dict id, or by doc without a dictionary; None if 64 bits may not hold them."""
        ...


@runtime_checkable
class BlockSignatureReader(Protocol):
    """Column of very many distinct values that may have a Bloom signature of each block."""

    def docs_of(self, wanted: int) -> Docs | None:
        """Return the docs of a dict id, or of a whole number without a dictionary; None if a scan is needed."""
        ...

    def note_scan(self) -> None:
        """Note that a scan has searched for one value; the column may then make signatures that shorten later
        searches."""
        ...


class RowReader(Reader, Protocol):
    """Column of a segment that also returns values of chosen docs."""

    @property
    def num_docs(self) -> int: ...
    def take_dict_ids(self, docs: Docs) -> Array: ...
    def take_values(self, docs: Docs) -> Array: ...
    def take_strings(self, docs: Docs) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class Instants:
    """Instants in milliseconds since 1970; None if not known."""

    created_ms: int | None = None
    first_ms: int | None = None
    """First instant of the table's time column; None without rows, or if a value is no instant."""
    last_ms: int | None = None


class Segment(Protocol):
    """Segment with a fixed number of docs."""

    @property
    def key(self) -> SegmentKey: ...
    @property
    def num_docs(self) -> int: ...
    @property
    def valid_docs(self) -> ValidDocs:
        """Docs that are rows of the table. Code that iterates over a segment's docs has to ask for them."""
        ...

    @property
    def instants(self) -> Instants:
        """Creation time of the segment, and the first and last time of its rows."""
        ...

    def column(self, name: str) -> RowReader | None:
        """Return the reader of a column; None if the segment lacks it."""
        ...

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Return whole numbers between which every value of the column lies; None if unknown."""
        ...
