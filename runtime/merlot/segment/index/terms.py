"""Terms that values hold, ascending, and the docs of each: the common part of indexes for searching. FORMAT.md §5.11.

A subclass says which terms a value has, and which terms a predicate wants. Where terms alone do not decide, the docs
that have the wanted terms are candidates, and the query looks at their values.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from merlot.kernels import ordering
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.build.coding import code
from merlot.segment.index import inverted, variable
from merlot.segment.index.dictionary import Slices
from merlot.segment.index.inverted import InvertedIndex
from merlot.segment.index.kind import Index, IndexedColumn, IndexedPredicate, Offer
from merlot.segment.metadata import ColumnMetadata, Shapes
from merlot.spec.indexing import IndexingSpec
from merlot.tree.nodes import Call
from merlot.values.types import TypeName
from merlot.vectors.runs import rows_of_runs

Offsets = NDArray[np.uint32]
VALUE_NS: Final = 3000.0
"""Cost of looking at the value of a candidate."""


@dataclass(frozen=True, slots=True)
class TermRange:
    """Docs that have a term in the half-open range from `first` to `stop` that passes the test, if there is a test."""

    first: bytes
    stop: bytes
    test: Callable[[bytes], bool] | None = None


P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class AllOf(Generic[P]):
    """Docs that match every part."""

    parts: tuple[P, ...]


@dataclass(frozen=True, slots=True)
class AnyOf(Generic[P]):
    """Docs that match at least one part."""

    parts: tuple[P, ...]


Wanted = TermRange | AllOf["Wanted"] | AnyOf["Wanted"]
TermNumbers = Sequence[int] | AllOf["TermNumbers"] | AnyOf["TermNumbers"]
"""Numbers of terms, ascending, combined as the wanted terms are."""


class Search(NamedTuple):
    """Terms that a predicate wants of a doc."""

    wanted: Wanted
    is_exact: bool
    """True if exactly the docs with these terms match; False if the docs that match are among them."""
    negate: bool = False
    """True if the predicate is that a doc does not match."""


def exactly(term: bytes) -> TermRange:
    """Return the range that holds one term only."""
    return TermRange(term, term + b"\0")


# Write


def flat(lists: Iterable[Collection[bytes]]) -> tuple[pa.Array, Offsets]:
    """Return the terms of all lists, one list's after another's, and where each list's terms start."""
    terms: list[bytes] = []
    ends = [0]
    for list_terms in lists:
        terms.extend(list_terms)
        ends.append(len(terms))
    return pa.array(terms, pa.binary()), np.array(ends, np.uint32)


def _of_docs(ids: Array, ends: Offsets, value_of: Array) -> tuple[Array, Offsets]:
    """Return the ids of terms by doc and where each doc's ids start, from the ids by value. value_of: number of each
    doc's value."""
    starts, lengths = ends[:-1].astype(np.int64)[value_of], np.diff(ends).astype(np.int64)[value_of]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    positions = rows_of_runs(starts, offsets)
    return ids[positions], offsets.astype(np.uint32)


# Read


class Terms:
    """The terms of a column, and the docs of each."""

    def __init__(self, name: str, column: ColumnMetadata, num_docs: int, file: MappedFile) -> None:
        """Raises CorruptionError."""
        prefix = f"{name}.terms."
        num_terms = column.buffers[f"{name}.counts"].size
        offsets, data = variable.arrays(prefix, column, num_terms, file)
        covers = int(offsets[0]) == 0 and int(offsets[-1]) == len(data) and bool(np.all(offsets[1:] >= offsets[:-1]))
        ascend = covers and bool(ordering.strings_ascend(offsets, data))
        file.require(ascend, f"terms do not ascend index={name} column={column.name}")
        self.terms: Sequence[bytes] = Slices(offsets, data)
        self.docs_of = InvertedIndex(f"{name}.", num_terms, column, num_docs, file)
        self._num_docs = num_docs

    def numbers_of(self, wanted: Wanted) -> TermNumbers:
        """Return the numbers of the wanted terms that the column has."""
        match wanted:
            case AllOf(parts):
                return AllOf(tuple(map(self.numbers_of, parts)))
            case AnyOf(parts):
                return AnyOf(tuple(map(self.numbers_of, parts)))
        first = bisect_left(self.terms, wanted.first)
        numbers = range(first, max(first, bisect_left(self.terms, wanted.stop)))
        test = wanted.test
        return numbers if test is None else [number for number in numbers if test(self.terms[number])]

    def count(self, numbers: TermNumbers) -> int:
        """Return an upper bound of the number of wanted docs."""
        match numbers:
            case AllOf(parts):
                return min(map(self.count, parts))
            case AnyOf(parts):
                return min(self._num_docs, sum(map(self.count, parts)))
        counts = self.docs_of.counts()
        wanted_counts = counts[numbers.start : numbers.stop] if isinstance(numbers, range) else counts[numbers]
        return min(self._num_docs, int(wanted_counts.sum()))

    def docs(self, numbers: TermNumbers) -> NDArray[np.uint32]:
        """Return the wanted docs, ascending, each once. Raises CorruptionError."""
        if isinstance(numbers, AllOf | AnyOf):
            return np.frombuffer(self._bitmap(numbers).to_array(), np.uint32)
        return self.docs_of.union(numbers)

    def _bitmap(self, numbers: TermNumbers) -> BitMap:
        match numbers:
            case AllOf(parts):
                first, *rest = sorted(parts, key=self.count)
                common = self._bitmap(first)
                for part in rest:
                    common &= self._bitmap(part)
                return common
            case AnyOf(parts):
                return BitMap.union(*map(self._bitmap, parts))
        return BitMap(self.docs(numbers))


