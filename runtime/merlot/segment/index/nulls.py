"""Null bitmap: the docs that have no value. Their slot holds the column's default. FORMAT.md §5.6."""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import bits
from merlot.segment.buffers import MappedFile
from merlot.segment.metadata import ColumnMetadata, Shapes

WORDS = "nulls"

# Write


def words_of(is_null: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return bit words, lowest bit first, 1 = null."""
    packed = np.packbits(is_null, bitorder="little")
    words = np.zeros((len(is_null) + 63) // 64, dtype="<u8")
    words.view(np.uint8)[: len(packed)] = packed
    return words


# Check


def shapes(column: ColumnMetadata, num_docs: int) -> Shapes:
    """Return the shape of the bitmap, which exists if a doc is null."""
    return {WORDS: (("u8",), (num_docs + 63) // 64)} if column.num_nulls else {}


def check(words: NDArray[np.uint64], metadata: ColumnMetadata, num_docs: int, file: MappedFile) -> None:
    """Raise CorruptionError unless as many docs are null as the footer says, and no bit is set past the docs."""
    past = int(words[-1]) >> (num_docs % 64) if num_docs % 64 else 0
    counts = np.zeros(1, np.uint32)
    bits.count_bits(words, len(words), counts)
    is_right = not past and int(counts[0]) == metadata.num_nulls
    file.require(is_right, f"nulls are not {metadata.num_nulls} of {num_docs} docs column={metadata.name}")


# Read


def read(metadata: ColumnMetadata, num_docs: int, file: MappedFile) -> NDArray[np.uint64] | None:
    """Return bit words, or None if no doc is null."""
    ref = metadata.buffers.get(WORDS)
    if ref is None:
        return None
    words = file.array(ref, (num_docs + 63) // 64)
    check(words, metadata, num_docs, file)
    return words
