"""The queries of the constant load with the answers that the source's own rows give, and how the load is doing."""

import json
import time
from pathlib import Path
from typing import Any

import duckdb
from examples.demos.quickstart_data import flights_file
from tests.e2e.e2e_cluster import WAIT_S, Cluster, Json, pod

QUERIES = (
    "SELECT COUNT(*), SUM(distance), MIN(air_time), MAX(dep_time) FROM flights",
    "SELECT carrier, COUNT(*), SUM(distance) FROM flights GROUP BY carrier ORDER BY carrier LIMIT 100",
    "SELECT COUNT(*) FROM flights WHERE origin = 'JFK' AND distance > 2000",
    "SELECT month, COUNT(*) FROM flights WHERE carrier = 'UA' GROUP BY month ORDER BY month LIMIT 20",
    "SELECT COUNT(*), SUM(distance) FROM flights WHERE time_hour >= {february} AND time_hour < {march}",
)
FEBRUARY_MS, MARCH_MS = 1_359_676_800_000, 1_362_096_000_000


def flights_queries(folder: Path, months: int) -> list[Json]:
    """Queries and the rows that they must give for the year's first months, as DuckDB reads the source."""
    source = flights_file(folder)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    # Null is stored as 0 in metrics and as the smallest INT in dimensions.
    connection.execute(
        "CREATE VIEW flights AS SELECT * REPLACE (COALESCE(air_time, 0) AS air_time, "
        f"COALESCE(dep_time, -2147483648) AS dep_time) FROM read_parquet('{source}') WHERE month <= {months}"
    )
    wanted = []
    for sql in QUERIES:
        asked = sql.format(february=FEBRUARY_MS, march=MARCH_MS)
        told = sql.format(february=f"make_timestamptz({FEBRUARY_MS}000)", march=f"make_timestamptz({MARCH_MS}000)")
        rows = connection.execute(told).fetchall()
        wanted.append({"sql": asked, "rows": [[_plain(value) for value in row] for row in rows]})
    return wanted


def start_load(cluster: Cluster, queries: list[Json], period_s: float) -> "Load":
    """Two threads that ask, each once a period, from a pod through the brokers' Service."""
    # Its address, not its name: a busy cluster's DNS fails now and then, and is not what is tested.
    address = cluster.get("service", "merlot-broker")["spec"]["clusterIP"]
    arguments = ["python", "/opt/merlot/e2e/client.py", address, "8099", "2", str(period_s)]
    cluster.kubectl("delete", "pod", "load", "--ignore-not-found")
    cluster.apply(pod("load", cluster.images["e2e"], arguments, {"QUERIES": json.dumps(queries)}))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/load", "--timeout=300s")
    running = Load(cluster)
    running.await_queries(20)
    return running


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else float(value)


class Load:
    """The pod that asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def sums(self) -> dict[str, Any]:
        """So far: queries, retried, wrong, failed, slowest_ms, samples."""
        lines = self._cluster.api.log("load", 1)
        return dict(json.loads(lines[-1])) if lines else {"queries": 0, "retried": 0, "wrong": 0, "failed": 0}

    def await_queries(self, count: int) -> None:
        """Until that many more were asked."""
        goal, deadline = self.sums()["queries"] + count, time.monotonic() + WAIT_S
        while self.sums()["queries"] < goal:
            assert time.monotonic() < deadline, f"the load stands still\n{self._cluster.describe()}"
            time.sleep(0.5)
