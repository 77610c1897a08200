"""Range index: the docs of a column in the order of their values. FORMAT.md §5.10.

A range of values is a part of that order, found by two binary searches. So the cost of a predicate depends on the docs
that it finds, not on the others. The measured figures of possible forms are in docs/indexes.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import bits
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.index.kind import Index, IndexedColumn, IndexedPredicate, Offer, ascending
from merlot.segment.metadata import ColumnMetadata, Shapes
from merlot.spec.indexing import IndexingSpec

DOCS = "range.docs"
SEARCH_NS: Final = 10_000.0
"""Cost of the two searches, in Python."""
NS_PER_DOC: Final = 3.0
"""Cost of a doc that is found: its bit is set, and listed."""
Docs = NDArray[np.uint32]

# Write


def ordered(column: IndexedColumn) -> Docs:
    """Return docs by value, NaN last; those of equal values ascend."""
    if column.ids is None:
        return np.argsort(column.values(), kind="stable").astype(np.uint32)
    assert column.distinct is not None
    docs = np.empty(column.num_docs, np.uint32)
    bits.group_docs(column.ids, np.zeros(len(column.distinct) + 1, np.uint32), docs)
    return docs


# Read


def _first(docs: Docs, values: Array, is_reached: Callable[[Any], bool]) -> int:
    """Return the position of the first doc whose value has reached a bound. The values of all later docs have reached
    it too."""
    return bisect_left(docs, True, key=lambda doc: is_reached(values[doc]))


class _Range(Index[Docs]):
    """Range indexes, read as the docs in the order of their values."""

    name = "range"
    buffers = (DOCS,)
    finds_docs = True

    def write(self, column: IndexedColumn, indexing: IndexingSpec) -> dict[str, Array]:
        return {DOCS: ordered(column)}

    def shapes(self, column: ColumnMetadata, num_docs: int) -> Shapes:
        return {} if column.multi_value else {DOCS: (("u4",), num_docs)}

    def read(self, column: ColumnMetadata, num_docs: int, file: MappedFile) -> Docs:
        docs = file.array(column.buffers[DOCS], num_docs)
        file.require(
            not num_docs or int(docs.max()) < num_docs, f"docs of a range index do not exist column={column.name}"
        )
        return docs

    def agrees(self, index: Docs, column: IndexedColumn) -> bool:
        return np.array_equal(index, ordered(column))

    def offer(self, index: Docs, predicate: IndexedPredicate) -> Offer | None:
        """Offer the docs between the ends of a range of values."""
        if isinstance(predicate.ids, range):
            low, high = predicate.ids.start, predicate.ids.stop - 1
        elif predicate.bounds is not None:
            low, high = predicate.bounds
        else:
            return None
        if predicate.scan_ns() < SEARCH_NS:
            return None
        values = predicate.values()
        first = _first(index, values, lambda value: not value < low)
        # NaN, which is last, is beyond every bound.
        stop = max(first, _first(index, values, lambda value: not value <= high))
        count = stop - first
        docs = index[first:stop]
        return Offer(self.name, count, SEARCH_NS + count * NS_PER_DOC, partial(ascending, docs, predicate.num_docs))


INDEX = _Range()
