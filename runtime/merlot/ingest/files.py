"""Files of a batch source as Arrow tables: Parquet, ORC, CSV and JSON lines, local or remote by pyarrow.fs.

CSV values stay text and JSON numbers stay numbers: the table's schema decides what they become. Lines that are no
record come back as rows with their text in CORRUPT_RECORD. A file is read whole.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import csv, fs, orc
from pyarrow import parquet as pq

from merlot.errors import InvalidInputError, NotFoundError, UnavailableError
from merlot.ingest.casts import json_text
from merlot.ingest.transform import CORRUPT_RECORD
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion, CsvOptions
from merlot.spec.schema import TableSchema

_GLOB = frozenset("*?[")


def read_tables(source: BatchIngestion, schema: TableSchema) -> Iterator[pa.Table]:
    """One table per file, by path. NotFoundError if there is none, InvalidInputError if one is not of the format."""
    filesystem, paths = _find(source.source_uri)
    if not paths:
        raise NotFoundError(f"no source files uri={source.source_uri}")
    for path in paths:
        try:
            yield _read(filesystem, path, source, schema)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidInputError(f"cannot read file as {source.format} path={path} reason={reason}") from error
        except OSError as error:
            raise UnavailableError(f"cannot read source path={path} reason={error}") from error


def _find(uri: str) -> tuple[fs.FileSystem, list[str]]:
    """Files of a URI, a path, a folder (all below it) or a glob; names that begin with _ or . are no data."""
    pattern = PurePosixPath(uri).name if _GLOB & set(uri) else None
    base = uri if pattern is None else uri[: -len(pattern)].rstrip("/") or "/"
    try:
        filesystem, root = fs.FileSystem.from_uri(base if "://" in base else Path(base).resolve().as_uri())
        info = filesystem.get_file_info(root)
        if info.type == fs.FileType.NotFound:
            return filesystem, []
        if info.is_file:
            return filesystem, [root]
        found = filesystem.get_file_info(fs.FileSelector(root, recursive=pattern is None))
    except (ValueError, pa.ArrowInvalid) as error:
        raise InvalidInputError(f"cannot open source uri={uri} reason={error}") from error
    except OSError as error:
        raise UnavailableError(f"cannot list source uri={uri} reason={error}") from error
    files = [one for one in found if one.is_file and not one.base_name.startswith(("_", "."))]
    return filesystem, sorted(one.path for one in files if pattern is None or fnmatch.fnmatch(one.base_name, pattern))


def _read(filesystem: fs.FileSystem, path: str, source: BatchIngestion, schema: TableSchema) -> pa.Table:
    match source.format:
        case BatchFormat.PARQUET:
            return pq.read_table(path, filesystem=filesystem)
        case BatchFormat.ORC:
            with filesystem.open_input_file(path) as file:
                return orc.read_table(file)
        case BatchFormat.CSV:
            with filesystem.open_input_stream(path) as stream:
                return _read_csv(stream, source.csv or CsvOptions(), schema)
        case BatchFormat.JSON:
            with filesystem.open_input_stream(path) as stream:
                return _read_json(stream.read())


def _read_csv(stream: pa.NativeFile, options: CsvOptions, schema: TableSchema) -> pa.Table:
    corrupt: list[str] = []

    def keep(row: csv.InvalidRow) -> str:
        corrupt.append(row.text)
        return "skip"

    data = stream.read()
    parse = csv.ParseOptions(delimiter=options.delimiter, invalid_row_handler=keep, newlines_in_values=True)
    read = csv.ReadOptions(column_names=None if options.header else schema.names)
    header = csv.ReadOptions(column_names=read.column_names, use_threads=False)
    names = _csv_names(data, header, parse) if options.header else list(schema.names)
    corrupt.clear()
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[options.null_value],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    table = csv.read_csv(pa.BufferReader(data), read, parse, convert)
    return _with_corrupt(table, corrupt)


def _csv_names(data: bytes, read: csv.ReadOptions, parse: csv.ParseOptions) -> list[str]:
    first_line = data.split(b"\n", 1)[0] + b"\n"
    return list(csv.read_csv(pa.BufferReader(first_line), read, parse).column_names)


def _read_json(data: bytes) -> pa.Table:
    rows: list[dict[str, Any]] = []
    corrupt: list[str] = []
    for line in filter(None, map(bytes.strip, data.split(b"\n"))):
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            corrupt.append(line.decode(errors="replace"))
    names = dict.fromkeys(name for row in rows for name in row)
    return _with_corrupt(pa.table({name: _json_column([row.get(name) for row in rows]) for name in names}), corrupt)


def _json_column(values: list[Any]) -> pa.Array:
    """Values of one kind as they are; of several kinds, as text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        texts = [value if isinstance(value, str) or value is None else json_text(value) for value in values]
        return pa.array(texts, pa.string())


def _with_corrupt(table: pa.Table, corrupt: list[str]) -> pa.Table:
    """Append one row per line that is no record."""
    if not corrupt:
        return table
    return pa.concat_tables([table, pa.table({CORRUPT_RECORD: corrupt})], promote_options="default")
