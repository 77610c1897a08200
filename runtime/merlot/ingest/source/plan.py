"""Plan the reading of a source: list and check its files, and divide them into pieces that are read independently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from merlot.errors import InvalidInputError
from merlot.ingest import transform
from merlot.ingest.source import columnar, csv_files, locations, names
from merlot.ingest.source.blocks import FileOpener
from merlot.ingest.source.errors import FOREIGN, reading_error
from merlot.ingest.source.listed_files import ListedFile
from merlot.ingest.source.locations import SourceFile
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion, CsvOptions
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

LIST_THREADS = 16
JSON_PIECE_BYTES = 32 << 20
VARIANT = "VARIANT"
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br", ".snappy")


@dataclass(frozen=True, kw_only=True)
class Request:
    """Source, format and wanted columns, in a form that is sent to readers."""

    uri: str
    format: BatchFormat
    csv: CsvOptions
    columns: Mapping[str, bool]
    """Wanted columns, in order; True for those that hold several values."""
    names: tuple[str, ...]
    """Names of all columns of the table, which are those of a CSV file without header."""


@dataclass(frozen=True, slots=True)
class SourcePiece:
    """A part of a file that is read by itself."""

    file: SourceFile
    part: int | None = None
    """Row group or stripe."""
    stretch: tuple[int, int] | None = None
    """Range of bytes in which the lines begin; None for the whole file."""
    first_row: int = 1
    """Number of its first row, counted from 1 within `name`."""

    @property
    def name(self) -> str:
        """Name of the file, with the part of it if rows are not counted from the beginning of the file."""
        if self.stretch is not None and self.stretch[0]:
            return f"{self.file.path}#byte={self.stretch[0]}"
        return f"{self.file.path}#stripe={self.part}" if self.part and self.first_row == 1 else self.file.path


@dataclass(frozen=True, kw_only=True)
class SourcePlan:
    """Plan of a source that can be read, as far as its files' footers and headers show."""

    request: Request
    pieces: tuple[SourcePiece, ...]
    types: Mapping[str, tuple[pa.DataType, ...]]
    """Types that files have for a wanted column. Those of JSON lines are not known before they are read."""
    num_files: int
    empty_files: int
    """Files of zero bytes."""
    present: tuple[str, ...] = ()
    """Names of all columns of the files, wanted or not; empty for JSON lines."""

    @property
    def num_bytes(self) -> int:
        """Size of all files."""
        return sum({piece.file.path: piece.file.num_bytes for piece in self.pieces}.values())


def no_column(request: Request) -> InvalidInputError:
    """Return the error of a source that has other columns only."""
    return InvalidInputError(f"source has no column of the table uri={request.uri} wanted={list(request.columns)}")


@dataclass(frozen=True, slots=True)
class _Described:
    file: SourceFile
    columns: Mapping[str, pa.DataType]
    """Types of wanted columns, by the names that they are wanted by."""
    pieces: tuple[SourcePiece, ...]
    present: tuple[str, ...] = ()
    """Names of all columns, including those that its folders give."""
    stored: Mapping[str, str] = field(default_factory=dict)
    """Parquet's own types of wanted columns that `Content.stored` names."""


def make(source: BatchIngestion, spec: TableSpec, more: Iterable[str] = (), without: Iterable[str] = ()) -> SourcePlan:
    """List and check the files of a source.

    more: columns of the source that are wanted besides the table's. without: columns of the table that are not wanted.
    Raises NotFoundError if there is no file, InvalidInputError for a file that cannot be read, UnavailableError if a
    storage does not answer."""
    derived = frozenset(without)
    request = _request(source, spec, more, derived)
    csv_files.check(request.csv)
    files = locations.list_files(request.uri)
    filled = [file for file in files if file.num_bytes]
    filesystem = locations.open_place(request.uri)
    with ThreadPoolExecutor(LIST_THREADS) as threads:
        described = list(threads.map(lambda file: _describe(ListedFile(filesystem, file), file, request), filled))
    _check_types(described, spec, derived)
    types: dict[str, dict[pa.DataType, None]] = {}
    for description in described:
        for name, kind in description.columns.items():
            types.setdefault(name, {})[kind] = None
    if described and not types and request.format is not BatchFormat.JSON:
        raise no_column(request)
    return SourcePlan(
        request=request,
        pieces=tuple(piece for description in described for piece in description.pieces),
        types={name: tuple(kinds) for name, kinds in types.items()},
        num_files=len(files),
        empty_files=len(files) - len(filled),
        present=tuple(dict.fromkeys(name for description in described for name in description.present)),
    )


