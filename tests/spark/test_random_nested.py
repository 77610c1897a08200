"""A DataFrame's values are stored as those of files and messages that hold them, and as DuckDB reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests import budget
from tests.contracts.ingestion.random_nested import Column, Draw, Kind, written
from tests.contracts.ingestion.test_random_nested import Stored, arrow, avro, is_of_duckdb, meaning, possible
from tests.spark.opened_parcels import rows_and_counts

from merlot.ingest import transform
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import FieldSpec
from merlot.spec.table import Table
from merlot.values.types import TypeName
from merlot_spark import frames, sources
from merlot_spark.frames import Prepared
from merlot_spark.preparing import PrepareTask

NUM_COLUMNS = budget.count("MERLOT_SPARK_NESTED_COLUMNS", quick=20, every=400)
NUM_ROWS = 8
Given = Mapping[str, tuple[FieldSpec, int]]
"""Columns of a table by name, each with the place of the column whose values it is given."""


def drawn() -> list[Column]:
    """Columns whose types Spark reads; every second one is of types that DuckDB writes as JSON without a loss."""
    return [
        Draw(budget.seed() * 1_000_003 + number).column(
            NUM_ROWS, of=lambda kind, number=number: kind.spark and (number % 2 == 0 or is_of_duckdb(kind))
        )
        for number in range(NUM_COLUMNS)
    ]


def test_a_data_frame_stores_what_its_file_and_messages_of_its_rows_store(spark: SparkSession, tmp_path: Path) -> None:
    columns, path = drawn(), tmp_path / "f.parquet"
    given = dict(names(columns))
    write(columns, given, path)
    table = table_of({name: one for name, (one, _) in given.items()})
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=2)
    ingestion = BatchIngestion.model_validate({"format": "PARQUET", "sourceUri": str(path)})
    of_file = rows_of(sources.read(spark, ingestion, table).prepare(table, task), table)
    of_frame = rows_of(frames.prepare(spark.read.parquet(str(tmp_path)), table, None, task), table)
    assert of_file.num_rows == of_frame.num_rows == NUM_ROWS
    expected = {place: in_json(column, place, path) for place, column in enumerate(columns)}
    by_message = [messages(column) for column in columns]
    for name, (field, place) in given.items():
        found = texts(of_frame, name)
        assert found == texts(of_file, name), columns[place]
        for way in by_message[place]:
            assert found == way[field_name(name)], columns[place]
        if is_json(columns[place], field):
            assert [meaning(one) for one in of_frame.column(name).to_pylist()] == expected[place], columns[place]


def test_a_data_frame_of_json_lines_stores_what_one_of_typed_columns_stores(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark parses the lines by the types that it reads in the file."""
    columns = [
        Draw(budget.seed() * 1_000_003 + number).column(NUM_ROWS, of=is_told_by_json) for number in range(NUM_COLUMNS)
    ]
    given = dict(names(columns))
    write(columns, given, tmp_path / "f.parquet")
    (tmp_path / "lines").write_text("".join(lines(columns, given)))
    typed = spark.read.parquet(str(tmp_path / "f.parquet"))
    parsed = spark.read.schema(typed.schema).json(str(tmp_path / "lines"))
    table = table_of({name: one for name, (one, _) in given.items()})
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=2)
    of_typed, of_lines = (rows_of(frames.prepare(one, table, None, task), table) for one in (typed, parsed))
    assert of_lines.num_rows == NUM_ROWS
    for name, (_, place) in given.items():
        assert texts(of_lines, name) == texts(of_typed, name), columns[place]


def is_json(column: Column, field: FieldSpec) -> bool:
    """Say whether the field holds the JSON of the column's values."""
    is_text = field.type in (TypeName.JSON, TypeName.STRING) and not field.multi_value
    return is_text and pa.types.is_nested(column.kind.arrow)


def is_told_by_json(kind: Kind) -> bool:
    """Say whether Spark reads every value of the type in JSON as it reads it in Parquet."""
    arrow = kind.arrow
    is_number = pa.types.is_integer(arrow) or pa.types.is_decimal128(arrow) or pa.types.is_boolean(arrow)
    return kind.spark and (is_number or pa.types.is_string(arrow) or pa.types.is_date(arrow))


def write(columns: list[Column], given: Given, path: Path) -> None:
    """Write each column under the name of every column of the table that takes its values."""
    source = {name: columns[place].array for name, (_, place) in given.items()}
    pq.write_table(pa.table({"row": range(NUM_ROWS), **source}), path)


def lines(columns: list[Column], given: Given) -> Iterator[str]:
    in_lines = [["null" if text is None else text for text in column.json] for column in columns]
    for row in range(NUM_ROWS):
        members = [f'"{name}":{in_lines[place][row]}' for name, (_, place) in given.items()]
        yield written("{}", [f'"row":{row}', *members]) + "\n"


def messages(column: Column) -> list[Stored]:
    """What messages of a column's values store, of each format that has its type."""
    fields = possible(column.kind.arrow)
    return [arrow(column, fields), *([] if column.kind.avro is None else [avro(column, fields)])]


def in_json(column: Column, place: int, path: Path) -> list[Any]:
    """The meaning of each value as JSON: by DuckDB where it has the types, else by hand."""
    if place % 2 == 0:
        return list(map(meaning, column.json))
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        name = next(name for name in pq.read_schema(path).names if name.startswith(f"n{place}_"))
        rows = engine.execute(f"SELECT to_json({name})::VARCHAR FROM '{path}' ORDER BY row").fetchall()
    return [meaning(text) for (text,) in rows]


def texts(rows: pa.Table, name: str) -> list[str]:
    column = rows.column(name)
    return list(map(repr, (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()))


def field_name(name: str) -> str:
    """The name that the field has in FIELDS: `c_json` of `n7_c_json`."""
    return name.partition("_")[2]


def names(columns: list[Column]) -> Iterator[tuple[str, tuple[FieldSpec, int]]]:
    """A column of the table for each type that has all values of a source's column."""
    for place, column in enumerate(columns):
        rows = pa.table({"v": column.array})
        for one in possible(column.kind.arrow):
            stored = transform.source_values(rows, one.model_copy(update={"name": "v"}))
            if stored.null_count == column.array.null_count:
                name = f"n{place}_{one.name}"
                yield name, (one.model_copy(update={"name": name}), place)


def table_of(fields: dict[str, FieldSpec]) -> Table:
    declared = [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in fields.values()]
    document = {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": "nested"},
        "spec": {"schema": {"fields": [{"name": "row", "type": "LONG"}, *declared]}},
    }
    (table,) = manifest.load(json.dumps(document))
    assert isinstance(table, Table)
    return table


def rows_of(prepared: Prepared, table: Table) -> pa.Table:
    rows, counts = rows_and_counts(prepared.rows.toArrow().to_batches(), table)
    assert not any(one["bad"]["count"] for one in counts), counts
    return rows.sort_by("row")
