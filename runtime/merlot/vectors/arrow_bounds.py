"""Refuse an Arrow IPC stream that expands far beyond its bytes, before any of it is expanded.

The metadata of a batch states its numbers of rows, and where its buffers are; the layout is that of Arrow's
`Message.fbs`. A compressed buffer begins with the size that it expands to. Rows are counted too, since rows of some
types take no bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

LEAST_BYTES: Final = 1 << 20
"""Bytes that every message may expand to."""
TIMES: Final = 64
"""Factor of a message's size up to which it may expand, within MOST_BYTES."""
MOST_BYTES: Final = 64 << 20
"""Bytes beyond which a message must not expand, unless it is itself that large."""
MOST_PARTS: Final = 1 << 17
"""Most messages of an uncompressed stream: reading a message takes some 10 us, whatever it holds."""
BYTES_PER_ROW: Final = 8
"""Bytes that count for each row, since rows of some types take none."""
_MOST_SUM: Final = (1 << 63) - 1
_STRUCT_BYTES: Final = 16
"""Bytes of a buffer's offset and length, or of a node's length and nulls."""
_DICTIONARY, _RECORDS = 2, 3
"""Kinds of messages that have batches."""


class ExpandsError(ValueError):
    """Raised if a message would expand beyond what its bytes allow."""


