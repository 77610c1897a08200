"""Read the rows of a piece of a source, in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.ingest.source import columnar, csv_files, json_lines, locations, names
from merlot.ingest.source.blocks import FileOpener
from merlot.ingest.source.errors import FOREIGN, reading_error
from merlot.ingest.source.listed_files import ListedFile
from merlot.ingest.source.plan import Request, SourcePiece
from merlot.ingest.transform import SOURCE_FILE, SOURCE_ROW
from merlot.spec.formats import BatchFormat


def read(request: Request, pieces: Iterable[SourcePiece]) -> Iterator[pa.Table]:
    """Yield batches of rows: the wanted columns that the file has, under the names that they are wanted by and in the
    file's types; the place of each row; and CORRUPT_RECORD if a batch has any.

    Raises InvalidInputError with the name of a file that is not what it should be, ChangedError with that of a file
    that has changed since it was listed."""
    filesystem = locations.open_place(request.uri)
    for piece in pieces:
        file = ListedFile(filesystem, piece.file)
        try:
            for rows in _rows(file, request, piece):
                if rows.num_rows:
                    yield _with_place(rows, piece, request)
            file.check()
        except FOREIGN as error:
            with suppress(*FOREIGN):
                file.check()  # the error that a file was replaced says more than one about its bytes
            raise reading_error(error, piece.name, request.format) from error


def _rows(filesystem: FileOpener, request: Request, piece: SourcePiece) -> Iterator[pa.Table]:
    path = piece.file.path
    match request.format:
        case BatchFormat.JSON:
            return json_lines.read(filesystem, path, piece.stretch, request.columns)
        case BatchFormat.CSV:
            header = request.csv.header
            present = csv_files.read_header(filesystem, path, request.csv) if header else list(request.names)
            actual_names = _actual_names(present, piece, request)
            columns = {name: present.index(actual) for name, actual in actual_names.items()}
            return csv_files.read(filesystem, path, request.csv, present, columns)
        case _:
            return _columnar(filesystem, request, piece)


def _columnar(filesystem: FileOpener, request: Request, piece: SourcePiece) -> Iterator[pa.Table]:
    actual_names: dict[str, str] = {}

    def choose(present: Sequence[str]) -> Sequence[str]:
        actual_names.update(_actual_names(present, piece, request))
        return list(actual_names.values())

    first_row = piece.first_row
    for batch in columnar.read(filesystem, piece.file.path, request.format, piece.part or 0, choose):
        columns = {name: batch.column(actual) for name, actual in actual_names.items()}
        yield pa.table({**columns, SOURCE_ROW: np.arange(batch.num_rows, dtype=np.int64) + first_row})
        first_row += batch.num_rows


def _actual_names(present: Sequence[str], piece: SourcePiece, request: Request) -> Mapping[str, str]:
    path = piece.file.path
    return {name: actual for name in request.columns if (actual := names.find(name, present, path)) is not None}


def _with_place(rows: pa.Table, piece: SourcePiece, request: Request) -> pa.Table:
    folders = dict(piece.file.partitions)
    zeros = np.zeros(rows.num_rows, dtype=np.int8)
    for name in request.columns:
        folder = names.find(name, list(folders), piece.file.path)
        if folder is None:
            continue
        given = _repeated(folders[folder], zeros)
        if name not in rows.column_names:
            rows = rows.append_column(name, given)
        elif request.format is BatchFormat.JSON and pa.types.is_string(rows.column(name).type):
            # A line has keys of its own. The folder gives the values that it lacks, whatever other lines have.
            own = pc.coalesce(rows.column(name), given.cast(pa.string()))
            rows = rows.set_column(rows.column_names.index(name), name, own)
    return rows.append_column(SOURCE_FILE, _repeated(piece.name, zeros))


def _repeated(text: str | None, zeros: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(zeros), pa.array([text], pa.string()))
