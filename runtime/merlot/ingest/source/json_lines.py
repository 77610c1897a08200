"""Read files of JSON lines as Arrow. Every line becomes a row, a corrupt one with its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merlot.errors import InvalidInputError
from merlot.ingest.source.blocks import BLOCK_BYTES, BYTE_ORDER_MARK, FileOpener, blocks
from merlot.ingest.source.json_records import RecordColumns
from merlot.ingest.transform import CORRUPT_RECORD, SOURCE_ROW


def read(
    filesystem: FileOpener, path: str, stretch: tuple[int, int] | None, columns: Mapping[str, bool]
) -> Iterator[pa.Table]:
    """Yield the rows of the lines that begin in a range of bytes (None: in the whole file), in batches. columns: True
    for each wanted key that holds lists. A column that no record of a batch has is left out."""
    reader = _JsonRows(path, columns, is_first=stretch is None or stretch[0] == 0)
    with filesystem.open_input_stream(path) if stretch is None else filesystem.open_input_file(path) as file:
        stream = file if stretch is None else _Chunks(_lines_within(file, *stretch))
        for _ in blocks(stream, reader.take, path):
            yield from reader.pop()


class _Chunks:
    """Stream over the chunks of an iterator."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, _: int) -> bytes:
        return next(self._chunks, b"")


def _lines_within(file: Any, start: int, stop: int) -> Iterator[bytes]:
    """Yield the lines that begin in [start, stop). The byte before `start` tells whether a line begins there."""
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


class _JsonRows:
    """Rows of a file, or of a range of its bytes, block by block."""

    def __init__(self, path: str, columns: Mapping[str, bool], *, is_first: bool) -> None:
        self._path = path
        self._columns = RecordColumns(columns)
        self._is_first = is_first
        self._num_rows = 0
        self._ready: list[pa.Table] = []

    def pop(self) -> list[pa.Table]:
        ready, self._ready = self._ready, []
        return ready

    def take(self, data: bytes, is_last: bool) -> int:
        used = len(data) if is_last else data.rfind(b"\n") + 1
        start = len(BYTE_ORDER_MARK) if self._is_first and data.startswith(BYTE_ORDER_MARK) else 0
        text = data[start:used]
        if self._is_first:
            _check_is_lines(data[start:], self._path)
        self._is_first = self._is_first and not used
        lines = [line for line in text.split(b"\n") if line.strip()]
        if lines:
            self._ready.append(self._table(text, lines))
            self._num_rows += len(lines)
        return used

    def _table(self, text: bytes, lines: Sequence[bytes]) -> pa.Table:
        values, corrupt = self._columns.read(text, lines)
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


def _check_is_lines(text: bytes, path: str) -> None:
    """Raise InvalidInputError for JSON in another form, of which no line would be a record."""
    for start, kind in OTHERWISE.items():
        if start.match(text):
            raise InvalidInputError(
                f"the file holds {kind}, not JSON lines file={path}; write one object per line, as jq -c does"
            )


_MEMBER = rb'\s*"[^"]*"\s*:'
OTHERWISE: Final = {
    re.compile(rb"\s*\[\s*\{" + _MEMBER): "one JSON array",
    re.compile(rb"\s*\{[ \t\r]*\n" + _MEMBER): "JSON over several lines",
    re.compile(rb"\x1e\s*\{" + _MEMBER): "JSON text sequences",
}
"""Beginnings of files of other JSON: an array's brace, a member's name on a line of its own, a separator."""
