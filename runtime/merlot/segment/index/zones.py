"""Zone maps: minimum, maximum and null count per block of 16,384 docs. FORMAT.md §5.7.

They hold dict ids of dictionary columns and values of raw numeric columns. A block of a multi-value column has the
bounds of all values of its docs. The default value in the slot of a null counts, because a query without null handling
sees it. A column of a single block stores none: its minimum and maximum say the same.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import bits
from merlot.segment.arrow_types import STORED_DTYPES, STORED_NAMES
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.index.dict_ids import id_dtype, id_names
from merlot.segment.json_values import from_json
from merlot.segment.metadata import ColumnEncoding, ColumnMetadata, Shapes

BLOCK_DOCS: Final = 16_384
MIN = "zones.min"
MAX = "zones.max"
NULLS = "zones.nulls"


@dataclass(frozen=True)
class ZoneMaps:
    """Bounds and null counts by block. A float block with a NaN has NaN as its maximum; as its minimum too if it holds
    nothing else."""

    min: Array
    max: Array
    num_nulls: NDArray[np.uint32]

    @cached_property
    def least(self) -> Any:
        """Minimum of all values; NaN if all are NaN."""
        return np.fmin.reduce(self.min)

    @cached_property
    def greatest(self) -> Any:
        """Maximum of all values; NaN if any is NaN."""
        return self.max.max()


# Write


def write(values: Array, nulls: NDArray[np.uint64] | None) -> dict[str, Array]:
    """Return the buffers of the zone maps of `values`, one per doc; empty for a single block."""
    if len(values) <= BLOCK_DOCS:
        return {}
    return _write_blocks(values, _block_starts(len(values)), nulls)


def write_multi_value(values: Array, offsets: NDArray[np.uint32], nulls: NDArray[np.uint64] | None) -> dict[str, Array]:
    """Return the buffers as `write` does, over all values of a block's docs; empty also if a block has no value."""
    starts = offsets[_block_starts(len(offsets) - 1)].astype(np.int64)
    return _write_blocks(values, starts, nulls) if (np.diff(starts) > 0).all() else {}


def _block_starts(num_docs: int) -> NDArray[np.int64]:
    return np.append(np.arange(0, num_docs, BLOCK_DOCS), num_docs)


def _write_blocks(values: Array, starts: NDArray[np.int64], nulls: NDArray[np.uint64] | None) -> dict[str, Array]:
    blocks = len(starts) - 1
    if blocks <= 1:
        return {}
    lows, highs = bounds(values, starts)
    buffers = {MIN: lows, MAX: highs}
    if nulls is not None:
        counts = np.zeros(blocks, dtype="<u4")
        bits.count_bits(nulls, BLOCK_DOCS // 64, counts)
        buffers[NULLS] = counts
    return buffers


def bounds(values: Array, starts: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return minimum and maximum of each values[starts[k] : starts[k + 1]], none empty."""
    if values.dtype.kind == "f":
        return np.fmin.reduceat(values, starts[:-1]), np.maximum.reduceat(values, starts[:-1])
    lows, highs = np.empty(len(starts) - 1, values.dtype), np.empty(len(starts) - 1, values.dtype)
    bits.block_min_max(values, starts, lows, highs)
    return lows, highs


# Check


def shapes(column: ColumnMetadata, num_docs: int) -> Shapes:
    """Return the shapes of the bounds. A column may lack them only where FORMAT.md §5.7 says so, because they bound the
    number of docs too."""
    blocks = -(-num_docs // BLOCK_DOCS)
    may_lack = column.multi_value and MIN not in column.buffers
    if blocks <= 1 or may_lack or column.encoding is ColumnEncoding.RAW_VARIABLE:
        return {}
    names = id_names(column.cardinality or 0) if column.encoding.has_dictionary else STORED_NAMES[column.type]
    required: Shapes = {MIN: (names, blocks), MAX: (names, blocks)}
    return {**required, NULLS: (("u4",), blocks)} if column.num_nulls else required


def check(zones: ZoneMaps, metadata: ColumnMetadata, file: MappedFile) -> None:
    """Raise CorruptionError unless the bounds could be those of values. `agrees` checks that they are, which takes
    reading all values."""
    is_known = True
    if metadata.encoding.has_dictionary:
        is_known = bool(zones.max.max() < (metadata.cardinality or 0))
    is_nan = zones.max != zones.max
    is_ordered = bool(np.all((zones.min <= zones.max) | is_nan))
    has_nulls = bool(zones.num_nulls.max() <= BLOCK_DOCS) and int(zones.num_nulls.sum()) == metadata.num_nulls
    file.require(is_known and is_ordered and has_nulls, f"zone maps are not those of values column={metadata.name}")


def agrees(zones: ZoneMaps, written: dict[str, Array]) -> bool:
    """Return True if a column's zone maps are those in `written`, the buffers that `write` makes of its values."""
    if MIN not in written:
        return True
    pairs = [(zones.min, written[MIN]), (zones.max, written[MAX])]
    if NULLS in written:
        pairs.append((zones.num_nulls, written[NULLS]))
    return all(np.array_equal(stored, wanted, equal_nan=stored.dtype.kind == "f") for stored, wanted in pairs)


# Read


def read(metadata: ColumnMetadata, num_docs: int, file: MappedFile) -> ZoneMaps | None:
    """Return the zone maps of a column. Those of a single block are made from the footer's bounds. None if there are no
    bounds."""
    buffers = metadata.buffers
    if MIN in buffers:
        blocks = -(-num_docs // BLOCK_DOCS)
        lows, highs = file.array(buffers[MIN], blocks), file.array(buffers[MAX], blocks)
        nulls = file.array(buffers[NULLS], blocks) if NULLS in buffers else np.zeros(len(lows), dtype=np.uint32)
        zone_maps = ZoneMaps(lows, highs, nulls)
        check(zone_maps, metadata, file)
        return zone_maps
    if not 0 < num_docs <= BLOCK_DOCS or metadata.total_values == 0:
        return None
    return _only_block(metadata)


def _only_block(metadata: ColumnMetadata) -> ZoneMaps | None:
    """Return the zone maps of a column that fits into one block."""
    num_nulls = np.array([metadata.num_nulls], dtype=np.uint32)
    if metadata.encoding.has_dictionary and metadata.cardinality:
        dtype = id_dtype(metadata.cardinality)
        return ZoneMaps(np.zeros(1, dtype), np.array([metadata.cardinality - 1], dtype), num_nulls)
    if metadata.min is None or metadata.max is None or metadata.type not in STORED_DTYPES:
        return None
    dtype = STORED_DTYPES[metadata.type]
    low, high = from_json(metadata.type, metadata.min), from_json(metadata.type, metadata.max)
    return ZoneMaps(np.array([low], dtype), np.array([high], dtype), num_nulls)
