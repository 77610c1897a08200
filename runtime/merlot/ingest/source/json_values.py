"""Convert raw JSON values to Arrow text, all of a column at once: a number or a nested value as it is written, a string
as its content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

QUOTE, BACKSLASH, BRACKET, N = 34, 92, 91, 110
_text_of = msgspec.json.Decoder(str).decode
_list_of = msgspec.json.Decoder(list[msgspec.Raw]).decode
_lists_of = msgspec.json.Decoder(list[list[msgspec.Raw]]).decode


@dataclass(frozen=True, slots=True)
class RawColumn:
    """Values of one key, one after the other: value `i` is `data[starts[i]:starts[i + 1]]`, of no bytes if the record
    lacks the key."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, values: Sequence[msgspec.Raw]) -> RawColumn:
        """Join the values of records that are lines, so that no value holds a line break."""
        joined = np.frombuffer(b"\n".join(values), np.uint8)
        is_break = joined == ord("\n")
        breaks = np.flatnonzero(is_break)
        starts = np.concatenate([[0], breaks - np.arange(len(breaks)), [len(joined) - len(breaks)]])
        return cls(joined[~is_break], starts)

    @property
    def is_absent(self) -> NDArray[np.bool_]:
        """Return True where the record lacks the key."""
        is_absent: NDArray[np.bool_] = self.starts[1:] == self.starts[:-1]
        return is_absent

    def begins_with(self, sign: int) -> NDArray[np.bool_]:
        """Return True for the values whose first byte is `sign`."""
        first = np.append(self.data, 0)[self.starts[:-1]]
        begins: NDArray[np.bool_] = (first == sign) & ~self.is_absent
        return begins

    def raw(self, row: int) -> bytes:
        """Return one value."""
        return self.data[self.starts[row] : self.starts[row + 1]].tobytes()


def written(column: RawColumn) -> pa.Array:
    """Return each value as it is written, a string in quotes; null where there is no value, or a JSON null."""
    mask = pa.array(~(column.is_absent | column.begins_with(N))).buffers()[1]
    buffers = [mask, pa.py_buffer(column.starts.astype(np.int32)), pa.py_buffer(column.data.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(column.starts) - 1, buffers)


def texts(column: RawColumn) -> pa.Array:
    """Return a text, or null, for each value."""
    is_string = column.begins_with(QUOTE)
    is_null = column.is_absent | column.begins_with(N)
    starts, ends = column.starts[:-1], column.starts[1:]
    is_content = np.ones(len(column.data), dtype=bool)
    is_content[starts[is_string]] = False
    is_content[ends[is_string] - 1] = False
    lengths = np.diff(column.starts) - 2 * is_string
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = pa.array(~is_null).buffers()[1]
    buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(column.data[is_content].tobytes())]
    contents = pa.Array.from_buffers(pa.string(), len(starts), buffers)
    backslashes = np.flatnonzero(column.data == BACKSLASH)
    escaped = np.unique(np.searchsorted(column.starts, backslashes, side="right") - 1)
    escaped = escaped[is_string[escaped]]
    if not len(escaped):
        return contents
    unescaped = pa.array([_text_of(column.raw(row)) for row in escaped.tolist()], pa.string())
    is_escaped = np.zeros(len(starts), dtype=bool)
    is_escaped[escaped] = True
    return pc.replace_with_mask(contents, pa.array(is_escaped), unescaped)


def lists(column: RawColumn) -> pa.Array:
    """Return a list of texts, or null, for each value. A value that is no list becomes a list of one, and so does a
    list nested so deep that it cannot be read again."""
    is_null = column.is_absent | column.begins_with(N)
    rows = [column.raw(row) for row in range(len(is_null))]
    is_list = column.begins_with(BRACKET).tolist()
    kinds = zip(rows, is_null.tolist(), is_list, strict=True)
    written = [b"[]" if null else row if is_whole else b"[" + row + b"]" for row, null, is_whole in kinds]
    try:
        decoded = _lists_of(b"[" + b",".join(written) + b"]")
    except RecursionError:
        decoded = list(map(_elements, written, rows))
    elements = [element for row in decoded for element in row]
    values = texts(RawColumn.of(elements)) if elements else pa.nulls(0, pa.string())
    offsets = np.concatenate([[0], np.cumsum(list(map(len, decoded)))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(is_null))


def _elements(as_list: bytes, value: bytes) -> list[msgspec.Raw]:
    try:
        return _list_of(as_list)
    except RecursionError:
        return [msgspec.Raw(value)]