def _request(source: BatchIngestion, spec: TableSpec, more: Iterable[str], without: frozenset[str]) -> Request:
    columns = {field.name: field.multi_value for field in spec.table_schema.fields if field.name not in without}
    columns |= {name: False for name in more if not names.alike(name, columns)}
    return Request(
        uri=source.source_uri,
        format=source.format,
        csv=source.csv or CsvOptions(),
        columns=columns,
        names=tuple(spec.table_schema.names),
    )


def _describe(filesystem: FileOpener, file: SourceFile, request: Request) -> _Described:
    given: Mapping[str, pa.DataType]
    stored: Mapping[str, str] = {}
    try:
        match request.format:
            case BatchFormat.JSON:
                given, pieces = {}, _stretches(file)
            case BatchFormat.CSV:
                header = request.csv.header
                written = csv_files.read_header(filesystem, file.path, request.csv) if header else list(request.names)
                _check_names(written, file, request)
                given, pieces = dict.fromkeys(written, pa.string()), (SourcePiece(file),)
            case _:
                content = columnar.describe(filesystem, file.path, request.format)
                _check_names(content.schema.names, file, request)
                given, pieces = {column.name: column.type for column in content.schema}, _parts(file, content.counts)
                stored = content.stored
    except FOREIGN as error:
        raise reading_error(error, file.path, request.format) from error
    columns = _wanted(given, file, request)
    actual_names = {name: names.find(name, list(stored), file.path) for name in columns}
    present = (*given, *(name for name, _ in file.partitions))
    bytes_of = {name: stored[actual] for name, actual in actual_names.items() if actual is not None}
    return _Described(file, columns, pieces, present, bytes_of)


def _wanted(given: Mapping[str, pa.DataType], file: SourceFile, request: Request) -> dict[str, pa.DataType]:
    columns = {name: given[actual] for name in request.columns if (actual := names.find(name, list(given), file.path))}
    folders = dict(file.partitions)
    for name in request.columns:
        if name not in columns and names.find(name, list(folders), file.path) is not None:
            columns[name] = pa.string()
    return columns


def _check_names(present: Sequence[str], file: SourceFile, request: Request) -> None:
    """Raise InvalidInputError if a wanted name may mean several columns."""
    for name in request.columns:
        names.find(name, present, file.path)


def _check_types(described: Iterable[_Described], spec: TableSpec, derived: Set[str]) -> None:
    """Raise InvalidInputError for a column whose type cannot become the declared one, whatever its values."""
    tried: set[tuple[str, pa.DataType]] = set()
    for description in described:
        for name, stored in description.stored.items():
            column = spec.table_schema.field(name)
            if stored == VARIANT or column is None or column.type is not TypeName.BYTES:
                raise InvalidInputError(
                    f"a column is of a type of Parquet's that is not read file={description.file.path} column={name} "
                    f"type={stored}; write it as JSON or text, read the file with Spark and give build_segments the "
                    "DataFrame, or leave it out of the table"
                )
        for name, kind in description.columns.items():
            column = spec.table_schema.field(name)
            if (name, kind) in tried or column is None or name in derived:
                continue
            tried.add((name, kind))
            if transform.is_impossible(kind, column):
                raise InvalidInputError(
                    f"no value of the type can become one of the column file={description.file.path} column={name} "
                    f"type={kind} declared={column.type}{'[]' if column.multi_value else ''}; "
                    "write it as text, a number or a timestamp, or leave it out of the table"
                )


def _parts(file: SourceFile, counts: Sequence[int | None]) -> tuple[SourcePiece, ...]:
    pieces: list[SourcePiece] = []
    first_row = 1
    for part, count in enumerate(counts):
        pieces.append(SourcePiece(file, part=part, first_row=first_row))
        first_row += count or 0
    return tuple(pieces)


def _stretches(file: SourceFile) -> tuple[SourcePiece, ...]:
    if file.num_bytes <= JSON_PIECE_BYTES or file.path.endswith(COMPRESSED):
        return (SourcePiece(file),)
    count = -(-file.num_bytes // JSON_PIECE_BYTES)
    cuts = [file.num_bytes * piece // count for piece in range(count + 1)]
    return tuple(SourcePiece(file, stretch=(cuts[piece], cuts[piece + 1])) for piece in range(count))
