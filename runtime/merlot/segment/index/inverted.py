"""Inverted index: for each dict id the docs that hold it. FORMAT.md §5.8.

An entry is the docs themselves (u32, ascending) or a roaring bitmap in the portable format, whichever is smaller: a
value of few docs would pay 18 bytes of roaring headers, a frequent value four bytes per doc. An entry of four bytes per
doc is plain, because a bitmap is written only if it is shorter.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from merlot.kernels import bits, roaring
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.index.kind import Index, IndexedColumn, IndexedPredicate, Offer, ascending
from merlot.segment.metadata import ColumnMetadata, Shapes
from merlot.spec.indexing import IndexingSpec

COUNTS = "inverted.counts"
OFFSETS = "inverted.offsets"
DOCS = "inverted.docs"
PLAIN_DOCS: Final = 16
"""Number of docs up to which no bitmap is tried."""
NS_PER_ENTRY: Final = 5000.0
"""Cost of an entry in a union: 3 us for a short one, 6 to 8 for a bitmap."""
NS_PER_DOC: Final = 4.0
SORTED_NS_PER_DOC: Final = 6.0
"""Cost of a doc of consecutive plain entries, which are sorted as one."""

# Write


def write(ids: Array, offsets: NDArray[np.uint32] | None, cardinality: int) -> dict[str, Array]:
    """Return the buffers of the index of a column, whose docs' values start at `offsets` if it is multi-value."""
    return write_groups("inverted.", *grouped(ids, offsets, cardinality))


