"""Days of more rows than a segment may have: the job divides them, and whatever the limit is and wherever a run dies,
the table has every row once."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from merlot.cluster.segments.view import load
from merlot.errors import InvalidInputError
from merlot.ids import TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot.testing.patience import wait_until
from merlot_spark import sources
from merlot_spark.build_segments import JobOptions, build_segments
from merlot_spark.publish import ControllerClient
from merlot_spark.report import JobReport

RowsOf = Callable[[Iterable[Path], Iterable[str]], pa.Table]
START_MS = 1_356_998_400_000  # 2013-01-01 00:00:00 UTC
NUM_ROWS = 1000
START_S = 180.0
"""Spark starts slowly where much else does."""
MANIFEST: dict[str, Any] = {
    "apiVersion": "merlot.dev/v1alpha1",
    "kind": "Table",
    "metadata": {"name": "trips"},
    "spec": {
        "schema": {
            "fields": [
                {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
                {"name": "number", "type": "INT", "role": "metric"},
            ]
        },
        "timeColumn": "at",
    },
}


def table_of(most: int) -> Table:
    spec = {**MANIFEST["spec"], "ingestion": {"maxRowsPerSegment": most}}
    (table,) = manifest.load_tables(json.dumps({**MANIFEST, "spec": spec}))
    return table


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A day of 800 rows and one of 200, in no order."""
    days = [0 if number < 800 else 1 for number in range(NUM_ROWS)]
    times = [START_MS + day * 86_400_000 + number * 7919 % 86_400 * 1000 for number, day in enumerate(days)]
    rows = {"at": pa.array(times, pa.timestamp("ms", "UTC")), "number": pa.array(range(NUM_ROWS), pa.int32())}
    pq.write_table(pa.table(rows), tmp_path / "trips.parquet")
    return tmp_path / "trips.parquet"


def run(spark: SparkSession, source: Path, deep: Path, controller: str, most: int) -> JobReport:
    """Apply the limit, and run the batch."""
    table = table_of(most)
    ControllerClient(controller).apply(json.dumps(manifest.dump(table)))
    batch = BatchIngestion.model_validate({"sourceUri": str(source), "format": "PARQUET"})
    return build_segments(
        sources.read(spark, batch, table),
        table,
        deep_store=str(deep),
        controller_url=controller,
        ingestion=batch,
        options=JobOptions(parallelism=2),
    )


def visible(metastore: SqliteMetastore) -> list[str]:
    return sorted(load(metastore, TableName("trips_OFFLINE")).visible)


def numbers(metastore: SqliteMetastore, rows_of: RowsOf) -> list[int]:
    """Those of all rows that queries see."""
    records = load(metastore, TableName("trips_OFFLINE")).visible.values()
    paths = [Path(record.url.removeprefix("file://")) for record in records]
    found: list[int] = rows_of(paths, ["number"]).column("number").to_pylist()
    return sorted(found)


def test_a_large_day_is_divided_by_time_and_divided_anew_when_the_limit_changes(
    spark: SparkSession, source: Path, tmp_path: Path, controller: str, metastore: SqliteMetastore, rows_of: RowsOf
) -> None:
    deep = tmp_path / "deep"
    first = run(spark, source, deep, controller, 300)
    assert [(record["name"], record["totalDocs"]) for record in first.records] == [
        ("trips_2013-01-01~1of3", 266),
        ("trips_2013-01-01~2of3", 267),
        ("trips_2013-01-01~3of3", 267),
        ("trips_2013-01-02", 200),
    ]
    times = [(record["startTimeMs"], record["endTimeMs"]) for record in first.records]
    assert all(ends <= begins for (_, ends), (begins, _) in itertools.pairwise(times))
    again = run(spark, source, deep, controller, 300)
    assert (again.published, again.unchanged, again.removed) == (0, 4, 0)
    for most, num_segments in ((1000, 2), (100, 10), (150, 8)):
        report = run(spark, source, deep, controller, most)
        assert len(report.segments) == num_segments
        assert visible(metastore) == [record["name"] for record in report.records]
        assert report.rows is not None
        assert (report.rows.before, report.rows.after) == (NUM_ROWS, NUM_ROWS)
        assert numbers(metastore, rows_of) == list(range(NUM_ROWS))


def test_a_part_of_a_day_takes_the_place_of_no_parts(
    spark: SparkSession, source: Path, tmp_path: Path, controller: str, metastore: SqliteMetastore, rows_of: RowsOf
) -> None:
    run(spark, source, tmp_path / "deep", controller, 300)
    before = visible(metastore)
    half = tmp_path / "half.parquet"
    pq.write_table(pq.read_table(source).slice(0, 500), half)
    half.rename(source)
    for most in (300, 200, 1000):
        with pytest.raises(InvalidInputError, match="trips_2013-01-01: 800 rows in 3 segments"):
            run(spark, source, tmp_path / "deep", controller, most)
    assert visible(metastore) == before
    assert numbers(metastore, rows_of) == list(range(NUM_ROWS))


@pytest.mark.slow(
    "test_publish_moments kills a job that publishes in the same way, and the tests above divide days anew"
)
def test_a_job_that_is_killed_while_it_divides_days_anew_leaves_the_table_as_it_is(
    spark: SparkSession, source: Path, tmp_path: Path, controller: str, metastore: SqliteMetastore, rows_of: RowsOf
) -> None:
    deep = tmp_path / "deep"
    run(spark, source, deep, controller, 300)
    before, files = visible(metastore), set(deep.rglob("*.mseg"))
    ControllerClient(controller).apply(json.dumps(manifest.dump(table_of(3))))
    command = [
        *(sys.executable, "-m", "merlot_spark.build_segments", "--name", "trips", "--controller", controller),
        *("--source", str(source), "--format", "parquet", "--deep-store", str(deep), "--short"),
    ]
    job = subprocess.Popen(command, start_new_session=True)
    try:
        wait_until(lambda: len(set(deep.rglob("*.mseg")) - files) > 0 or job.poll() is not None, START_S)
        assert job.poll() is None, "it is building"
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    assert visible(metastore) == before
    assert numbers(metastore, rows_of) == list(range(NUM_ROWS))
    report = run(spark, source, deep, controller, 3)
    assert len(report.segments) == 267 + 67
    assert numbers(metastore, rows_of) == list(range(NUM_ROWS))
