"""Read CSV files as Arrow: values are text, or null. Every record becomes a row, a corrupt one with its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from pyarrow import csv

from merlot.errors import InvalidInputError
from merlot.ingest.source import csv_records
from merlot.ingest.source.blocks import BYTE_ORDER_MARK, ByteStream, FileOpener, blocks
from merlot.ingest.source.csv_records import Records
from merlot.ingest.transform import CORRUPT_RECORD, SOURCE_ROW
from merlot.spec.ingestion import CsvOptions

HEADER_BYTES = 64 << 10


class CsvDialect(Protocol):
    """The way in which records are written."""

    @property
    def delimiter(self) -> str: ...

    @property
    def null_value(self) -> str: ...


def check(options: CsvDialect) -> None:
    """Raise InvalidInputError for an impossible delimiter."""
    if not options.delimiter.isascii() or options.delimiter in '"\r\n':
        raise InvalidInputError(
            f"a delimiter of CSV is an ASCII character other than a quote got={options.delimiter!r}"
        )


def read_header(filesystem: FileOpener, path: str, options: CsvOptions) -> list[str]:
    """Return the names in a file's header, none if the file is empty. Raises InvalidInputError if its first record is
    broken."""
    with filesystem.open_input_stream(path) as stream:
        header: list[str] = []

        def take(data: bytes, is_last: bool) -> int:
            names, used = _header(data, options.delimiter, path, is_last=is_last)
            header.extend(names)
            return used

        small = _SmallReads(stream)
        for _ in blocks(small, take, path):
            if header:
                break
        return header


def read(
    filesystem: FileOpener, path: str, options: CsvOptions, names: Sequence[str], columns: Mapping[str, int]
) -> Iterator[pa.Table]:
    """Yield the rows of a file in batches. names: all its columns. columns: positions of the wanted ones."""
    reader = _CsvRows(path, options, len(names), columns)
    with filesystem.open_input_stream(path) as stream:
        for _ in blocks(stream, reader.take, path):
            yield from reader.pop()


class _SmallReads:
    """Stream that is read a little at a time."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def read(self, num_bytes: int) -> bytes:
        return self._stream.read(min(num_bytes, HEADER_BYTES))


class _CsvRows:
    """Rows of one file, block by block."""

    def __init__(self, path: str, options: CsvOptions, width: int, columns: Mapping[str, int]) -> None:
        self._path = path
        self._options = options
        self._width = width
        self._columns = columns
        self._is_begun = False
        self._num_rows = 0
        self._ready: list[pa.Table] = []

    def pop(self) -> list[pa.Table]:
        ready, self._ready = self._ready, []
        return ready

    def take(self, data: bytes, is_last: bool) -> int:
        start = 0
        if not self._options.header and not self._num_rows and (is_last or len(data) >= HEADER_BYTES):
            _check_line_ends(data, self._path)
        if not self._is_begun:
            start = len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK) else 0
            if self._options.header:
                _, start = _header(data, self._options.delimiter, self._path, is_last=is_last)
                if not start:
                    return 0
            self._is_begun = True
        rest = data[start:] if start else data
        records = csv_records.split(rest, self._options.delimiter, self._width, is_last=is_last)
        if records.count:
            self._ready.append(self._table(records))
        self._num_rows += records.count
        return start + records.used

    def _table(self, records: Records) -> pa.Table:
        first = self._num_rows + 1
        has_values = records.good and self._columns
        columns = texts(records.good, self._options, self._width, self._columns) if has_values else {}
        empty = {name: pa.nulls(0, pa.string()) for name in self._columns}
        rows = pa.table({**empty, **columns, SOURCE_ROW: records.good_numbers + first})
        if not records.corrupt:
            return rows
        shown = list(map(self._shown, records.corrupt, records.corrupt_widths))
        lines = {CORRUPT_RECORD: pa.array(shown, pa.string()), SOURCE_ROW: records.corrupt_numbers + first}
        return pa.concat_tables([rows, pa.table(lines)], promote_options="default")

    def _shown(self, line: str, num_values: int) -> str:
        """Return a line that is no record, with the reason before it."""
        if not num_values:
            return line
        expected = f"the header has {self._width} names" if self._options.header else f"not {self._width}"
        return f"{num_values} value{'' if num_values == 1 else 's'}, {expected}: {line}"


def texts(good: bytes, written: CsvDialect, width: int, columns: Mapping[str, int]) -> dict[str, pa.ChunkedArray]:
    """Return the columns of well-formed records, by their positions in a record."""
    numbers = list(map(str, range(width)))
    table = csv.read_csv(
        pa.py_buffer(good),
        csv.ReadOptions(column_names=numbers, use_threads=False, block_size=len(good) + 1),
        csv.ParseOptions(delimiter=written.delimiter, newlines_in_values=True, ignore_empty_lines=width > 1),
        csv.ConvertOptions(
            column_types=dict.fromkeys(numbers, pa.string()),
            null_values=["", written.null_value],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            include_columns=[str(position) for position in columns.values()],
        ),
    )
    return dict(zip(columns, table.columns, strict=True))


def _header(data: bytes, delimiter: str, path: str, *, is_last: bool) -> tuple[list[str], int]:
    """Return the names of the header and the number of bytes up to its end; 0 bytes if the header is not complete
    yet."""
    start = len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK) else 0
    if is_last or len(data) >= HEADER_BYTES:
        _check_line_ends(data, path)
    if not data[start:].strip(b"\r\n"):
        return [], len(data) if is_last else 0
    try:
        names, used = csv_records.first_record(data[start:], delimiter, is_last=is_last)
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"the header is not UTF-8 file={path}") from error
    if names is not None and any("\r" in name.strip("\r\n") for name in names):
        _check_line_ends(data[start : start + used].rstrip(b"\r\n"), path)
    if names is None:
        if used:
            raise InvalidInputError(f"the header is no record file={path}")
        return [], 0
    return names, start + used


def _check_line_ends(data: bytes, path: str) -> None:
    """Raise InvalidInputError for text of several lines, none of which ends in a line feed: all of it would be one
    record."""
    if b"\n" not in data and b"\r" in _QUOTED.sub(b"", data).rstrip(b"\r"):
        raise InvalidInputError(
            f"lines end in a carriage return alone file={path}; write line feeds, or both: tr '\\r' '\\n' < file"
        )


_QUOTED = re.compile(rb'"(?:[^"]|"")*(?:"|\Z)')