def grouped(
    ids: Array, offsets: NDArray[np.uint32] | None, cardinality: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the docs by dict id, and where those of each start. A doc that holds a value twice is listed once."""
    starts = np.zeros(cardinality + 1, dtype=np.uint32)
    positions = np.empty(len(ids), dtype=np.uint32)
    bits.group_docs(ids, starts, positions)
    if offsets is None:
        return positions, starts
    doc_of = np.repeat(np.arange(len(offsets) - 1, dtype=np.uint32), np.diff(offsets))
    docs = doc_of[positions]
    group_of = np.repeat(np.arange(cardinality, dtype=np.uint32), np.diff(starts))
    keep = np.ones(len(docs), dtype=np.bool_)
    keep[1:] = (docs[1:] != docs[:-1]) | (group_of[1:] != group_of[:-1])
    counts = np.bincount(group_of[keep], minlength=cardinality)
    return docs[keep], np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)


def write_groups(prefix: str, docs: NDArray[np.uint32], starts: NDArray[np.uint32]) -> dict[str, Array]:
    """Return the buffers of docs by entry, from `grouped`."""
    counts = np.diff(starts)
    payload = bytearray()
    offsets = np.zeros(len(starts), dtype="<u8")
    bounds = starts.tolist()
    for dict_id, (start, stop) in enumerate(pairwise(bounds)):
        payload += _entry(docs[start:stop])
        offsets[dict_id + 1] = len(payload)
    arrays = (counts, offsets, np.frombuffer(payload, dtype=np.uint8))
    return dict(zip((f"{prefix}counts", f"{prefix}offsets", f"{prefix}docs"), arrays, strict=True))


def _entry(docs: NDArray[np.uint32]) -> bytes:
    plain = docs.astype("<u4", copy=False).tobytes()
    if len(docs) <= PLAIN_DOCS:
        return plain
    bitmap = BitMap(docs)
    bitmap.run_optimize()
    roaring: bytes = bitmap.serialize()
    roaring += bytes(-len(roaring) % 4)
    return roaring if len(roaring) < len(plain) else plain


# Check


def check(counts: NDArray[np.uint32], offsets: Array, docs: Array, what: str, file: MappedFile) -> None:
    """Raise CorruptionError unless the entries cover their buffer and none is longer than four bytes per doc. The docs
    of an entry are checked when it is read."""
    ends = offsets.view(np.int64)
    lengths = np.diff(ends)
    covers = ends[0] == 0 and ends[-1] == len(docs) and not np.any(ends & 3)
    fit = bool(np.all((lengths >= 0) & (lengths <= 4 * counts.astype(np.int64))))
    file.require(bool(covers) and fit, f"entries do not cover their buffer {what}")


def agrees(index: "InvertedIndex", docs: NDArray[np.uint32], starts: NDArray[np.uint32]) -> bool:
    """Return True if an index lists these docs for each dict id, from `grouped`."""
    return all(
        np.array_equal(index.doc_ids(dict_id), docs[start:stop])
        for dict_id, (start, stop) in enumerate(pairwise(starts.tolist()))
    )


# Read


class InvertedIndex:
    """Docs by dict id, or by the number of another kind of entry."""

    def __init__(
        self, prefix: str, num_entries: int, metadata: ColumnMetadata, num_docs: int, file: MappedFile
    ) -> None:
        buffers = metadata.buffers
        self._counts = file.array(buffers[f"{prefix}counts"], num_entries)
        self._offsets = file.array(buffers[f"{prefix}offsets"], num_entries + 1)
        self._docs = file.array(buffers[f"{prefix}docs"])
        self._num_docs = num_docs
        self._name = f"{metadata.name} index={prefix[:-1]}"
        self._file = file
        check(self._counts, self._offsets, self._docs, f"column={self._name}", file)

    def count(self, dict_id: int) -> int:
        """Return the number of docs that hold the value."""
        return int(self._counts[dict_id])

    def counts(self) -> NDArray[np.uint32]:
        """Return the number of docs of every dict id."""
        return self._counts

    def doc_ids(self, dict_id: int) -> NDArray[np.uint32]:
        """Return the docs that hold the value, ascending. Raises CorruptionError if they are not docs of this segment
        or not as many as counted: kernels read them unchecked."""
        entry, count = self._entry(dict_id), self.count(dict_id)
        if len(entry) == 4 * count:
            docs = entry.view("<u4")
            is_right = bool(roaring.ascend(docs)) and (not count or int(docs[-1]) < self._num_docs)
            self._file.require(is_right, f"docs do not ascend dict_id={dict_id} column={self._name}")
            return docs
        self._check_bitmap(entry, dict_id)
        return np.frombuffer(BitMap.deserialize(entry.tobytes()).to_array(), dtype=np.uint32)

    def union(self, dict_ids: Sequence[int]) -> NDArray[np.uint32]:
        """Return the docs that hold any of the values, ascending, each once. Raises CorruptionError."""
        if len(dict_ids) == 1:
            return self.doc_ids(dict_ids[0])
        if isinstance(dict_ids, range) and self.is_plain(dict_ids):
            docs = self._entry(dict_ids).view("<u4")
            are_known = not len(docs) or int(docs.max()) < self._num_docs
            self._file.require(are_known, f"docs of an index do not exist column={self._name}")
            return ascending(docs, self._num_docs)
        merged = BitMap.union(*(self._bitmap(dict_id) for dict_id in dict_ids)) if len(dict_ids) else BitMap()
        return np.frombuffer(merged.to_array(), dtype=np.uint32)

    def is_plain(self, dict_ids: range) -> bool:
        """Return True if none of these consecutive entries is a bitmap, which would be shorter."""
        return len(self._entry(dict_ids)) == 4 * int(self._counts[dict_ids.start : dict_ids.stop].sum())

    def _bitmap(self, dict_id: int) -> BitMap:
        entry = self._entry(dict_id)
        if len(entry) == 4 * self.count(dict_id):
            return BitMap(self.doc_ids(dict_id))
        self._check_bitmap(entry, dict_id)
        return BitMap.deserialize(entry.tobytes())

    def _check_bitmap(self, entry: NDArray[np.uint8], dict_id: int) -> None:
        is_right = roaring.count_bitmap(entry, self._num_docs) == self.count(dict_id)
        self._file.require(is_right, f"no bitmap of its docs dict_id={dict_id} column={self._name}")

    def _entry(self, which: int | range) -> NDArray[np.uint8]:
        """Return one entry, or several consecutive ones."""
        first, stop = (which.start, which.stop) if isinstance(which, range) else (which, which + 1)
        return self._docs[int(self._offsets[first]) : int(self._offsets[stop])]


class _Inverted(Index[InvertedIndex]):
    name = "inverted"
    buffers = (COUNTS, OFFSETS, DOCS)
    finds_docs = True

    def write(self, column: IndexedColumn, indexing: IndexingSpec) -> dict[str, Array]:
        assert column.ids is not None
        assert column.distinct is not None
        return write(column.ids, column.offsets, len(column.distinct))

    def shapes(self, column: ColumnMetadata, num_docs: int) -> Shapes:
        if not column.encoding.has_dictionary:
            return {}
        cardinality = column.cardinality or 0
        sizes = {COUNTS: (("u4",), cardinality), OFFSETS: (("u8",), cardinality + 1)}
        return {**sizes, DOCS: (("u1",), None)}

    def read(self, column: ColumnMetadata, num_docs: int, file: MappedFile) -> InvertedIndex:
        index = InvertedIndex("inverted.", column.cardinality or 0, column, num_docs, file)
        listed = int(index.counts().sum())
        is_whole = listed <= column.total_values if column.multi_value else listed == column.total_values
        file.require(is_whole, f"entries are not those of an inverted index column={column.name}")
        return index

    def agrees(self, index: InvertedIndex, column: IndexedColumn) -> bool:
        assert column.ids is not None
        return agrees(index, *grouped(column.ids, column.offsets, len(index.counts())))

    def offer(self, index: InvertedIndex, predicate: IndexedPredicate) -> Offer | None:
        """Offer the union of the docs of the dict ids that match."""
        ids = predicate.ids
        if ids is None:
            return None
        if not isinstance(ids, range):
            count = int(index.counts()[ids].sum())
            cost_ns = len(ids) * NS_PER_ENTRY + count * NS_PER_DOC
            return Offer(self.name, count, cost_ns, lambda: index.union(ids.tolist()))
        if len(ids) == 1:
            # The most frequent case: a slice and its sum would take a third of the time of the predicate.
            count = index.count(ids.start)
            return Offer(self.name, count, count * NS_PER_DOC, partial(index.doc_ids, ids.start))
        count = int(index.counts()[ids.start : ids.stop].sum())
        of_entries, of_docs = (1.0, SORTED_NS_PER_DOC) if index.is_plain(ids) else (len(ids), NS_PER_DOC)
        cost_ns = of_entries * NS_PER_ENTRY + count * of_docs
        return Offer(self.name, count, cost_ns, partial(index.union, ids))


INDEX = _Inverted()
