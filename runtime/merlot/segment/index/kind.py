"""What an index is to everybody who does not know it: builder, footer checks, reader, inspector, resolver.

A module of this package with an `INDEX` is one; `spec.indexing.IndexingSpec` declares it in a field of the module's
name, and `registry` finds it by that. An index is of one column. It may answer predicates: `offer` says at what price,
before anything is read, and a query takes the cheapest offer, or scans if that is cheaper.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import scan
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.metadata import ColumnMetadata, Shapes
from merlot.spec.indexing import IndexingSpec
from merlot.tree.nodes import Call
from merlot.values.types import TypeName

R = TypeVar("R")
FEW_DOCS: Final = 512
"""So many are sorted in less time than the words of a million docs are cleared and read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedColumn:
    """The values that an index is made of, in order."""

    name: str
    type: TypeName
    num_docs: int
    distinct: Array | pa.Array | None
    """Each value once, ascending, where they were counted; those of the dictionary, if there is one."""
    ids: Array | None
    """Dict ids; None of a raw column."""
    values: Callable[[], Array | pa.Array]
    """The values themselves: of a column with a dictionary they have to be made."""
    offsets: NDArray[np.uint32] | None
    """Of a multi-value column, where each doc's values start."""


class Asked(NamedTuple):
    """A predicate on one column, as far as the resolver got with it without a row. A tuple, as `Offer` is: every point
    query makes one per segment."""

    column: str
    num_docs: int
    scan_ns: Callable[[], float]
    """What looking at all docs would cost that zone maps do not exclude; takes some microseconds to tell."""
    values: Callable[[], Array]
    """Dict ids, or numbers of a raw column."""
    ids: range | NDArray[np.int64] | None = None
    """Dict ids of matching values, ascending; None of a raw column."""
    bounds: tuple[Any, Any] | None = None
    """Of a raw column: the smallest and the largest number that match, of its dtype. NaN does not."""
    call: Call | None = None
    """A predicate that looks inside values, which nobody has looked at: none of the other two is given."""
    is_multi_value: bool = False


class Offer(NamedTuple):
    """What an index would do for a predicate: find the docs that match."""

    name: str
    """Of the index."""
    num_docs: int
    """That it would find, about."""
    cost_ns: float
    docs: Callable[[], NDArray[np.uint32]]
    """Finds them, ascending, each once. Raises CorruptionError."""
    is_exact: bool = True
    """Else the docs that match are among them."""
    negate: bool = False
    """Whether they match what the predicate is not; only of a call."""


def ascending(docs: NDArray[np.uint32], num_docs: int) -> NDArray[np.uint32]:
    """Docs in order, each once; all are less than `num_docs`."""
    if len(docs) <= FEW_DOCS:
        return np.unique(docs)
    words = np.zeros((num_docs + 63) >> 6, np.uint64)
    scan.set_docs(docs, 0, num_docs, words)
    found = np.empty(scan.count_words(words), np.uint32)
    scan.list_docs(words, 0, found)
    return found


class Index(ABC, Generic[R]):
    """One kind of index; `R` is what it is read as. Stateless; readers are immutable and safe on any thread."""

    name: str
    buffers: tuple[str, ...]
    """Names of its buffers in a column, each `name.…`. They are stored plainly: they are read by value."""
    finds_docs: bool = False
    """Whether `offer` may say anything but None."""
    searches: frozenset[str] = frozenset()
    """Functions that look inside values, and of which it is asked by the call."""

    @abstractmethod
    def write(self, column: IndexedColumn, indexing: IndexingSpec) -> dict[str, Array]:
        """The index's buffers, as the table asks for it."""

    @abstractmethod
    def shapes(self, column: ColumnMetadata, num_docs: int) -> Shapes:
        """Of its buffers; empty if such a column cannot have the index. For columns that have a part of it."""

    @abstractmethod
    def read(self, column: ColumnMetadata, num_docs: int, file: MappedFile) -> R:
        """The index of a column that has it. Raises CorruptionError for what would be trusted with memory."""

    @abstractmethod
    def agrees(self, index: R, column: IndexedColumn) -> bool:
        """Whether it is an index of these values. Raises CorruptionError."""

    def offer(self, index: R, asked: Asked) -> Offer | None:
        """How it would answer a predicate; None if it cannot. Takes microseconds: it is asked before every scan."""
        return None


AnyIndex = Index[Any]


class IndexPlace(NamedTuple):
    """Indexes of a column that lie in one file: the segment's own, or one beside it."""

    present: tuple[AnyIndex, ...]
    column: ColumnMetadata
    """What is known of the column, with the buffers that are in this file."""
    file: MappedFile


class ColumnIndexes:
    """Indexes that a column has, each read when it is first asked for. Any thread."""

    __slots__ = ("_finders", "_known", "_num_docs", "_places")

    def __init__(self, places: Sequence[IndexPlace], num_docs: int) -> None:
        """places: of two that have an index of one kind, the last counts."""
        self._places = {index.name: place for place in places for index in place.present}
        present = (index for place in places for index in place.present)
        self._finders = tuple({index.name: index for index in present if index.finds_docs}.values())
        self._num_docs = num_docs
        self._known: dict[str, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._places)

    def get(self, index: Index[R]) -> R | None:
        """The index as it is read; None if the column has none of this kind. Raises CorruptionError."""
        known: R | None = self._read(index) if index.name in self._places else None
        return known

    def offers(self, asked: Asked) -> list[Offer]:
        """How the indexes would answer a predicate. Raises CorruptionError."""
        found = []
        for index in self._finders:
            known = self._known.get(index.name)
            offer = index.offer(self._read(index) if known is None else known, asked)
            if offer is not None:
                found.append(offer)
        return found

    def _read(self, index: AnyIndex) -> Any:
        known = self._known.get(index.name)
        if known is None:
            place = self._places[index.name]
            known = self._known[index.name] = index.read(place.column, self._num_docs, place.file)
        return known
