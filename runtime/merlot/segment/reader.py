"""What whoever reads rows asks of a segment, sealed or consuming, and of a column of it.

`segment.column.ColumnReader` reads a file, `segment.mutable` a prefix of rows that are still arriving. Arrays are
read-only, stay as they are and may be kept. Any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.ids import SegmentKey
from merlot.segment.index.dictionary import Dictionary
from merlot.segment.index.kind import ColumnIndexes
from merlot.segment.index.zones import ZoneMaps
from merlot.values.types import TypeName
from merlot.vectors.scaled import Scaled

Array = NDArray[Any]
Docs = NDArray[np.uint32]


class EveryDoc(Enum):
    """Every doc of a segment is a row of the table."""

    VALID = "VALID"


@dataclass(frozen=True, slots=True)
class SomeDocs:
    """Of a segment's docs some are rows of the table; others are there and must not be seen."""

    words: NDArray[np.uint64]
    """Bit words, lowest bit first, 1 = valid."""
    with_deleted: NDArray[np.uint64] | None = None
    """The same with rows that say that their key is deleted; None: there are none such."""


ValidDocs = EveryDoc | SomeDocs
EVERY_DOC: Final = EveryDoc.VALID


class Reader(Protocol):
    """One column; `segment.column.ColumnReader` says what each means. Whatever may be None may be missing."""

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


@runtime_checkable
class ScaledReader(Protocol):
    """A column that keeps its BIG_DECIMAL values as whole numbers, too."""

    @property
    def is_scaled(self) -> bool:
        """Whether they have been parsed."""
        ...

    def scaled(self) -> Scaled | None:
        """By dict id, or by doc where there is no dictionary; None where 64 bits may not hold them."""
        ...


@runtime_checkable
class PrintedReader(Protocol):
    """A column that remembers which blocks may hold one of its very many values."""

    def docs_of(self, wanted: int) -> Docs | None:
        """Docs of a dict id, or of a whole number where there is no dictionary; None if a scan has to tell."""
        ...

    def print_blocks(self) -> None:
        """A scan has looked for one value: have the next look be shorter, if that is of use."""
        ...


class RowReader(Reader, Protocol):
    """A column of a segment that hands out chosen docs, too."""

    @property
    def num_docs(self) -> int: ...
    def take_dict_ids(self, docs: Docs) -> Array: ...
    def take_values(self, docs: Docs) -> Array: ...
    def take_strings(self, docs: Docs) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class Instants:
    """Milliseconds since 1970; None is not known."""

    created_ms: int | None = None
    first_ms: int | None = None
    """Of the table's time column, the least; of no rows, or where one is no instant, None."""
    last_ms: int | None = None


class Segment(Protocol):
    """Docs whose number does not change."""

    @property
    def key(self) -> SegmentKey: ...
    @property
    def num_docs(self) -> int: ...
    @property
    def valid_docs(self) -> ValidDocs:
        """Which docs count. Whoever goes through a segment's docs asks."""
        ...

    @property
    def instants(self) -> Instants:
        """When it was made, and of when its rows are."""
        ...

    def column(self, name: str) -> RowReader | None:
        """Reader of a column; None if the segment lacks it."""
        ...

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Whole numbers between which every value of the column lies, if known."""
        ...
