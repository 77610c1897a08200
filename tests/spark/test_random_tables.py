"""Files of random tables, read by executors, hold for us what they hold for DuckDB: in folders and in S3.

Many tables are one job: each is a file in a folder of its own, whose name says which it is.
"""

from __future__ import annotations

import functools
import json
import operator
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.contracts.ingestion.random_tables import ALL, KINDS, Made, fields_of, read, tables, written
from tests.spark.conftest import Place

from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot_spark import frames, parcels, sources
from merlot_spark.preparing import Counts, PrepareTask

NUM_TABLES = 25


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


@pytest.mark.parametrize("place_name", ["folder", "bucket"])
@pytest.mark.parametrize("file_format", ALL)
def test_executors_read_in_files_what_duckdb_reads(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, file_format: str, place_name: str
) -> None:
    files: Place = request.getfixturevalue(place_name)
    more = {"filter": "row >= 0"} if place_name == "folder" else {}

    # The first example is the simplest; a failure is told as it is, since each attempt to make it smaller is a job.
    @settings(
        max_examples=3,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(st.lists(tables(file_format), min_size=NUM_TABLES, max_size=NUM_TABLES))
    def check(made: list[Made]) -> None:
        root = f"random-{uuid.uuid4().hex}"
        expected = []
        for number, one in enumerate(made):
            expected.append(written(one, tmp_path / "file"))
            files.put(f"{root}/t={number}/f", (tmp_path / "file").read_bytes())
        rows, counts = run(spark, file_format, {"sourceUri": files.uri(root), **more})
        assert (counts.rows_in, counts.bad.by_reason) == (sum(one.table.num_rows for one in made), {})
        for number, one in enumerate(made):
            found = rows.filter(pa.compute.equal(rows.column("t"), number))
            assert repr(read(one, found)) == repr(expected[number]), one.table.to_pydict()

    check()


def run(spark: SparkSession, file_format: str, batch: Mapping[str, Any]) -> tuple[pa.Table, Counts]:
    """All rows as executors hand them on, and what they counted."""
    table = table_of(file_format)
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=2)
    source = BatchIngestion.model_validate({"format": file_format, **batch})
    packed = sources.read(spark, source, table).prepare(table, task).rows.toArrow().to_batches()
    content = list(parcels.opened(packed, parcels.rows_schema(table)))
    rows = pa.concat_tables([one for one in content if isinstance(one, pa.Table)])
    told = [Counts.from_json(json.loads(one)) for one in content if isinstance(one, str)]
    return rows, functools.reduce(operator.add, told, Counts())
