"""Small table, `orders`, whose sums are all known, for tests of everything that stores, moves and serves segments."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from merlot.catalog.publish import upload
from merlot.cluster.manifests.tables import confirm_table, put_table
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.metadata import CreationFacts
from merlot.spec.manifest import load_tables
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.values.periods import DAY_MS

ORDERS = TableName("orders_OFFLINE")
START_MS = 1_704_067_200_000
CITIES = ("Bern", "Lima", "Oslo", "Rome")
BY_THREE_DAYS = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: orders}
spec:
  table: orders
  schedule: 1s
  levels:
    - {name: three-days, bucketTimePeriod: 3d, bufferTimePeriod: 0d, maxNumParallelBuckets: 4}
"""
"""Manifest of a task that merges the table."""


def orders_manifest(*, replication: int = 1, more_fields: str = "") -> Table:
    """Return the table. more_fields: lines of YAML."""
    return load_tables(f"""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: orders}}
spec:
  timeColumn: at
  replication: {replication}
  indexing: {{sortedColumns: [at], inverted: [city]}}
  schema:
    fields:
      - {{name: at, type: TIMESTAMP, role: dateTime}}
      - {{name: id, type: LONG}}
      - {{name: city, type: STRING}}
      - {{name: amount, type: LONG, role: metric}}
{more_fields}""")[0]


def order_rows(day: int, num_rows: int = 100, *, revision: int = 0) -> pa.Table:
    """Return the rows of one day; another revision of the day has other amounts."""
    rng = np.random.default_rng([day, revision])
    at = START_MS + day * DAY_MS + np.sort(rng.integers(0, DAY_MS, num_rows))
    return pa.table(
        {
            "at": pa.array(at, pa.int64()),
            "id": pa.array(np.arange(num_rows) + day * num_rows, pa.int64()),
            "city": pa.array([CITIES[index] for index in rng.integers(0, len(CITIES), num_rows)]),
            "amount": pa.array(rng.integers(1, 1000, num_rows), pa.int64()),
        }
    )


def segment_name(day: int) -> str:
    """Return the name of a day's segment, such as `orders_3`."""
    return f"orders_{day}"


def build_orders(folder: Path, day: int, num_rows: int = 100, *, revision: int = 0) -> BuiltSegment:
    """Build the segment of one day."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = orders_manifest().spec
    request = BuildRequest(
        name=segment_name(day),
        table="orders",
        schema=spec.table_schema,
        indexing=spec.indexing,
        time_column=spec.time_column,
        partitioning=None,
        creation=CreationFacts(),
    )
    return build_segment(request, order_rows(day, num_rows, revision=revision), folder)


def upload_orders(
    store: DeepStore, days: Sequence[int], num_rows: int = 100, *, revision: int = 0
) -> list[SegmentRecord]:
    """Build the segments of these days and put them into the deep store."""
    with tempfile.TemporaryDirectory() as folder:
        return [upload(store, build_orders(Path(folder), day, num_rows, revision=revision), ORDERS) for day in days]


def publish_orders(
    metastore: Metastore, store: DeepStore, days: Sequence[int], *, replication: int = 1, num_rows: int = 100
) -> list[SegmentRecord]:
    """Create the table, as a controller confirms it, and publish these days."""
    put_table(metastore, orders_manifest(replication=replication))
    confirm_table(metastore, ORDERS)
    records = upload_orders(store, days, num_rows)
    publish(metastore, ORDERS, records)
    return records


def total_amount(days: Sequence[int], num_rows: int = 100, *, revision: int = 0) -> int:
    """Return the answer of `SELECT sum(amount)` over these days."""
    return sum(sum(order_rows(day, num_rows, revision=revision)["amount"].to_pylist()) for day in days)
