"""The example's flights as 366 daily segments, without Spark; and questions whose answers a rollup by day keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from examples.demos.quickstart_data import read_flights

from merlot.catalog.transfer import upload_segments
from merlot.cluster.records import SegmentRecord
from merlot.ingest.batch import build_from_tables
from merlot.spec import manifest
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "flights"

EXACT = (
    "SELECT COUNT(*), COUNT(DISTINCT tailnum), MIN(time_hour), MAX(time_hour) FROM flights",
    "SELECT dest, COUNT(*) FROM flights WHERE origin = 'JFK' GROUP BY dest ORDER BY COUNT(*) DESC, dest LIMIT 20",
    "SELECT time_hour, carrier, flight, dep_delay FROM flights ORDER BY dep_delay DESC, carrier, flight LIMIT 10",
    (
        "SELECT hour, COUNT(*), SUM(arr_delay) FROM flights "
        "WHERE time_hour BETWEEN '2013-07-01 00:00:00' AND '2013-07-07 23:00:00' GROUP BY hour ORDER BY hour LIMIT 24"
    ),
)
"""Answers of these stay the same as long as rows do."""

BY_DAY = (
    "SELECT SUM(num_flights), SUM(dep_delay), SUM(arr_delay), MAX(air_time), MIN(distance) FROM flights",
    (
        "SELECT carrier, SUM(num_flights), SUM(arr_delay), MAX(air_time) FROM flights "
        "GROUP BY carrier ORDER BY carrier LIMIT 100"
    ),
    (
        "SELECT origin, carrier, SUM(num_flights), MIN(distance) FROM flights "
        "WHERE time_hour >= '2013-03-01 00:00:00' AND time_hour < '2013-04-01 00:00:00' "
        "GROUP BY origin, carrier ORDER BY origin, carrier LIMIT 100"
    ),
    (
        "SELECT CAST(DATETRUNC('DAY', time_hour) AS TIMESTAMP), SUM(num_flights), SUM(dep_delay) FROM flights "
        "WHERE origin = 'LGA' GROUP BY CAST(DATETRUNC('DAY', time_hour) AS TIMESTAMP) "
        "ORDER BY SUM(num_flights) DESC, CAST(DATETRUNC('DAY', time_hour) AS TIMESTAMP) LIMIT 20"
    ),
    "SELECT SUM(num_flights) FROM flights WHERE carrier = 'HA' AND time_hour < '2013-06-01 00:00:00'",
)
"""Answers of these stay the same even when rows of one day, carrier and origin become one."""


def flights_table(*, replication: int = 1) -> Table:
    """The example's table, whose queries may take as long as a busy machine takes, and read nulls as default values."""
    text = (EXAMPLES / "table.yaml").read_text().replace("replication: 1", f"replication: {replication}")
    text = text.replace("timeoutMs: 10000", "timeoutMs: 60000").replace("nullHandling: true", "nullHandling: false")
    (table,) = manifest.load_tables(text)
    return table


def flights_rows() -> pa.Table:
    """All flights, in the order of time."""
    rows = read_flights()
    return rows.take(pc.sort_indices(rows, [("time_hour", "ascending")]))


def build_flights(
    table: Table, store: DeepStore, folder: Path, rows: pa.Table | None = None
) -> Sequence[SegmentRecord]:
    """Daily segments, in the deep store."""
    folder.mkdir(parents=True, exist_ok=True)
    built = build_from_tables(table, [flights_rows() if rows is None else rows], folder)
    return upload_segments(store, built.segments, table.name)
