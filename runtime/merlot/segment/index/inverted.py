"""Inverted index: for each dict id the docs that hold it. FORMAT.md §5.8.

An entry is the docs themselves (u32, ascending) or a roaring bitmap in the portable format, whichever is smaller: a
value of few docs would pay 18 bytes of roaring headers, a frequent one four bytes per doc. An entry that is four bytes
per doc long is plain; a bitmap is written only where it is shorter.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from merlot.kernels import bits
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.metadata import ColumnMetadata

COUNTS = "inverted.counts"
OFFSETS = "inverted.offsets"
DOCS = "inverted.docs"
PLAIN_DOCS: Final = 16
"""Up to this many docs no bitmap is tried."""

# Write


def write(ids: Array, cardinality: int) -> dict[str, Array]:
    """Buffers of the index of a single-value column."""
    starts = np.zeros(cardinality + 1, dtype=np.uint32)
    docs = np.empty(len(ids), dtype=np.uint32)
    bits.group_docs(ids, starts, docs)
    return _write_groups(docs, starts)


def write_multi_value(ids: Array, offsets: NDArray[np.uint32], cardinality: int) -> dict[str, Array]:
    """Buffers of the index of a multi-value column: a doc that holds a value twice is listed once."""
    starts = np.zeros(cardinality + 1, dtype=np.uint32)
    positions = np.empty(len(ids), dtype=np.uint32)
    bits.group_docs(ids, starts, positions)
    doc_of = np.repeat(np.arange(len(offsets) - 1, dtype=np.uint32), np.diff(offsets))
    docs = doc_of[positions]
    group_of = np.repeat(np.arange(cardinality, dtype=np.uint32), np.diff(starts))
    keep = np.ones(len(docs), dtype=np.bool_)
    keep[1:] = (docs[1:] != docs[:-1]) | (group_of[1:] != group_of[:-1])
    counts = np.bincount(group_of[keep], minlength=cardinality)
    return _write_groups(docs[keep], np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32))


def _write_groups(docs: NDArray[np.uint32], starts: NDArray[np.uint32]) -> dict[str, Array]:
    counts = np.diff(starts)
    payload = bytearray()
    offsets = np.zeros(len(starts), dtype="<u8")
    bounds = starts.tolist()
    for dict_id, (start, stop) in enumerate(pairwise(bounds)):
        payload += _entry(docs[start:stop])
        offsets[dict_id + 1] = len(payload)
    return {COUNTS: counts, OFFSETS: offsets, DOCS: np.frombuffer(payload, dtype=np.uint8)}


def _entry(docs: NDArray[np.uint32]) -> bytes:
    plain = docs.astype("<u4", copy=False).tobytes()
    if len(docs) <= PLAIN_DOCS:
        return plain
    bitmap = BitMap(docs)
    bitmap.run_optimize()
    roaring: bytes = bitmap.serialize()
    roaring += bytes(-len(roaring) % 4)
    return roaring if len(roaring) < len(plain) else plain


# Read


class InvertedIndex:
    """Docs of dict ids."""

    def __init__(self, metadata: ColumnMetadata, num_docs: int, file: MappedFile) -> None:
        cardinality = metadata.cardinality or 0
        self._counts = file.array(metadata.buffers[COUNTS], cardinality)
        self._offsets = file.array(metadata.buffers[OFFSETS], cardinality + 1)
        self._docs = file.array(metadata.buffers[DOCS])
        self._num_docs = num_docs
        self._name = metadata.name
        self._file = file

    def count(self, dict_id: int) -> int:
        """How many docs hold the value."""
        return int(self._counts[dict_id])

    def counts(self) -> NDArray[np.uint32]:
        """`count` of every dict id."""
        return self._counts

    def doc_ids(self, dict_id: int) -> NDArray[np.uint32]:
        """Docs that hold the value, ascending."""
        entry = self._entry(dict_id)
        if len(entry) == 4 * self.count(dict_id):
            return self._checked(entry.view("<u4"))
        return self._checked(np.frombuffer(BitMap.deserialize(entry.tobytes()).to_array(), dtype=np.uint32))

    def union(self, dict_ids: Sequence[int]) -> NDArray[np.uint32]:
        """Docs that hold any of the values, ascending, each once."""
        if len(dict_ids) == 1:
            return self.doc_ids(dict_ids[0])
        merged = BitMap.union(*(self._bitmap(dict_id) for dict_id in dict_ids)) if len(dict_ids) else BitMap()
        return self._checked(np.frombuffer(merged.to_array(), dtype=np.uint32))

    def _checked(self, docs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The docs, if they are of this segment: kernels read them without a look."""
        if len(docs) and docs.max() >= self._num_docs:
            self._file.require(False, f"doc {docs.max()} of {self._num_docs} column={self._name}")
        return docs

    def _bitmap(self, dict_id: int) -> BitMap:
        entry = self._entry(dict_id)
        if len(entry) == 4 * self.count(dict_id):
            return BitMap(entry.view("<u4"))
        return BitMap.deserialize(entry.tobytes())

    def _entry(self, dict_id: int) -> NDArray[np.uint8]:
        return self._docs[int(self._offsets[dict_id]) : int(self._offsets[dict_id + 1])]


def read(metadata: ColumnMetadata, num_docs: int, file: MappedFile) -> InvertedIndex | None:
    """The index, or None if the column has none."""
    return InvertedIndex(metadata, num_docs, file) if DOCS in metadata.buffers else None
