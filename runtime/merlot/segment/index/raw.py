"""Forward index of fixed-width values without a dictionary: plain, or packed distances. FORMAT.md §5.3."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import bits
from merlot.segment.arrow_types import STORED_DTYPES, STORED_NAMES
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.metadata import BufferRef, ColumnEncoding, ColumnMetadata, Shapes

VALUES = "raw.values"
PACKED = "raw.packed"

# Estimate


def width_bits(low: int, high: int) -> int:
    """Return the bits of the largest distance; 0 if all values are equal."""
    return (high - low).bit_length()


def packed_size_bytes(num_values: int, width: int) -> int:
    return 8 * bits.packed_words(num_values, width)


# Write


def write(values: Array, encoding: ColumnEncoding, base: int, width: int) -> dict[str, Array]:
    """Return the buffers of the values. Values to pack are integers of at least `base` and less than `base +
    2**width`."""
    if encoding is ColumnEncoding.RAW_FIXED:
        return {VALUES: values}
    words = np.zeros(bits.packed_words(len(values), width), dtype="<u8")
    if width:
        bits.pack(values, base, width, words)
    return {PACKED: words}


# Check


def shapes(column: ColumnMetadata) -> Shapes:
    """Return the shapes of the values, whose number and width follow from the metadata."""
    if column.encoding is ColumnEncoding.RAW_FIXED:
        return {VALUES: (STORED_NAMES[column.type], column.total_values)}
    return {PACKED: (("u8",), bits.packed_words(column.total_values, column.bits or 0))}


# Read


class RawValues:
    """Numbers of a column, in order."""

    def __init__(self, metadata: ColumnMetadata, buffers: Mapping[str, BufferRef], file: MappedFile) -> None:
        self._file = file
        self._count = metadata.total_values
        self._dtype = STORED_DTYPES[metadata.type]
        self._base = metadata.base
        self._width = metadata.bits or 0
        self._plain = buffers.get(VALUES)
        self._packed = buffers.get(PACKED)
        self._place = f"{metadata.name}/values"

    def all(self) -> Array:
        """Return every value, read-only."""
        if self._plain is not None:
            return self._file.array(self._plain, self._count)
        return self._file.decoded(self._place, self._count, self._dtype, self._decode)

    def take(self, docs: NDArray[np.uint32]) -> Array:
        """Return the values at `docs`. A few values of a packed column are read without decoding the others."""
        if self._plain is not None:
            return self._file.take(self._plain, docs)
        if self._packed is None or not self._width or self._file.is_compressed(self._packed):
            return self.all()[docs]
        decoded = self._file.peek(self._place)
        if decoded is not None:
            return decoded[docs]
        if len(docs) * 8 > self._count:
            return self.all()[docs]
        out = np.empty(len(docs), dtype=self._dtype)
        bits.unpack_at(self._words(self._packed), self._width, docs, self._base, out)
        return out

    def _decode(self, out: Array) -> None:
        if self._width and self._packed is not None:
            bits.unpack(self._words(self._packed), self._width, 0, self._base, out)
        else:
            out[:] = self._base

    def _words(self, ref: BufferRef) -> Array:
        return self._file.array(ref, bits.packed_words(self._count, self._width))
