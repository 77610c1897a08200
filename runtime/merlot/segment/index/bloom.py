"""Bloom filter of a column: proves that a value does not occur. FORMAT.md §5.9.

Parquet's split block filter over XXH64: a value sets one bit in each of the eight words of one block of 32 bytes, so a
lookup touches one cache line. If the filter is small, the segment's record has a copy of it, with a checksum.
"""

from __future__ import annotations

import base64
import functools
import math
import zlib
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.errors import CorruptionError
from merlot.kernels import hashing
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.index import variable
from merlot.segment.index.kind import Index, IndexedColumn
from merlot.segment.metadata import ColumnMetadata, Shapes
from merlot.spec.indexing import IndexingSpec
from merlot.values.stored_text import stored_bytes
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text

WORDS = "bloom.words"
MAX_RECORD_BYTES: Final = 2048
"""Size up to which a filter is also kept in the segment's record. Brokers hold the records of all segments in
memory."""
BLOCK_BYTES: Final = 4 * hashing.WORDS_PER_BLOCK
_MAX_BLOCKS: Final = 1 << 24
_WHOLE: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP, TypeName.BOOLEAN})
_FLOATS: Final = frozenset({TypeName.FLOAT, TypeName.DOUBLE})
_EXACT_INTEGERS: Final = 1 << 53

# Write


def num_blocks(num_values: int, fpp: float) -> int:
    """Return the number of blocks at which a filter of `num_values` distinct values has the false-positive probability
    `fpp`."""
    bits = -8.0 * num_values / math.log(1.0 - fpp ** (1.0 / 8.0))
    return min(_MAX_BLOCKS, max(1, math.ceil(bits / (8 * BLOCK_BYTES))))


def write(type_name: TypeName, distinct: Array | pa.Array, fpp: float) -> dict[str, Array]:
    """Return the buffer of the filter over distinct values."""
    words = np.zeros(num_blocks(len(distinct), fpp) * hashing.WORDS_PER_BLOCK, dtype="<u4")
    hashing.set_bits(hash_values(type_name, distinct), hashing.SALTS, words)
    return {WORDS: words}


def is_small(num_values: int, fpp: float) -> bool:
    """Return True if a filter for `num_values` values is kept in the segment's record."""
    return num_blocks(num_values, fpp) * BLOCK_BYTES <= MAX_RECORD_BYTES


def distinct_values(values: Array | pa.Array) -> Array | pa.Array:
    """Return the distinct values of a column without a dictionary."""
    return np.unique(values) if isinstance(values, np.ndarray) else pc.unique(values)


def hash_values(type_name: TypeName, values: Array | pa.Array) -> NDArray[np.uint64]:
    """Hash integers as 64 bits, floats as doubles with a single zero, everything else by its bytes. So a value has the
    same hash as INT and as LONG, and the same as FLOAT and as DOUBLE."""
    if isinstance(values, np.ndarray):
        plain = values.astype(np.float64) + 0.0 if type_name in _FLOATS else values.astype(np.int64)
        return hashing.hash_fixed(plain.view(np.uint64))
    offsets, data = variable.buffers_of(values)
    hashes = np.empty(len(values), np.uint64)
    data = data.view()
    data.flags.writeable = False
    hashing.hash_spans(data, offsets.astype(np.int64), hashes)
    return hashes


# Check


def check(words: NDArray[np.uint32], file: MappedFile) -> None:
    """Raise CorruptionError unless the words are whole blocks, and no more than a filter may have."""
    blocks, rest = divmod(len(words), hashing.WORDS_PER_BLOCK)
    file.require(0 < blocks <= _MAX_BLOCKS and not rest, f"bloom filter of {len(words)} words")


def holds(words: NDArray[np.uint32], type_name: TypeName, distinct: Array | pa.Array) -> bool:
    """Return True if a filter lets all these values pass."""
    needed = np.zeros_like(words)
    hashing.set_bits(hash_values(type_name, distinct), hashing.SALTS, needed)
    return not np.any(needed & ~words)


