"""Forward index of a dictionary column: the dict id of every doc, aligned, packed or as runs. FORMAT.md §5.2."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import bits
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.metadata import BufferRef, ColumnEncoding, ColumnMetadata, Shapes

ALIGNED = "ids"
PACKED = "ids.packed"
RUNS = "ids.runs"
_NAMES: dict[int, tuple[str]] = {1: ("u1",), 2: ("u2",), 4: ("u4",)}
_DTYPES: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}

# Estimate


def width_bits(cardinality: int) -> int:
    """Return the bits of the largest dict id; 0 if there is one value."""
    return max(cardinality - 1, 0).bit_length()


def width_bytes(cardinality: int) -> int:
    """Return the bytes of an aligned dict id: 1, 2 or 4."""
    return 1 if cardinality <= 1 << 8 else 2 if cardinality <= 1 << 16 else 4


def id_dtype(cardinality: int) -> np.dtype[Any]:
    """Return the dtype of decoded dict ids."""
    return _DTYPES[width_bytes(cardinality)]


def id_names(cardinality: int) -> tuple[str]:
    """Return the name in a footer of the dtype of `id_dtype`."""
    return _NAMES[width_bytes(cardinality)]


def aligned_size_bytes(num_values: int, cardinality: int) -> int:
    return num_values * width_bytes(cardinality)


def packed_size_bytes(num_values: int, cardinality: int) -> int:
    return 8 * bits.packed_words(num_values, width_bits(cardinality))


def runs_size_bytes(cardinality: int) -> int:
    return 4 * (cardinality + 1)


# Write


def write(ids: Array, cardinality: int, encoding: ColumnEncoding) -> dict[str, Array]:
    """Return the buffers of ids of dtype `id_dtype(cardinality)`. For runs, ids are sorted and each occurs."""
    if encoding is ColumnEncoding.DICTIONARY_ALIGNED:
        return {ALIGNED: ids}
    if encoding is ColumnEncoding.DICTIONARY_RUNS:
        starts = np.zeros(cardinality + 1, dtype="<u4")
        bits.run_starts_of(ids, starts)
        return {RUNS: starts}
    width = width_bits(cardinality)
    words = np.zeros(bits.packed_words(len(ids), width), dtype="<u8")
    if width:
        bits.pack(ids, 0, width, words)
    return {PACKED: words}


# Check


def shapes(column: ColumnMetadata) -> Shapes:
    """Return the shapes of the ids, whose number and width follow from the metadata."""
    count, cardinality = column.total_values, column.cardinality or 0
    match column.encoding:
        case ColumnEncoding.DICTIONARY_ALIGNED:
            return {ALIGNED: (id_names(cardinality), count)}
        case ColumnEncoding.DICTIONARY_PACKED:
            return {PACKED: (("u8",), bits.packed_words(count, width_bits(cardinality)))}
        case ColumnEncoding.DICTIONARY_RUNS if not column.multi_value:
            return {RUNS: (("u4",), cardinality + 1)}
    return {}


# Read


class DictIds:
    """Dict ids of the values of a column, in order."""

    def __init__(self, metadata: ColumnMetadata, buffers: Mapping[str, BufferRef], file: MappedFile) -> None:
        self._file = file
        self._count = metadata.total_values
        self._cardinality = metadata.cardinality or 0
        self._dtype = id_dtype(self._cardinality)
        self._width = width_bits(self._cardinality)
        self._aligned = buffers.get(ALIGNED)
        self._packed = buffers.get(PACKED)
        self._runs = buffers.get(RUNS)
        self._place = f"{metadata.name}/ids"
        self._name = metadata.name
        self._is_checked = False

    def all(self) -> Array:
        """Return every id, read-only, as u8, u16 or u32. All are below the cardinality, which kernels trust. Raises
        CorruptionError."""
        if self._aligned is not None:
            ids = self._file.array(self._aligned, self._count)
            if not self._is_checked:
                self._check(ids)
                self._is_checked = True
            return ids
        if self._cardinality <= 1:
            self._file.require(self._cardinality == 1 or not self._count, f"values of no value column={self._name}")
            return _zeros(self._count)
        return self._file.decoded(self._place, self._count, self._dtype, self._decode)

    def take(self, docs: NDArray[np.uint32]) -> Array:
        """Return the ids at `docs`. A few ids of a packed column are read without decoding the others. Raises
        CorruptionError."""
        if self._cardinality <= 1:
            return _zeros(len(docs))
        if self._aligned is not None:
            return self._check(self._file.take(self._aligned, docs))
        if self._packed is None or self._file.is_compressed(self._packed) or len(docs) * 8 > self._count:
            return self.all()[docs]
        decoded = self._file.peek(self._place)
        if decoded is not None:
            return decoded[docs]
        out = np.empty(len(docs), dtype=self._dtype)
        bits.unpack_at(self._words(self._packed), self._width, docs, 0, out)
        return self._check(out)

    def runs(self) -> NDArray[np.uint32] | None:
        """Return the first docs of the ids of a column that is stored as runs: dict id k covers docs [runs[k], runs[k +
        1]). None for other columns."""
        if self._runs is None:
            return None
        starts = self._file.array(self._runs, self._cardinality + 1)
        covers = starts[0] == 0 and starts[-1] == self._count and bool(np.all(starts[1:] >= starts[:-1]))
        self._file.require(covers, f"runs are not those of all docs column={self._name}")
        return starts

    def _decode(self, out: Array) -> None:
        starts = self.runs()
        if starts is not None:
            bits.expand_runs(starts, out)
        elif self._packed is not None:
            bits.unpack(self._words(self._packed), self._width, 0, 0, out)
        self._check(out)

    def _words(self, ref: BufferRef) -> Array:
        return self._file.array(ref, bits.packed_words(self._count, self._width))

    def _check(self, ids: Array) -> Array:
        """Return the ids if they are below the cardinality, else raise CorruptionError. It takes 2 us for 65,536 ids;
        the ids of all docs are checked once per reader or decoding."""
        is_free = self._cardinality < 1 << 8 * ids.dtype.itemsize
        largest = int(np.maximum.reduce(ids)) if is_free and len(ids) else 0
        limit = max(1, self._cardinality)
        self._file.require(largest < limit, f"dict id {largest} of {self._cardinality} column={self._name}")
        return ids


_zeros_lock = threading.Lock()
_shared_zeros: NDArray[np.uint8] = np.zeros(1 << 16, dtype=np.uint8)
_shared_zeros.flags.writeable = False


def _zeros(count: int) -> NDArray[np.uint8]:
    """Return the ids of a column of one value: a slice of an array that all such columns share."""
    global _shared_zeros
    if count > len(_shared_zeros):
        with _zeros_lock:
            if count > len(_shared_zeros):
                larger = np.zeros(max(count, 2 * len(_shared_zeros)), dtype=np.uint8)
                larger.flags.writeable = False
                _shared_zeros = larger
    return _shared_zeros[:count]
