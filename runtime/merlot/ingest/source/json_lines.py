"""JSON lines as Arrow: wanted keys as text or lists of texts; a row for every line, corrupt ones with their text.

`msgspec` finds the values in a line without making objects of them, so that no digit is lost and nested values stay as
they are written.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import fs

from merlot.ingest.source import json_values
from merlot.ingest.source.blocks import BLOCK_BYTES, BYTE_ORDER_MARK, blocks, is_utf8
from merlot.ingest.source.json_values import RawColumn
from merlot.ingest.transform import CORRUPT_RECORD, SOURCE_ROW

_NOT_A_RECORD = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_NOTHING = msgspec.Raw(b"")
Values = Sequence[msgspec.Raw]


def read(
    filesystem: fs.FileSystem, path: str, stretch: tuple[int, int] | None, columns: Mapping[str, bool]
) -> Iterator[pa.Table]:
    """Rows of the lines that begin in a stretch of bytes (None: of the whole file), in batches. `columns`: whether each
    wanted key holds lists. A column that no record of a batch has is left out."""
    reader = _Reader(columns, is_first=stretch is None or stretch[0] == 0)
    with filesystem.open_input_stream(path) if stretch is None else filesystem.open_input_file(path) as file:
        stream = file if stretch is None else _Chunks(_lines_within(file, *stretch))
        for _ in blocks(stream, reader.take, path):
            yield from reader.pop()


class _Chunks:
    """A stream of what an iterator brings."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, _: int) -> bytes:
        return next(self._chunks, b"")


def _lines_within(file: Any, start: int, stop: int) -> Iterator[bytes]:
    """The lines that begin in [start, stop); the byte before `start` tells whether one begins there."""
    position = max(start - 1, 0)
    file.seek(position)
    is_inside = start == 0
    while position < stop or is_inside:
        chunk: bytes = file.read(BLOCK_BYTES)
        if not chunk:
            return
        begin, position = position, position + len(chunk)
        if not is_inside:
            skipped = chunk.find(b"\n") + 1
            if not skipped:
                continue
            begin, chunk, is_inside = begin + skipped, chunk[skipped:], True
            if begin >= stop:
                return
        end = chunk.find(b"\n", max(stop - 1 - begin, 0)) + 1
        if end:
            yield chunk[:end]
            return
        if chunk:
            yield chunk


class _Reader:
    """Rows of a file, or of a stretch of it, block by block."""

    def __init__(self, columns: Mapping[str, bool], *, is_first: bool) -> None:
        self._columns = columns
        self._is_first = is_first
        self._num_rows = 0
        self._ready: list[pa.Table] = []
        fields = [(f"f{i}", msgspec.Raw, msgspec.field(default=_NOTHING, name=name)) for i, name in enumerate(columns)]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Record", fields, gc=False)).decode
        self._decode_all = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        self._fields = [field[0] for field in fields]

    def pop(self) -> list[pa.Table]:
        ready, self._ready = self._ready, []
        return ready

    def take(self, data: bytes, is_last: bool) -> int:
        used = len(data) if is_last else data.rfind(b"\n") + 1
        start = len(BYTE_ORDER_MARK) if self._is_first and data.startswith(BYTE_ORDER_MARK) else 0
        text = data[start:used]
        self._is_first = self._is_first and not used
        lines = [line for line in text.split(b"\n") if line.strip()]
        if lines:
            self._ready.append(self._table(text, lines))
            self._num_rows += len(lines)
        return used

    def _table(self, text: bytes, lines: Sequence[bytes]) -> pa.Table:
        check = _same if is_utf8(text) else _only_utf8
        records, corrupt = _decoded(check(self._decode), lines)
        columns = self._raw_columns(records, are_maps=False)
        # Looked for only where a key is missing: it takes as long as decoding.
        lacking = [name for name, column in columns.items() if column.is_absent.any()]
        if others := {name: found for name in lacking if (found := _other_spellings(name, text))}:
            records, corrupt = _decoded(check(_tolerant(self._decode_all, others)), lines)
            columns = self._raw_columns(records, are_maps=True)
        values = {
            name: (json_values.lists if self._columns[name] else json_values.texts)(column)
            for name, column in columns.items()
            if not column.is_absent.all()
        }
        is_good = np.ones(len(lines), dtype=bool)
        is_good[corrupt] = False
        numbers = np.arange(len(lines), dtype=np.int64) + self._num_rows + 1
        rows = pa.table({**values, SOURCE_ROW: numbers[is_good]})
        if not corrupt:
            return rows
        shown = pa.array([lines[row].strip().decode(errors="replace") for row in corrupt], pa.string())
        return pa.concat_tables(
            [rows, pa.table({CORRUPT_RECORD: shown, SOURCE_ROW: numbers[corrupt]})], promote_options="default"
        )

    def _raw_columns(self, records: Sequence[Any], *, are_maps: bool) -> dict[str, RawColumn]:
        if not records or not self._columns:
            return {}
        columns: Iterable[Values]
        if are_maps:
            columns = ([record.get(name, _NOTHING) for record in records] for name in self._columns)
        elif len(self._fields) == 1:
            columns = [[record.f0 for record in records]]
        else:
            columns = zip(*map(operator.attrgetter(*self._fields), records), strict=True)
        return {name: RawColumn.of(values) for name, values in zip(self._columns, columns, strict=True)}


def _decoded(decode: Callable[[bytes], Any], lines: Sequence[bytes]) -> tuple[list[Any], list[int]]:
    """The records, and which lines are none."""
    try:
        return list(map(decode, lines)), []
    except _NOT_A_RECORD:
        pass
    records, corrupt = [], []
    for row, line in enumerate(lines):
        try:
            records.append(decode(line))
        except _NOT_A_RECORD:
            corrupt.append(row)
    return records, corrupt


def _other_spellings(name: str, text: bytes) -> set[str]:
    """Keys that differ from a column's name by case alone; there may be more than records have, from nested values."""
    found = re.findall(rb'"(' + re.escape(name.encode()) + rb')"\s*:', text, re.IGNORECASE)
    return {key.decode() for key in set(found)} - {name}


def _tolerant(
    decode: Callable[[bytes], dict[str, msgspec.Raw]], others: Mapping[str, set[str]]
) -> Callable[[bytes], dict[str, msgspec.Raw]]:
    """Decode records whose keys may be spelt otherwise; one with several spellings of a column, none of them exact, is
    no record."""

    def decode_tolerantly(line: bytes) -> dict[str, msgspec.Raw]:
        record = decode(line)
        for name, spellings in others.items():
            if name not in record and (found := spellings & record.keys()):
                if len(found) > 1:
                    raise msgspec.DecodeError(f"several keys may be meant column={name}")
                record[name] = record[found.pop()]
        return record

    return decode_tolerantly


def _same(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    return decode


def _only_utf8(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decode_text(line: bytes) -> Any:
        line.decode()
        return decode(line)

    return decode_text
