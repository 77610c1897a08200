"""The queries of the constant load with the answers that the source's own rows give, and how the load is doing."""

import json
import time
from pathlib import Path
from typing import Any

import duckdb
from e2e_cluster import Cluster, Json

from merlot_spark.quickstart_data import flights_file

TIMEOUT_S = 60.0
QUERIES = (
    "SELECT COUNT(*), SUM(distance), MIN(air_time), MAX(dep_time) FROM flights",
    "SELECT carrier, COUNT(*), SUM(distance) FROM flights GROUP BY carrier ORDER BY carrier LIMIT 100",
    "SELECT COUNT(*) FROM flights WHERE origin = 'JFK' AND distance > 2000",
    "SELECT month, COUNT(*) FROM flights WHERE carrier = 'UA' GROUP BY month ORDER BY month LIMIT 20",
    "SELECT COUNT(*), SUM(distance) FROM flights WHERE time_hour >= {june} AND time_hour < {july}",
)
JUNE_MS, JULY_MS = 1_370_044_800_000, 1_372_636_800_000


def flights_queries(folder: Path) -> list[Json]:
    """Queries and the rows that they must give, as DuckDB reads the source."""
    source = flights_file(folder)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    # Null is stored as 0 in metrics and as the smallest INT in dimensions.
    connection.execute(
        "CREATE VIEW flights AS SELECT * REPLACE (COALESCE(air_time, 0) AS air_time, "
        f"COALESCE(dep_time, -2147483648) AS dep_time) FROM read_parquet('{source}')"
    )
    wanted = []
    for sql in QUERIES:
        asked = sql.format(june=JUNE_MS, july=JULY_MS)
        told = sql.format(june=f"make_timestamptz({JUNE_MS}000)", july=f"make_timestamptz({JULY_MS}000)")
        rows = connection.execute(told).fetchall()
        wanted.append({"sql": asked, "rows": [[_plain(value) for value in row] for row in rows]})
    return wanted


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else float(value)


class Load:
    """The pod that asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def sums(self) -> dict[str, Any]:
        """So far: queries, retried, wrong, failed, slowest_ms, samples."""
        lines = self._cluster.kubectl("logs", "load", "--tail=1").strip().splitlines()
        return dict(json.loads(lines[-1])) if lines else {"queries": 0, "retried": 0, "wrong": 0, "failed": 0}

    def await_queries(self, count: int) -> None:
        """Until that many more were asked."""
        goal, deadline = self.sums()["queries"] + count, time.monotonic() + TIMEOUT_S
        while self.sums()["queries"] < goal:
            assert time.monotonic() < deadline, f"the load stands still\n{self._cluster.describe()}"
            time.sleep(0.5)
