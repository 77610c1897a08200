"""Values of variable width: offsets and bytes, as Arrow lays them out. FORMAT.md §5.4.

Offsets are i32 below 2**31 bytes and i64 past them, so that both are Arrow arrays without a copy.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.segment.arrow_types import stored_arrow_type
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.json_values import PLAIN_DECIMAL
from merlot.segment.metadata import ColumnMetadata, Shapes
from merlot.values.types import TypeName

OFFSETS = "offsets"
BYTES = "bytes"
_PREFIX = "raw."
TEXTS = _PREFIX + BYTES
"""Buffer with the bytes of a raw column."""
_EMPTY = np.zeros(0, dtype=np.uint8)

# Estimate


def size_bytes(num_values: int, num_bytes: int) -> int:
    """Return the size of these values, uncompressed."""
    width = 4 if num_bytes < 1 << 31 else 8
    return (num_values + 1) * width + num_bytes


# Write


def buffers_of(values: pa.Array) -> tuple[Array, NDArray[np.uint8]]:
    """Return the offsets from 0, and the bytes that they divide, of a string or binary array without nulls. Bytes
    are not copied. Offsets are copied if the first is not 0, as in a slice, or if they are wider than
    the bytes need."""
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
    """Return the buffers of a raw column."""
    offsets, data = buffers_of(values)
    return {_PREFIX + OFFSETS: offsets, _PREFIX + BYTES: data}


# Check


def shapes(column: ColumnMetadata) -> Shapes:
    """Return the shapes of raw values."""
    return shapes_of(_PREFIX, column.total_values)


def shapes_of(prefix: str, count: int) -> Shapes:
    """Return the shapes of `count` strings."""
    return {prefix + OFFSETS: (("i4", "i8"), count + 1), prefix + BYTES: (("u1",), None)}


def check(offsets: Array, data: NDArray[np.uint8], metadata: ColumnMetadata, file: MappedFile) -> None:
    """Raise CorruptionError unless the offsets divide all of the bytes, and text is UTF-8: Arrow trusts both. The text
    of a BIG_DECIMAL must be canonical too."""
    covers = int(offsets[0]) == 0 and int(offsets[-1]) == len(data) and bool(np.all(offsets[1:] >= offsets[:-1]))
    file.require(covers, f"offsets are not those of the values column={metadata.name}")
    if metadata.type is TypeName.BYTES:
        return
    values = arrow_values(metadata.type, offsets, data)
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        file.require(False, f"text is not UTF-8 column={metadata.name}: {error}")
    if metadata.type is TypeName.BIG_DECIMAL:
        plain = pc.all(pc.match_substring_regex(values, PLAIN_DECIMAL), min_count=0).as_py()
        file.require(plain, f"text is not that of a number column={metadata.name}")


# Read


def arrow_values(type_name: TypeName, offsets: Array, data: NDArray[np.uint8]) -> pa.Array:
    """Return values as an Arrow array over the same memory."""
    arrow_type: Any = stored_arrow_type(type_name, large=offsets.dtype.itemsize == 8)
    return pa.Array.from_buffers(arrow_type, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def read(metadata: ColumnMetadata, file: MappedFile, *, is_checked: bool) -> pa.Array:
    """Return all values of a raw column. is_checked: an earlier call has found them valid."""
    values = arrays(_PREFIX, metadata, metadata.total_values, file)
    if not is_checked:
        check(*values, metadata, file)
    return arrow_values(metadata.type, *values)


def arrays(prefix: str, metadata: ColumnMetadata, count: int, file: MappedFile) -> tuple[Array, NDArray[np.uint8]]:
    """Return the offsets and bytes of `count` strings, unchecked."""
    buffers = metadata.buffers
    return file.array(buffers[prefix + OFFSETS], count + 1), file.array(buffers[prefix + BYTES])