# Read


class _Bloom(Index[NDArray[np.uint32]]):
    """Bloom filters, read as their words, eight to a block. They find no docs: they prove that a segment has none."""

    name = "bloom"
    buffers = (WORDS,)

    def write(self, column: IndexedColumn, indexing: IndexingSpec) -> dict[str, Array]:
        fpp = indexing.bloom_fpp_of(column.name)
        assert fpp is not None
        return write(column.type, _distinct_of(column), fpp)

    def shapes(self, column: ColumnMetadata, num_docs: int) -> Shapes:
        """Return the shape of a filter, whose size nothing else determines."""
        return {WORDS: (("u4",), None)}

    def read(self, column: ColumnMetadata, num_docs: int, file: MappedFile) -> NDArray[np.uint32]:
        words = file.array(column.buffers[WORDS])
        check(words, file)
        return words

    def agrees(self, index: NDArray[np.uint32], column: IndexedColumn) -> bool:
        return holds(index, column.type, _distinct_of(column))


def _distinct_of(column: IndexedColumn) -> Array | pa.Array:
    return distinct_values(column.values()) if column.distinct is None else column.distinct


INDEX = _Bloom()


def hashes_of(stored: TypeName, value: Any) -> tuple[int, ...] | None:
    """Return the hashes that a constant may have in a filter over a column of type `stored`; None if the filter cannot
    tell."""
    data = _bytes_of(stored, value)
    return None if data is None else tuple(_hash(encoded) for encoded in data)


@functools.lru_cache(maxsize=4096)
def _hash(data: bytes) -> int:
    return hashing.xxh64(data)


def _bytes_of(stored: TypeName, value: Any) -> tuple[bytes, ...] | None:
    if stored in _WHOLE:
        return _whole_bytes(value)
    if stored in _FLOATS:
        return _float_bytes(stored, value)
    if stored is TypeName.BYTES:
        return (value,) if isinstance(value, bytes) else None
    if stored is TypeName.BIG_DECIMAL:
        return (plain_text(value).encode(),) if isinstance(value, Decimal) and value.is_finite() else None
    try:
        return (value.encode(),) if isinstance(value, str) else None
    except UnicodeEncodeError:
        return None


def _whole_bytes(value: Any) -> tuple[bytes, ...] | None:
    """Return the bytes of a number; None unless it is whole and fits into 64 bits. Its type may differ from the
    column's, which may have been widened."""
    if not isinstance(value, int | float | Decimal) or value != value:
        return None
    if not -(1 << 63) <= value < 1 << 63 or value != int(value):
        return None
    return (int(value).to_bytes(8, "little", signed=True),)


def _float_bytes(stored: TypeName, value: Any) -> tuple[bytes, ...] | None:
    if (
        not isinstance(value, int | float)
        or value != value
        or (isinstance(value, int) and abs(value) > _EXACT_INTEGERS)
    ):
        return None
    number = np.float64(value) + 0.0
    if stored is TypeName.DOUBLE:
        return (number.tobytes(),)
    with np.errstate(over="ignore"):
        # The filter cannot know whether a comparison rounds the constant first, so either form may match.
        return (number.tobytes(), (np.float64(np.float32(value)) + 0.0).tobytes())


# Text for records


def to_text(words: NDArray[np.uint32]) -> str:
    """Return checksum and words in base64."""
    data = words.astype("<u4", copy=False).tobytes()
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "little") + data).decode()


def from_text(text: str) -> NDArray[np.uint32]:
    """Return the words. Raises CorruptionError for text that `to_text` did not write."""
    stored = stored_bytes(text, "bloom filter")
    data = stored[4:]
    if not data or len(data) % BLOCK_BYTES or zlib.crc32(data) != int.from_bytes(stored[:4], "little"):
        raise CorruptionError(f"bloom filter is damaged bytes={len(stored)}")
    return np.frombuffer(data, "<u4")
