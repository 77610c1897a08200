"""Decode JSON messages: one object each. Numbers and nested values are taken by their exact text.

A kernel finds the values of nearly all messages at once. Messages that it is not sure of (`\\u` escapes, keys in
another case, anything wrong) are read one at a time, as lines of files are, with the same results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.ingest.decoders.protocol import Decoded, Wanted, bytes_of, split_good
from merlot.ingest.message_values import JSON
from merlot.ingest.source import json_values
from merlot.ingest.source.json_records import RecordColumns
from merlot.ingest.source.json_values import RawColumn
from merlot.kernels import json_scan
from merlot.vectors.json_values import JsonValues
from merlot.vectors.texts import text_buffers


class JsonDecoder:
    """Decoder that reads messages as `ingest.source` reads lines."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._records = RecordColumns(wanted.columns, wanted.as_json)
        names = [name.encode() for name in wanted.columns]
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._name_starts = np.cumsum([0, *map(len, names)], dtype=np.int64)
        self._has_lists = any(wanted.columns.values())

    def decode(self, values: pa.LargeBinaryArray) -> Sequence[Decoded]:
        """Return the records of messages; other messages are bad."""
        decoded = self._decode(values)
        if not self._wanted.as_json:
            return (decoded,)
        columns = {
            name: _as_json(column) if name in self._wanted.as_json else column
            for name, column in decoded.columns.items()
        }
        return (replace(decoded, columns=columns),)

    def _decode(self, values: pa.LargeBinaryArray) -> Decoded:
        scanned = self._scan(values)
        unsure = np.flatnonzero(scanned.unsure)
        if not len(unsure):
            return Decoded(columns=self._columns(scanned, is_whole=True), messages=np.arange(len(values)))
        slow, corrupt = self._one_by_one([values[int(row)].as_py() for row in unsure])
        messages, bad = split_good(unsure[corrupt], len(values))
        sure = np.flatnonzero(~scanned.unsure)
        columns = self._columns(scanned, is_whole=len(corrupt) == len(unsure))
        fast = {name: column.take(pa.array(sure)) for name, column in columns.items()}
        if len(corrupt) == len(unsure):
            return Decoded(columns=fast, messages=messages, bad=bad)
        is_record = np.ones(len(unsure), dtype=bool)
        is_record[corrupt] = False
        order = pa.array(np.argsort(np.concatenate([sure, unsure[is_record]]), kind="stable"))
        lengths = (len(sure), int(is_record.sum()))
        joined = {name: _joined(fast.get(name), slow.get(name), lengths).take(order) for name in {**fast, **slow}}
        return Decoded(columns=joined, messages=messages, bad=bad)

    def _scan(self, values: pa.LargeBinaryArray) -> _Scanned:
        data, starts = bytes_of(values)
        shape = (len(self._wanted.columns), len(values))
        scanned = _Scanned(
            data=data,
            begins=np.zeros(shape, np.int64),
            lengths=np.zeros(shape, np.int32),
            kinds=np.zeros(shape, np.uint8),
            unsure=np.zeros(len(values), np.bool_),
        )
        status = scanned.unsure.view(np.uint8)
        json_scan.find_values(
            data, starts, self._names, self._name_starts, scanned.begins, scanned.lengths, scanned.kinds, status
        )  # fmt: skip
        if self._has_lists:
            # Line breaks separate elements of lists.
            breaks = np.flatnonzero(data[starts[0] : starts[-1]] == ord("\n")) + starts[0]
            scanned.unsure[np.searchsorted(starts, breaks, side="right") - 1] = True
        scanned.kinds[:, scanned.unsure] = json_scan.ABSENT
        return scanned

    def _columns(self, scanned: _Scanned, *, is_whole: bool) -> dict[str, pa.Array]:
        """Return the value of each message, perhaps null: as text, or if `is_whole` in the hinted type."""
        columns: dict[str, pa.Array] = {}
        for position, (name, is_list) in enumerate(self._wanted.columns.items()):
            values = scanned.column(position)
            if values.kinds.any() and name in self._wanted.as_json:
                columns[name] = json_values.written(_raw(values))
            elif values.kinds.any():
                hint = self._wanted.types.get(name) if is_whole else None
                numbers = None if is_list else _numbers(values, hint)
                texts = json_values.lists(_raw(values)) if is_list else values.texts() if numbers is None else None
                columns[name] = texts if numbers is None else numbers
        return columns

    def _one_by_one(self, messages: Sequence[bytes]) -> tuple[Mapping[str, pa.Array], list[int]]:
        lines = [_on_one_line(message) for message in messages]
        return self._records.read(b"\n".join(lines), lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scanned:
    """Values that the kernel found: a row per key, a column per message."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    unsure: NDArray[np.bool_]

    def column(self, position: int) -> JsonValues:
        return JsonValues(self.data, self.begins[position], self.lengths[position], self.kinds[position])


def _numbers(values: JsonValues, hint: pa.DataType | None) -> pa.Array | None:
    """Return numbers of the hinted type, if all values are such numbers and their texts say no more; else None."""
    if hint not in (pa.int64(), pa.float64()):
        return None
    numbers = values.whole() if hint == pa.int64() else values.doubles()
    nothing = values.nothing
    return None if numbers is None else pa.array(numbers, mask=nothing if nothing.any() else None)


def _raw(values: JsonValues) -> RawColumn:
    """Return values as they are written."""
    offsets, data = text_buffers(values.raw())
    return RawColumn(data, offsets.astype(np.int64))


def _as_json(written: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(JSON, written)


def _joined(fast: pa.Array | None, slow: pa.Array | None, lengths: tuple[int, int]) -> pa.Array:
    kind = next(part.type for part in (fast, slow) if part is not None)
    parts = [pa.nulls(count, kind) if part is None else part for part, count in zip((fast, slow), lengths, strict=True)]
    return pa.concat_arrays(parts)


def _on_one_line(message: bytes) -> bytes:
    """Return a message without line breaks between its values. A message that is no JSON becomes one that is no record;
    texts within JSON have no line breaks either."""
    if b"\n" not in message:
        return message
    try:
        msgspec.json.decode(message)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return b"?"
    return message.replace(b"\n", b" ")
