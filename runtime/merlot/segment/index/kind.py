"""Interface of indexes, for all code that does not know their kinds: builder, footer checks, reader, inspector,
resolver.

A module of this package with an `INDEX` is one kind of index. `spec.indexing.IndexingSpec` declares it in a field of
the module's name, by which `registry` finds it. An index covers one column. It may answer predicates: `offer` states
the cost before anything is read. A query takes the cheapest offer, or scans if that is cheaper.
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
"""Number of docs up to which sorting them is faster than clearing and reading the bitmap of a million docs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedColumn:
    """Values that an index is built from, in order."""

    name: str
    type: TypeName
    num_docs: int
    distinct: Array | pa.Array | None
    """Distinct values, ascending, where they were counted; the values of the dictionary, if there is one."""
    ids: Array | None
    """Dict ids; None for a raw column."""
    values: Callable[[], Array | pa.Array]
    """Function that returns the values. For a column with a dictionary it has to materialize them."""
    offsets: NDArray[np.uint32] | None
    """Starts of the docs' values in a multi-value column."""


class IndexedPredicate(NamedTuple):
    """A predicate on one column, as far as the resolver gets without reading a row.

    A tuple, as `Offer` is, because every point query makes one per segment."""

    column: str
    num_docs: int
    scan_ns: Callable[[], float]
    """Function that returns the cost of scanning all docs that zone maps do not exclude. It takes some microseconds."""
    values: Callable[[], Array]
    """Function that returns dict ids, or the numbers of a raw column."""
    ids: range | NDArray[np.int64] | None = None
    """Dict ids of matching values, ascending; None for a raw column."""
    bounds: tuple[Any, Any] | None = None
    """Smallest and largest number that match, in the dtype of the raw column. NaN does not match."""
    call: Call | None = None
    """Predicate that looks inside values and was not evaluated yet; `ids` and `bounds` are None then."""
    is_multi_value: bool = False


class Offer(NamedTuple):
    """Offer of an index to find the docs that match a predicate."""

    name: str
    """Name of the index."""
    num_docs: int
    """Number of docs that it would find, estimated."""
    cost_ns: float
    docs: Callable[[], NDArray[np.uint32]]
    """Function that returns the docs, ascending, each once. Raises CorruptionError."""
    is_exact: bool = True
    """True if exactly the returned docs match; False if the docs that match are among them."""
    negate: bool = False
    """True if the returned docs match the negation of the predicate; only for a `call`."""


def ascending(docs: NDArray[np.uint32], num_docs: int) -> NDArray[np.uint32]:
    """Return docs in ascending order, each once; all are less than `num_docs`."""
    if len(docs) <= FEW_DOCS:
        return np.unique(docs)
    words = np.zeros((num_docs + 63) >> 6, np.uint64)
    scan.set_docs(docs, 0, num_docs, words)
    ordered = np.empty(scan.count_words(words), np.uint32)
    scan.list_docs(words, 0, ordered)
    return ordered


class Index(ABC, Generic[R]):
    """One kind of index, read as an `R`. Stateless; what it reads is immutable and safe on any thread."""

    name: str
    buffers: tuple[str, ...]
    """Names of its buffers in a column, each `name.…`. They are stored uncompressed, because single values are read
    from them."""
    finds_docs: bool = False
    """True if `offer` may return anything but None."""
    searches: frozenset[str] = frozenset()
    """Functions that look inside values, and whose calls are passed to `offer`."""

    @abstractmethod
    def write(self, column: IndexedColumn, indexing: IndexingSpec) -> dict[str, Array]:
        """Return the buffers of the index, built as the table asks for it."""

    @abstractmethod
    def shapes(self, column: ColumnMetadata, num_docs: int) -> Shapes:
        """Return the shapes of its buffers; empty if such a column cannot have the index. Called for columns that have
        at least one of the buffers."""

    @abstractmethod
    def read(self, column: ColumnMetadata, num_docs: int, file: MappedFile) -> R:
        """Return the index of a column that has it. Raises CorruptionError if its content would make a reader leave an
        array's bounds."""

    @abstractmethod
    def agrees(self, index: R, column: IndexedColumn) -> bool:
        """Return True if it is the index of these values. Raises CorruptionError."""

    def offer(self, index: R, predicate: IndexedPredicate) -> Offer | None:
        """Return how the index would answer a predicate, or None if it cannot. It takes microseconds, because it is
        called before every scan."""
        return None


AnyIndex = Index[Any]


class IndexPlace(NamedTuple):
    """Indexes of a column that lie in one file: the segment's own, or its sidecar."""

    present: tuple[AnyIndex, ...]
    column: ColumnMetadata
    """Metadata of the column, with the buffers that are in this file."""
    file: MappedFile


class ColumnIndexes:
    """Indexes that a column has, each read when it is first used. Any thread."""

    __slots__ = ("_finders", "_num_docs", "_places", "_readers")

    def __init__(self, places: Sequence[IndexPlace], num_docs: int) -> None:
        """places: if two of them have an index of one kind, the last counts."""
        self._places = {index.name: place for place in places for index in place.present}
        present = (index for place in places for index in place.present)
        self._finders = tuple({index.name: index for index in present if index.finds_docs}.values())
        self._num_docs = num_docs
        self._readers: dict[str, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._places)

    def get(self, index: Index[R]) -> R | None:
        """Return the index as it is read; None if the column has none of this kind. Raises CorruptionError."""
        reader: R | None = self._read(index) if index.name in self._places else None
        return reader

    def offers(self, predicate: IndexedPredicate) -> list[Offer]:
        """Return the offers of the indexes for a predicate. Raises CorruptionError."""
        offers = []
        for index in self._finders:
            reader = self._readers.get(index.name)
            offer = index.offer(self._read(index) if reader is None else reader, predicate)
            if offer is not None:
                offers.append(offer)
        return offers

    def _read(self, index: AnyIndex) -> Any:
        reader = self._readers.get(index.name)
        if reader is None:
            place = self._places[index.name]
            reader = self._readers[index.name] = index.read(place.column, self._num_docs, place.file)
        return reader
