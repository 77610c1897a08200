"""Rows that every table of `variants` can store, built by a manifest and read by another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
from tests.unit.segment.segment_tables import read_nulls
from tests.unit.spec import variants

from merlot.errors import MerlotError
from merlot.ids import SegmentPart
from merlot.ingest.batch import BatchResult, build_from_tables
from merlot.segment.arrow_types import is_fixed_width
from merlot.segment.build.request import BuiltSegment
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import RowReader
from merlot.segment.under_schema import column_under
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.table import Table
from merlot.values.periods import DAY_MS

FIRST_DAY = 19_723
NUM_ROWS = 24
Row = tuple[tuple[str, str, Any], ...]
"""Name, type and value of every column, None for null; sorted by name."""


def _column(every: int, values: Sequence[Any]) -> list[Any]:
    """The values, with a null in every so many rows."""
    return [None if row % every == 3 else value for row, value in enumerate(values)]


ROWS = pa.table(
    {
        "at": [DAY_MS * (FIRST_DAY + row % 2) + row for row in range(NUM_ROWS)],
        "sent": [DAY_MS * (FIRST_DAY + row % 2) + row for row in range(NUM_ROWS)],
        "day": [FIRST_DAY + row % 2 for row in range(NUM_ROWS)],
        "city": _column(5, [f"city {row:012}" for row in range(NUM_ROWS)]),
        "rides": _column(4, list(range(NUM_ROWS))),
        "miles": pa.array(_column(6, list(range(NUM_ROWS))), pa.int32()),
        "share": pa.array(_column(7, [row / 4 for row in range(NUM_ROWS)]), pa.float32()),
        "tags": _column(8, [["a", f"tag {row:012}"][: row % 3] for row in range(NUM_ROWS)]),
        "gone": [False] * NUM_ROWS,
        "more": list(range(NUM_ROWS)),
    }
)
"""The same rows for every table: each takes the columns that it declares."""


@cache
def built(table_json: str) -> BatchResult | None:
    """Segments of the rows; None if none can be built by the manifest."""
    table = Table.model_validate_json(table_json)
    try:
        return build_from_tables(table, [ROWS], Path(mkdtemp(dir=_folder())))
    except MerlotError:
        return None


@cache
def _folder() -> str:
    return mkdtemp(prefix="merlot-variants-")


def segments_of(table: Table) -> Sequence[BuiltSegment]:
    """Segments of the rows, none if none can be built."""
    found = built(table.model_dump_json(by_alias=True))
    return () if found is None else found.segments


def families(table: Table) -> dict[str, list[Row]]:
    """Rows by the segment that holds them; parts of a segment count as the segment."""
    found: dict[str, list[Row]] = {}
    for one in segments_of(table):
        family = SegmentPart.of(one.metadata.name).family
        found[family] = sorted([*found.get(family, []), *rows_under([one.path], table.spec.table_schema)], key=repr)
    return found


def rows_under(files: Iterable[Path], schema: TableSchema) -> list[Row]:
    """Rows of files as a schema declares them. UnsupportedQueryError if they cannot be read so."""
    rows: list[Row] = []
    for path in files:
        with ImmutableSegment.open(path) as segment:
            columns = [_cells(column_under(segment, field), field) for field in schema.fields]
        rows += [tuple(sorted(cells)) for cells in zip(*columns, strict=True)]
    return sorted(rows, key=repr)


def _cells(column: RowReader, field: FieldSpec) -> list[tuple[str, str, Any]]:
    values = _values(column)
    if field.multi_value:
        values = [values[start:stop] for start, stop in pairwise(column.offsets().tolist())]
    kind = f"{column.type}{'[]' if field.multi_value else ''}"
    return [
        (field.name, kind, None if is_null else value)
        for value, is_null in zip(values, read_nulls(column), strict=True)
    ]


def _values(column: RowReader) -> list[Any]:
    if column.dictionary is not None:
        values = column.dictionary.arrow().to_pylist()
        return [values[dict_id] for dict_id in column.dict_ids().tolist()]
    found: list[Any] = (column.values() if is_fixed_width(column.type) else column.strings()).tolist()
    return found


def cells_of(rows: Iterable[Row], names: Iterable[str]) -> list[Row]:
    """The rows with these columns alone."""
    kept = frozenset(names)
    return sorted((tuple(cell for cell in row if cell[0] in kept) for row in rows), key=repr)


def base_rows(name: str) -> list[Row]:
    """Rows of a base, as it stores them."""
    table = variants.base(name)
    return rows_under([one.path for one in segments_of(table)], table.spec.table_schema)
