"""Values of variable width: offsets and bytes, as Arrow lays them out. FORMAT.md §5.4.

Offsets are i32 below 2**31 bytes and i64 past them, so that both are Arrow arrays without a copy.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.segment.arrow_types import stored_arrow_type
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.metadata import ColumnMetadata
from merlot.spec.types import TypeName

OFFSETS = "offsets"
BYTES = "bytes"
_PREFIX = "raw."
_EMPTY = np.zeros(0, dtype=np.uint8)

# Estimate


def size_bytes(num_values: int, num_bytes: int) -> int:
    """What these values take, uncompressed."""
    width = 4 if num_bytes < 1 << 31 else 8
    return (num_values + 1) * width + num_bytes


# Write


def buffers_of(values: pa.Array) -> tuple[Array, NDArray[np.uint8]]:
    """Offsets from 0 and the bytes they cut, of a string or binary array without nulls; copies only if sliced."""
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    width = np.dtype("<i8") if large else np.dtype("<i4")
    _, offset_buffer, data_buffer = values.buffers()
    if offset_buffer is None or len(values) == 0:
        return np.zeros(len(values) + 1, dtype="<i4"), _EMPTY
    offsets = np.frombuffer(offset_buffer, dtype=width)[values.offset : values.offset + len(values) + 1]
    start, stop = int(offsets[0]), int(offsets[-1])
    data = _EMPTY if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)[start:stop]
    if start:
        offsets = offsets - start
    return (offsets if stop - start >= 1 << 31 else offsets.astype("<i4", copy=False)), data


def write(values: pa.Array) -> dict[str, Array]:
    """Buffers of a raw column."""
    offsets, data = buffers_of(values)
    return {_PREFIX + OFFSETS: offsets, _PREFIX + BYTES: data}


# Read


def arrow_values(type_name: TypeName, offsets: Array, data: NDArray[np.uint8]) -> pa.Array:
    """Values as an Arrow array over the same memory."""
    arrow_type: Any = stored_arrow_type(type_name, large=offsets.dtype.itemsize == 8)
    return pa.Array.from_buffers(arrow_type, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def read(metadata: ColumnMetadata, file: MappedFile, *, is_checked: bool) -> pa.Array:
    """All values of a raw column. is_checked: an earlier call found its offsets good."""
    offsets = file.array(metadata.buffers[_PREFIX + OFFSETS], metadata.total_values + 1)
    data = file.array(metadata.buffers[_PREFIX + BYTES])
    if not is_checked:
        check_offsets(offsets, data, metadata, file)
    return arrow_values(metadata.type, offsets, data)


def check_offsets(offsets: Array, data: Array, metadata: ColumnMetadata, file: MappedFile) -> None:
    """Raise CorruptionError unless the offsets cut the data: Arrow reads where they point."""
    cuts = int(offsets[0]) >= 0 and int(offsets[-1]) <= len(data) and bool(np.all(offsets[1:] >= offsets[:-1]))
    file.require(cuts, f"offsets are not those of the values column={metadata.name}")
