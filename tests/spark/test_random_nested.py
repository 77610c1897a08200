"""A DataFrame's values are stored as those of the file that it is read from, whatever their types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests import budget
from tests.contracts.ingestion.random_nested import Column, Draw, Kind
from tests.contracts.ingestion.test_random_nested import possible
from tests.spark.opened_parcels import rows_and_counts

from merlot.ingest import transform
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import FieldSpec
from merlot.spec.table import Table
from merlot_spark import frames, sources
from merlot_spark.frames import Prepared
from merlot_spark.preparing import PrepareTask

NUM_COLUMNS = budget.count("MERLOT_SPARK_NESTED_COLUMNS", quick=20, every=400)
NUM_ROWS = 8


def is_read_by_spark(kind: Kind) -> bool:
    return kind.spark


def test_a_data_frame_stores_what_its_file_stores(spark: SparkSession, tmp_path: Path) -> None:
    columns = [
        Draw(budget.seed() * 1_000_003 + number).column(NUM_ROWS, of=is_read_by_spark) for number in range(NUM_COLUMNS)
    ]
    given = dict(names(columns))
    fields = {name: one for name, (one, _) in given.items()}
    source = pa.table({"row": range(NUM_ROWS), **{name: columns[place].array for name, (_, place) in given.items()}})
    pq.write_table(source, tmp_path / "f.parquet")
    table = table_of(fields)
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=2)
    ingestion = BatchIngestion.model_validate({"format": "PARQUET", "sourceUri": str(tmp_path / "f.parquet")})
    of_file = rows_of(sources.read(spark, ingestion, table).prepare(table, task), table)
    of_frame = rows_of(frames.prepare(spark.read.parquet(str(tmp_path)), table, None, task), table)
    assert of_file.num_rows == of_frame.num_rows == NUM_ROWS
    for name, (_, place) in given.items():
        assert repr(of_frame.column(name).to_pylist()) == repr(of_file.column(name).to_pylist()), columns[place]


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
