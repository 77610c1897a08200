"""Null bitmap: which docs had no value; the slot holds the column's default. FORMAT.md §5.6."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from merlot.segment.buffers import MappedFile
from merlot.segment.metadata import BufferRef

WORDS = "nulls"

# Write


def words_of(is_null: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Bit words, lowest bit first, 1 = null."""
    packed = np.packbits(is_null, bitorder="little")
    words = np.zeros((len(is_null) + 63) // 64, dtype="<u8")
    words.view(np.uint8)[: len(packed)] = packed
    return words


# Read


def read(buffers: Mapping[str, BufferRef], num_docs: int, file: MappedFile) -> NDArray[np.uint64] | None:
    """Bit words, or None if no doc is null."""
    ref = buffers.get(WORDS)
    return None if ref is None else file.array(ref, (num_docs + 63) // 64)
