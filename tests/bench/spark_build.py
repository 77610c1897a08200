"""Build segments through Spark, from Parquet to published: `python -m tests.bench.spark_build [--quick]`.

A session of two cores in this process, and a controller's HTTP API over SQLite. The first build warms JVM and workers
and is not counted; of the others, each into an empty deep store, the median counts. CPU is that of the JVM and of
Python's workers, which other work on the machine blurs less. Spark's own share is what a job takes that reads, shuffles
and builds nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests.bench import segment_build, tpch
from tests.bench.report import Case, publish
from tests.bench.segment_build import FLIGHT_METRICS, SSB_METRICS, flights
from tests.bench.ssb_data import generate
from tests.support.apps import serve_app

from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import TableSchema
from merlot.spec.table import Table
from merlot_spark import frames, sources
from merlot_spark.build_segments import TASKS_PER_CORE, build_segments, shuffled
from merlot_spark.preparing import PrepareTask
from merlot_spark.publish import ControllerClient
from merlot_spark.session import create_session

BAR = 250.0
LINEITEM_METRICS = ("l_quantity", "l_extendedprice", "l_discount", "l_tax")
START_MS = 1_700_000_000_000
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Source:
    """Rows, and the table that they are built for."""

    name: str
    rows: pa.Table
    metrics: tuple[str, ...]
    time: str
    days: int = 1
    """Per segment."""


def spread(rows: pa.Table, num_days: int) -> pa.Table:
    """The rows with a time column that spreads them over so many days, in no order."""
    rng = np.random.default_rng(7)
    millis = START_MS + rng.integers(0, num_days * DAY_MS, rows.num_rows)
    return rows.append_column("at", pa.array(millis).cast(pa.timestamp("ms")))


def table_of(source: Source) -> Table:
    schema: TableSchema = segment_build.schema_of(source.rows, source.metrics)
    fields: list[dict[str, Any]] = [
        {"name": field.name, "type": field.type.value, "role": "dateTime" if field.name == source.time else field.role}
        for field in schema.fields
    ]
    document = {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": source.name},
        "spec": {
            "schema": {"fields": fields},
            "timeColumn": source.time,
            "ingestion": {"daysPerSegment": source.days},
        },
    }
    (table,) = manifest.load_tables(json.dumps(document))
    return table


def read_only(spark: SparkSession, table: Table, path: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a job that reads and shuffles the same rows and builds nothing of them."""
    num_tasks = TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=num_tasks)
    batch = BatchIngestion.model_validate({"sourceUri": str(path), "format": "PARQUET"})
    rows = sources.read(spark, batch, table)
    assert isinstance(rows, sources.FileSource)
    started, worked = time.monotonic(), cpu_s(spark)
    parted = shuffled(rows.prepare(table, task).rows, task)
    counted = parted.mapInArrow(_count, "num_rows long").collect()
    assert sum(row.num_rows for row in counted) > 0
    return time.monotonic() - started, cpu_s(spark) - worked


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"num_rows": [batch.num_rows]})


def build(spark: SparkSession, table: Table, path: Path) -> tuple[float, float, Mapping[str, float]]:
    """Wall and CPU seconds of one build into an empty deep store, and where the job says that they went."""
    with (
        tempfile.TemporaryDirectory(prefix="spark_build_") as name,
        SqliteStore(Path(name)) as service,
        serve_app(make_app(service)) as url,
    ):
        ControllerClient(url).apply(json.dumps(manifest.dump(table)))
        batch = BatchIngestion.model_validate({"sourceUri": str(path), "format": "PARQUET"})
        started, worked = time.monotonic(), cpu_s(spark)
        report = build_segments(
            sources.read(spark, batch, table), table, deep_store=f"{name}/deep", controller_url=url, ingestion=batch
        )
        assert report.rows_out == pq.read_metadata(path).num_rows
        return time.monotonic() - started, cpu_s(spark) - worked, report.seconds


def lineitem(scale: float) -> pa.Table:
    """TPC-H's, of 2,526 days, in no order of them; metrics are DOUBLE."""
    return tpch.rows_of(tpch.generated(scale), "lineitem", "DOUBLE")


class SqliteStore:
    """A controller's service over a metastore of its own, closed in the end."""

    def __init__(self, folder: Path) -> None:
        self._store = SqliteMetastore(folder / "state.sqlite")

    def __enter__(self) -> ControllerService:
        return ControllerService(self._store)

    def __exit__(self, *_: object) -> None:
        self._store.close()


def cpu_s(spark: SparkSession) -> float:
    """Of the JVM and all that it started, what has ended included."""
    gateway: Any = spark.sparkContext._gateway
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    total, left = 0, [gateway.proc.pid]
    while left:
        pid = left.pop()
        total += ticks.get(pid, 0)
        left += parents.get(pid, [])
    return total / 100


def measure(spark: SparkSession, source: Source, folder: Path, repeats: int) -> list[Case]:
    path = folder / f"{source.name}.parquet"
    pq.write_table(source.rows, path, row_group_size=100_000)
    table = table_of(source)
    build(spark, table, path)
    runs = [build(spark, table, path) for _ in range(repeats)]
    for wall, cpu, seconds in runs:
        print(f"{source.name}: {wall:.2f} s, CPU {cpu:.2f} s, {dict(seconds)}", flush=True)
    wall, cpu = (statistics.median(run[place] for run in runs) for place in (0, 1))
    spark_wall, spark_cpu = read_only(spark, table, path)
    print(f"{source.name}: {spark_wall:.2f} s, CPU {spark_cpu:.2f} s without a builder", flush=True)
    label = f"{source.name} {source.rows.num_rows:,} rows × {source.rows.num_columns}"
    label += f", {source.days} days a segment" if source.days > 1 else ""
    return [
        Case(f"{label}: Parquet to published", "k rows/s", source.rows.num_rows / wall / 1e3, "bar", BAR),
        Case(f"{label}: CPU of two cores", "k rows/s", 2 * source.rows.num_rows / cpu / 1e3, "bar", BAR),
        Case(f"{label}: CPU without a builder", "s", spark_cpu, "with it", cpu),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the rows, once")
    parser.add_argument("--only", help="one source alone")
    options = parser.parse_args()
    num_rows, repeats = (500_000, 1) if options.quick else (2_000_000, 3)
    lines = lineitem(0.1 if options.quick else 1)
    found = [
        Source("ssb", spread(generate(num_rows), 60), SSB_METRICS, "at"),
        Source("flights", flights(), FLIGHT_METRICS, "time_hour"),
        Source("lineitem", lines, LINEITEM_METRICS, "l_shipdate"),
        Source("lineitem", lines, LINEITEM_METRICS, "l_shipdate", days=30),
    ]
    spark = create_session("local[2]", memory="2g")
    cases: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="spark_build_") as name:
        for source in found:
            if options.only in (None, source.name):
                cases += measure(spark, source, Path(name), repeats)
    spark.stop()
    publish("spark_build", "Build through Spark on two cores", cases)


if __name__ == "__main__":
    main()
