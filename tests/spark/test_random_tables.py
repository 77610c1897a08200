"""Files of random tables, read by executors, hold for us what they hold for DuckDB: in folders and in S3.

Many tables are one job: each is a file in a folder of its own, whose name says which it is.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase
from pyspark.sql import SparkSession
from tests import budget
from tests.contracts.ingestion.random_tables import ALL, COLUMNAR, KINDS, Made, fields_of, read, tables, written
from tests.spark.conftest import PLACES, Place
from tests.spark.opened_parcels import rows_and_counts

from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot_spark import frames, sources
from merlot_spark.preparing import PrepareTask, TaskCounts

NUM_TABLES = budget.count("MERLOT_SPARK_TABLES", quick=10, every=100)


def table_of(file_format: str) -> Table:
    """With a column of each kind that the format has."""
    places = [place for place, kind in enumerate(KINDS) if file_format in kind.formats]
    fields = [{"name": "t", "type": "INT"}, *fields_of(places)]
    document = {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": "made"},
        "spec": {"schema": {"fields": fields}},
    }
    (table,) = manifest.load(json.dumps(document))
    assert isinstance(table, Table)
    return table


def formats_by_place() -> Iterator[Any]:
    """Each format in each place; at the quick level in the place where test_matrix reads the fewest values of it."""
    slow = pytest.mark.slow("test_matrix reads most of the format's values in this place")
    for file_format, place in itertools.product(ALL, PLACES):
        marks = [] if (file_format in COLUMNAR) == (place == "bucket") else [slow]
        yield pytest.param(file_format, place, id=f"{file_format}-{place}", marks=marks)


def drawn(file_format: str) -> list[Made]:
    """Random tables; a failure is told as it is, since each attempt to make one smaller would be a job."""
    made: list[Made] = []

    @hypothesis.seed(budget.seed())
    @hypothesis.settings(
        max_examples=NUM_TABLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @hypothesis.given(tables(file_format))
    def draw(one: Made) -> None:
        made.append(one)

    draw()
    return made


@pytest.mark.parametrize(("file_format", "place_name"), list(formats_by_place()))
def test_executors_read_in_files_what_duckdb_reads(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, file_format: str, place_name: str
) -> None:
    files: Place = request.getfixturevalue(place_name)
    more = {"filter": "row >= 0"} if place_name == "folder" else {}

    expected = []
    for number, one in enumerate(made := drawn(file_format)):
        expected.append(written(one, tmp_path / "file"))
        files.put(f"random/t={number}/f", (tmp_path / "file").read_bytes())
    rows, counts = run(spark, file_format, {"sourceUri": files.uri("random"), **more})
    assert (counts.rows_in, counts.bad.by_reason) == (sum(one.table.num_rows for one in made), {})
    for number, one in enumerate(made):
        found = rows.filter(pa.compute.equal(rows.column("t"), number))
        assert repr(read(one, found)) == repr(expected[number]), one.table.to_pydict()


def run(spark: SparkSession, file_format: str, batch: Mapping[str, Any]) -> tuple[pa.Table, TaskCounts]:
    """All rows as executors hand them on, and what they counted."""
    table = table_of(file_format)
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=2)
    source = BatchIngestion.model_validate({"format": file_format, **batch})
    packed = sources.read(spark, source, table).prepare(table, task).rows.toArrow().to_batches()
    rows, counts = rows_and_counts(packed, table)
    return rows, functools.reduce(operator.add, map(TaskCounts.from_json, counts), TaskCounts())