def _num_terms(numbers: TermNumbers) -> int:
    return sum(map(_num_terms, numbers.parts)) if isinstance(numbers, AllOf | AnyOf) else len(numbers)


class TermIndex(Index[Terms]):
    """An index of terms. A subclass says which terms its values have."""

    finds_docs = True
    value_ns = VALUE_NS
    """Cost of looking at the value of a candidate."""

    @abstractmethod
    def terms_of(self, values: pa.Array) -> tuple[pa.Array, Offsets]:
        """Return the terms of texts, as bytes, one text's after another's, and where each text's terms start."""

    def coded_terms(self, values: pa.Array) -> tuple[pa.Array, Array, Offsets]:
        """Return the distinct terms, ascending; the numbers of each text's terms; and where each text's numbers
        start."""
        terms, ends = self.terms_of(values)
        coded = code(TypeName.BYTES, terms)
        assert not isinstance(coded.values, np.ndarray)
        return coded.values, coded.ids, ends

    @abstractmethod
    def search(self, call: Call) -> Search | None:
        """Return what a predicate wants, None if terms do not decide anything. Its function is one of `searches`."""

    def write(self, column: IndexedColumn, indexing: IndexingSpec) -> dict[str, Array]:
        terms, starts, docs = self._grouped(column)
        offsets, data = variable.buffers_of(terms)
        written = {f"{self.name}.terms.offsets": offsets, f"{self.name}.terms.bytes": data}
        return written | inverted.write_groups(f"{self.name}.", docs, starts)

    def _grouped(self, column: IndexedColumn) -> tuple[pa.Array, Offsets, Offsets]:
        values = column.values() if column.ids is None else column.distinct
        terms, ids, ends = self.coded_terms(values)
        if column.ids is not None:
            ids, ends = _of_docs(ids, ends, column.ids)
        docs, starts = inverted.grouped(ids, ends, len(terms))
        return terms, starts, docs

    def shapes(self, column: ColumnMetadata, num_docs: int) -> Shapes:
        dtypes = (("i4", "i8"), ("u1",), ("u4",), ("u8",), ("u1",))
        shapes: Shapes = {buffer: (names, None) for buffer, names in zip(self.buffers, dtypes, strict=True)}
        return {} if column.multi_value else shapes

    def read(self, column: ColumnMetadata, num_docs: int, file: MappedFile) -> Terms:
        return Terms(self.name, column, num_docs, file)

    def agrees(self, index: Terms, column: IndexedColumn) -> bool:
        terms, starts, docs = self._grouped(column)
        return list(index.terms) == terms.to_pylist() and inverted.agrees(index.docs_of, docs, starts)

    def offer(self, index: Terms, predicate: IndexedPredicate) -> Offer | None:
        """Offer the docs that have the terms that the predicate wants."""
        call = predicate.call
        search = self.search(call) if call is not None and call.function in self.searches else None
        if search is None:
            return None
        numbers = index.numbers_of(search.wanted)
        count = index.count(numbers)
        per_doc = inverted.NS_PER_DOC + (0.0 if search.is_exact else self.value_ns)
        cost_ns = inverted.NS_PER_ENTRY * (1 + _num_terms(numbers)) + per_doc * count
        find = partial(index.docs, numbers)
        return Offer(self.name, count, cost_ns, find, is_exact=search.is_exact, negate=search.negate)


def buffers_of(name: str) -> tuple[str, ...]:
    """Return the names of the buffers of an index of terms."""
    return tuple(f"{name}.{part}" for part in ("terms.offsets", "terms.bytes", "counts", "offsets", "docs"))
