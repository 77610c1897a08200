"""Terms that values hold, ascending, and the docs of each: what indexes for searching have in common. FORMAT.md §5.11.

An index says which terms a value has, and which terms a predicate wants. Where wanted terms do not decide by
themselves, the docs found are candidates, whose values the query looks at.
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
from merlot.segment.index.kind import Asked, Index, IndexedColumn, Offer
from merlot.segment.metadata import ColumnMetadata, Shapes
from merlot.spec.indexing import IndexingSpec
from merlot.tree.nodes import Call
from merlot.values.types import TypeName
from merlot.vectors.runs import rows_of_runs

Offsets = NDArray[np.uint32]
VALUE_NS: Final = 3000.0
"""Of a candidate whose value is looked at."""


@dataclass(frozen=True, slots=True)
class Between:
    """Docs that have a term from `first` on that is less than `stop`, and passes a test if there is one."""

    first: bytes
    stop: bytes
    test: Callable[[bytes], bool] | None = None


P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class AllOf(Generic[P]):
    """Docs that each part wants."""

    parts: tuple[P, ...]


@dataclass(frozen=True, slots=True)
class AnyOf(Generic[P]):
    """Docs that some part wants."""

    parts: tuple[P, ...]


Wanted = Between | AllOf["Wanted"] | AnyOf["Wanted"]
Found = Sequence[int] | AllOf["Found"] | AnyOf["Found"]
"""Numbers of terms, ascending."""


class Search(NamedTuple):
    """What a predicate wants of the terms of a doc."""

    wanted: Wanted
    is_exact: bool
    """Whether docs with these terms are those that match; else they are among them."""
    negate: bool = False
    """Whether the predicate is that a doc does not match."""


def exactly(term: bytes) -> Between:
    """Docs that have a term."""
    return Between(term, term + b"\0")


# Write


def flat(lists: Iterable[Collection[bytes]]) -> tuple[pa.Array, Offsets]:
    """Terms, one list's after another's, and where each list's start."""
    terms: list[bytes] = []
    ends = [0]
    for some in lists:
        terms.extend(some)
        ends.append(len(terms))
    return pa.array(terms, pa.binary()), np.array(ends, np.uint32)


def _of_docs(ids: Array, ends: Offsets, value_of: Array) -> tuple[Array, Offsets]:
    """Ids of terms by doc and where each doc's start, from those by value; value_of: which value a doc has."""
    starts, lengths = ends[:-1].astype(np.int64)[value_of], np.diff(ends).astype(np.int64)[value_of]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = rows_of_runs(starts, offsets)
    return ids[places], offsets.astype(np.uint32)


# Read


class Terms:
    """Docs of terms."""

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

    def found(self, wanted: Wanted) -> Found:
        """The terms that are wanted and there."""
        match wanted:
            case AllOf(parts):
                return AllOf(tuple(map(self.found, parts)))
            case AnyOf(parts):
                return AnyOf(tuple(map(self.found, parts)))
        first = bisect_left(self.terms, wanted.first)
        numbers = range(first, max(first, bisect_left(self.terms, wanted.stop)))
        test = wanted.test
        return numbers if test is None else [number for number in numbers if test(self.terms[number])]

    def count(self, found: Found) -> int:
        """Docs that are wanted, at most."""
        match found:
            case AllOf(parts):
                return min(map(self.count, parts))
            case AnyOf(parts):
                return min(self._num_docs, sum(map(self.count, parts)))
        counts = self.docs_of.counts()
        some = counts[found.start : found.stop] if isinstance(found, range) else counts[found]
        return min(self._num_docs, int(some.sum()))

    def docs(self, found: Found) -> NDArray[np.uint32]:
        """Docs that are wanted, ascending, each once. Raises CorruptionError."""
        if isinstance(found, AllOf | AnyOf):
            return np.frombuffer(self._bitmap(found).to_array(), np.uint32)
        return self.docs_of.union(found)

    def _bitmap(self, found: Found) -> BitMap:
        match found:
            case AllOf(parts):
                first, *rest = sorted(parts, key=self.count)
                kept = self._bitmap(first)
                for part in rest:
                    kept &= self._bitmap(part)
                return kept
            case AnyOf(parts):
                return BitMap.union(*map(self._bitmap, parts))
        return BitMap(self.docs(found))


def _num_terms(found: Found) -> int:
    return sum(map(_num_terms, found.parts)) if isinstance(found, AllOf | AnyOf) else len(found)


class TermIndex(Index[Terms]):
    """An index of terms: what its values' terms are is left to say."""

    finds_docs = True
    value_ns = VALUE_NS
    """Of a candidate."""

    @abstractmethod
    def terms_of(self, values: pa.Array) -> tuple[pa.Array, Offsets]:
        """Terms of texts, as bytes, one text's after another's, and where each text's start."""

    def coded_terms(self, values: pa.Array) -> tuple[pa.Array, Array, Offsets]:
        """The distinct terms, ascending; the numbers of those of each text, and where each text's start."""
        terms, ends = self.terms_of(values)
        coded = code(TypeName.BYTES, terms)
        assert not isinstance(coded.values, np.ndarray)
        return coded.values, coded.ids, ends

    @abstractmethod
    def search(self, call: Call) -> Search | None:
        """What a predicate wants; None if terms do not tell. Its function is one of `searches`."""

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

    def offer(self, index: Terms, asked: Asked) -> Offer | None:
        """The docs with the terms that the predicate wants."""
        search = self.search(asked.call) if asked.call is not None and asked.call.function in self.searches else None
        if search is None:
            return None
        found = index.found(search.wanted)
        count = index.count(found)
        per_doc = inverted.NS_PER_DOC + (0.0 if search.is_exact else self.value_ns)
        cost_ns = inverted.NS_PER_ENTRY * (1 + _num_terms(found)) + per_doc * count
        find = partial(index.docs, found)
        return Offer(self.name, count, cost_ns, find, is_exact=search.is_exact, negate=search.negate)


def buffers_of(name: str) -> tuple[str, ...]:
    """Names of the buffers of an index of terms."""
    return tuple(f"{name}.{part}" for part in ("terms.offsets", "terms.bytes", "counts", "offsets", "docs"))
