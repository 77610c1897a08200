"""Zone maps: minimum, maximum and null count per block of 16,384 docs. FORMAT.md §5.7.

They hold dict ids of dictionary columns and values of raw numeric ones. The default value in the slot of a null
counts, because a query that does not know nulls sees it. A column of one block stores none: its minimum and maximum say
the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import bits
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.metadata import BufferRef

BLOCK_DOCS: Final = 16_384
MIN = "zones.min"
MAX = "zones.max"
NULLS = "zones.nulls"


@dataclass(frozen=True, slots=True)
class ZoneMaps:
    """Per block; a float block with a NaN has NaN as its maximum, and as its minimum too if it holds nothing else."""

    min: Array
    max: Array
    num_nulls: NDArray[np.uint32]


def num_blocks(num_docs: int) -> int:
    return -(-num_docs // BLOCK_DOCS)


# Write


def write(values: Array, nulls: NDArray[np.uint64] | None) -> dict[str, Array]:
    """Buffers of the zones of `values`, one per doc; empty for a single block."""
    blocks = num_blocks(len(values))
    if blocks <= 1:
        return {}
    lows, highs = bounds(values, np.append(np.arange(0, len(values), BLOCK_DOCS), len(values)))
    buffers = {MIN: lows, MAX: highs}
    if nulls is not None:
        counts = np.zeros(blocks, dtype="<u4")
        bits.count_bits(nulls, BLOCK_DOCS // 64, counts)
        buffers[NULLS] = counts
    return buffers


def bounds(values: Array, starts: NDArray[np.int64]) -> tuple[Array, Array]:
    """Minimum and maximum of each values[starts[k] : starts[k + 1]], none empty."""
    if values.dtype.kind == "f":
        return np.fmin.reduceat(values, starts[:-1]), np.maximum.reduceat(values, starts[:-1])
    lows, highs = np.empty(len(starts) - 1, values.dtype), np.empty(len(starts) - 1, values.dtype)
    bits.block_min_max(values, starts, lows, highs)
    return lows, highs


# Read


def read(
    buffers: Mapping[str, BufferRef], file: MappedFile, only_block: tuple[Any, Any, np.dtype[Any], int] | None
) -> ZoneMaps | None:
    """Zones of a column; `only_block` is (min, max, dtype, nulls) of a column that fits into one block."""
    if MIN in buffers:
        lows, highs = file.array(buffers[MIN]), file.array(buffers[MAX])
        nulls = file.array(buffers[NULLS]) if NULLS in buffers else np.zeros(len(lows), dtype=np.uint32)
        return ZoneMaps(lows, highs, nulls)
    if only_block is None:
        return None
    low, high, dtype, num_nulls = only_block
    return ZoneMaps(np.array([low], dtype), np.array([high], dtype), np.array([num_nulls], dtype=np.uint32))
