"""Starts of the values of each doc of a multi-value column. FORMAT.md §5.5.

They are stored as lengths, in as few bits as the longest doc needs, because most docs are short; they are read as
offsets.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import bits
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.metadata import BufferRef, ColumnMetadata, Shapes

LENGTHS = "mv.lengths"

# Write


def write(offsets: NDArray[np.uint32], max_values_per_doc: int) -> dict[str, NDArray[np.uint64]]:
    """Return the buffers of offsets (num_docs + 1,)."""
    lengths = np.diff(offsets)
    width = max_values_per_doc.bit_length()
    words = np.zeros(bits.packed_words(len(lengths), width), dtype="<u8")
    if width:
        bits.pack(lengths, 0, width, words)
    return {LENGTHS: words}


# Check


def shapes(column: ColumnMetadata, num_docs: int) -> Shapes:
    """Return the shapes of the lengths."""
    return {LENGTHS: (("u8",), bits.packed_words(num_docs, column.max_values_per_doc.bit_length()))}


# Read


class MultiValueOffsets:
    """Offsets of the docs' values, decoded into the decode cache."""

    def __init__(
        self, metadata: ColumnMetadata, num_docs: int, buffers: Mapping[str, BufferRef], file: MappedFile
    ) -> None:
        self._file = file
        self._num_docs = num_docs
        self._num_values = metadata.total_values
        self._name = metadata.name
        self._width = metadata.max_values_per_doc.bit_length()
        self._words = buffers[LENGTHS]
        self._place = f"{metadata.name}/offsets"

    def all(self) -> NDArray[np.uint32]:
        """Return all offsets (num_docs + 1,), read-only. Raises CorruptionError if their end is not the number of
        values."""
        return self._file.decoded(self._place, self._num_docs + 1, np.dtype(np.uint32), self._decode)

    def _decode(self, offsets: Array) -> None:
        if self._width:
            lengths = np.empty(self._num_docs, dtype=np.uint32)
            words = self._file.array(self._words, bits.packed_words(self._num_docs, self._width))
            bits.unpack(words, self._width, 0, 0, lengths)
            np.cumsum(lengths, out=offsets[1:])
            num_values = int(lengths.sum(dtype=np.uint64))
        else:
            num_values = 0
        self._file.require(num_values == self._num_values, f"docs list {num_values} values column={self._name}")