def check_stream(message: pa.Buffer) -> None:
    """Raise ExpandsError for a stream that expands to too much, and what Arrow or `struct` raise for a broken one."""
    most = most_bytes(message.size)
    most_rows = max(most // BYTES_PER_ROW, message.size)
    num_bytes = num_rows = 0
    for part in pa.ipc.MessageReader.open_stream(message):
        bytes_of_part, rows_of_part = _expanded(part.metadata, part.body)
        num_bytes, num_rows = num_bytes + bytes_of_part, num_rows + rows_of_part
        if num_bytes > most or num_rows > most_rows:
            raise ExpandsError(f"the message expands to too much bytes={num_bytes} rows={num_rows}")


def check_uncompressed(message: pa.Buffer) -> None:
    """Raise ExpandsError for a stream that has compressed batches, or too many messages. Raise what Arrow or `struct`
    raise for a broken one.

    An uncompressed stream expands to no more than it holds, except for rows that take no bytes."""
    for number, part in enumerate(pa.ipc.MessageReader.open_stream(message)):
        if number > MOST_PARTS:
            raise ExpandsError(f"the message has too many parts limit={MOST_PARTS}")
        data = memoryview(part.metadata)
        batch = _batch(data)
        if batch and _field(data, batch, 3):
            raise ExpandsError("the message is compressed")


def check_column(column: pa.ChunkedArray, message_bytes: int) -> None:
    """Raise ExpandsError for values that share their bytes and would be large apart: those of dictionaries, runs, and
    views of texts and lists. The column was validated."""
    if not _shares(column.type):
        return
    num_bytes = sum(int(_addends(_value_bytes(chunk), len(chunk)).sum()) for chunk in column.chunks)
    if num_bytes > most_bytes(message_bytes):
        raise ExpandsError(f"a column expands to too much bytes={num_bytes}")


def most_bytes(message_bytes: int) -> int:
    """Return the bytes that a message of this size may expand to."""
    return max(LEAST_BYTES, min(TIMES * message_bytes, MOST_BYTES), message_bytes)


def _shares(kind: pa.DataType) -> bool:
    """Return True if values of the type, or values in them, may share their bytes."""
    is_view = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    if is_view or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return True
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _shares(kind.storage_type)
    return any(_shares(kind.field(number).type) for number in range(kind.num_fields))


def _value_bytes(values: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of each value once nothing is shared; those behind nulls may count."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _value_bytes(values.storage)
    if pa.types.is_dictionary(kind):
        return _taken(_value_bytes(values.dictionary), pc.fill_null(values.indices, 0))
    if pa.types.is_run_end_encoded(kind):
        ends = np.clip(values.run_ends.to_numpy().astype(np.int64) - values.offset, 0, len(values))
        # There may be more values than runs.
        return np.repeat(_value_bytes(values.values)[: len(ends)], np.diff(ends, prepend=0))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # 16 bytes each, which begin with the length. There may be more bytes than views.
        held = memoryview(values.buffers()[1] or b"")[: _STRUCT_BYTES * (values.offset + len(values))]
        views = np.frombuffer(held, np.int32)
        return _integers(views[:: _STRUCT_BYTES // 4][values.offset :])
    if pa.types.is_struct(kind):
        fields = (_addends(_value_bytes(values.field(at)), kind.num_fields) for at in range(kind.num_fields))
        return _integers(sum(fields, _zeros(values)))
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        return _list_bytes(values)
    return _plain_bytes(values)


def _list_bytes(lists: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of the elements of each list, of whatever layout, or map."""
    kind = lists.type
    if not len(lists):
        return _zeros(lists)
    if pa.types.is_fixed_size_list(kind):
        elements = lists.values.slice(lists.offset * kind.list_size, len(lists) * kind.list_size)
        num_bytes = _addends(_value_bytes(elements), kind.list_size)
        return _integers(num_bytes.reshape(len(lists), kind.list_size).sum(axis=1))
    if pa.types.is_map(kind):
        num_bytes = _addends(_value_bytes(lists.keys), 2) + _addends(_value_bytes(lists.items), 2)
    else:
        num_bytes = _value_bytes(lists.values)
    before = np.concatenate([[0], np.cumsum(_addends(num_bytes, len(num_bytes)))])
    starts = lists.offsets.to_numpy()
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return _integers(before[starts + lists.sizes.to_numpy()] - before[starts])
    return _integers(np.diff(before[starts]))


def _addends(num_bytes: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Return the bytes, bounded so that the sum of `number` of them does not wrap around."""
    return np.minimum(num_bytes, _MOST_SUM // max(number, 1))


def _plain_bytes(values: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of values that share none."""
    kind = values.type
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if is_text or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _integers(pc.fill_null(pc.binary_length(values), 0))
    try:
        return np.full(len(values), (kind.bit_width + 7) // 8)
    except ValueError:  # null, and unions, of which nothing is read
        return _zeros(values)


def _taken(num_bytes: NDArray[np.int64], indices: pa.Array) -> NDArray[np.int64]:
    if not len(num_bytes):
        return np.zeros(len(indices), np.int64)
    return _integers(num_bytes[indices.to_numpy()])


def _integers(numbers: Any) -> NDArray[np.int64]:
    return np.asarray(numbers, np.int64)


def _zeros(values: pa.Array) -> NDArray[np.int64]:
    return np.zeros(len(values), np.int64)


def _expanded(metadata: pa.Buffer, body: pa.Buffer | None) -> tuple[int, int]:
    """Return bytes and rows of a message's batch, of all columns and what is nested in them together."""
    data = memoryview(metadata)
    batch = _batch(data)
    if not batch:
        return 0, 0
    length = _field(data, batch, 0)
    num_rows = _count(_at(data, "<q", length)) if length else 0
    num_rows += sum(_count(rows) for rows, _ in _structs(data, _field(data, batch, 1)))
    buffers = _structs(data, _field(data, batch, 2))
    if not _field(data, batch, 3):
        return sum(_count(size) for _, size in buffers), num_rows
    held = memoryview(body if body is not None else b"")
    return sum(_expanded_buffer(held, start, size) for start, size in buffers if size), num_rows


def _batch(data: memoryview) -> int:
    """Return the position of the batch in a message's metadata, a dictionary's too; 0 if it has none."""
    root = _at(data, "<I", 0)
    kind_at, header = _field(data, root, 1), _field(data, root, 2)
    kind = data[kind_at] if kind_at else 0
    if kind not in (_DICTIONARY, _RECORDS) or not header:
        return 0
    batch = _follow(data, header)
    if kind == _RECORDS:
        return batch
    inner = _field(data, batch, 1)
    return _follow(data, inner) if inner else 0


def _expanded_buffer(body: memoryview, start: int, size: int) -> int:
    expanded = _at(body, "<q", _count(start))
    return _count(size) if expanded == -1 else _count(expanded)


def _structs(data: memoryview, field: int) -> list[tuple[int, int]]:
    """Return a vector of pairs. Raises `struct.error` if the bytes hold fewer than it says."""
    if not field:
        return []
    vector = _follow(data, field)
    count = _at(data, "<I", vector)
    first = vector + 4
    if first + count * _STRUCT_BYTES > len(data):
        raise struct.error("a vector goes beyond its message")
    return list(struct.iter_unpack("<qq", data[first : first + count * _STRUCT_BYTES]))


def _field(data: memoryview, table: int, number: int) -> int:
    """Return the position of a table's field; 0 if it is left out."""
    fields = table - _at(data, "<i", table)
    place = 4 + 2 * number
    if place + 2 > _at(data, "<H", fields):
        return 0
    offset = _at(data, "<H", fields + place)
    return table + offset if offset else 0


def _follow(data: memoryview, at: int) -> int:
    return at + _at(data, "<I", at)


def _at(data: memoryview, form: str, at: int) -> int:
    if at < 0:
        raise struct.error("an offset points before its message")
    number: int = struct.unpack_from(form, data, at)[0]
    return number


def _count(number: int) -> int:
    if number < 0:
        raise struct.error("a size is negative")
    return number
