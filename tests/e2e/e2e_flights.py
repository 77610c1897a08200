"""The table of flights, of a year or of its first months, and what it must come to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import yaml
from examples.demos.quickstart_data import flights_file
from tests.e2e.e2e_cluster import ROOT, Cluster, Json

BUILD_S = 900.0


@dataclass(frozen=True)
class Extent:
    """The year's first months, in a Parquet file of `folder`."""

    folder: Path
    months: int
    docs: int
    days: int
    """Of UTC, one segment each."""
    merged: int
    """Months of UTC: the last evening in New York is in the next one."""


def measure(folder: Path, months: int) -> Extent:
    """As DuckDB reads the source."""
    source = flights_file(folder)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    found = connection.execute(
        "SELECT COUNT(*), COUNT(DISTINCT date_trunc('day', time_hour)), COUNT(DISTINCT date_trunc('month', time_hour)) "
        f"FROM read_parquet('{source}') WHERE month <= {months}"
    ).fetchone()
    assert found is not None
    return Extent(folder, months, *found)


def flights_table(source: str, executors: int) -> Json:
    """The example's table with two replicas, gone with its files."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "flights" / "table.yaml").read_text())
    batch = {
        "name": "year",
        "sourceUri": source,
        "format": "PARQUET",
        "job": {"executors": executors, "cores": 1, "retries": 1},
    }
    document["spec"] |= {
        "replication": 2,
        "nullHandling": False,
        "deletionPolicy": "Delete",
        "tenants": {"broker": {"replicas": 2}, "server": {"replicas": 2}},
        "ingestion": {"batch": [batch]},
    }
    return document


def await_served(cluster: Cluster, extent: Extent) -> None:
    """Until every flight answers."""
    is_built = lambda: cluster.get("table", "flights").get("status", {}).get("totalDocs") == extent.docs  # noqa: E731
    cluster.await_true("every flight is there", is_built, BUILD_S)
    cluster.await_true("flights are ready", lambda: cluster.holds("table", "flights", "Ready"))
    # Ready is the table before its segments are loaded, as an empty one.
    is_settled = lambda: cluster.condition("table", "flights", "Progressing").get("status") == "False"  # noqa: E731
    cluster.await_true("every segment is loaded", is_settled)
