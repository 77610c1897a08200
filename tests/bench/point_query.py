"""Point queries over HTTP: queries per second and latency with 1, 8 and 32 clients, embedded and as processes.

`SELECT COUNT(*), SUM(seconds) FROM visits WHERE user_id = …`: 8 segments, an inverted index, plans cached by text after
the first round. The load comes from a process of its own on the same cores. Peers: DuckDB in this run, inside one
process and without HTTP; and Pinot 1.5.1, whose figures were measured on a like machine with 2 cores (one broker, one
server, its broker pruning 720 segments to 2), not in this run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from tests.bench.http_load import Load, run_load
from tests.bench.report import ROOT, Case, median_ms, publish
from tests.support.processes import PATIENCE_S, ClusterProcesses

from merlot.catalog.publish import upload
from merlot.cluster.records import SegmentRecord
from merlot.ports import free_port
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.manifest import load
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot_spark.zookeeper import ZooKeeper

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: visits}
spec:
  timeColumn: at
  indexing: {sortedColumns: [at], inverted: [user_id]}
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: user_id, type: LONG}
      - {name: page, type: STRING}
      - {name: seconds, type: INT, role: metric}
"""
NUM_SEGMENTS = 8
NUM_USERS = 50_000
CLIENTS = (1, 8, 32)
PINOT = {1: Load(761, 1.23, 5.2, 0), 8: Load(2159, 3.5, 11, 0), 32: Load(2400, 12.7, 30, 0)}
PINOT_NAME = "Pinot 1.5.1*"
QUERIES = [
    f"SELECT COUNT(*), SUM(seconds) FROM visits WHERE user_id = {user}" for user in range(0, NUM_USERS, NUM_USERS // 50)
]


def manifest() -> Table:
    return load(MANIFEST)[0]


def rows_of(segment: int, num_rows: int) -> pa.Table:
    rng = np.random.default_rng(segment)
    at = 1_700_000_000_000 + segment * 86_400_000 + np.sort(rng.integers(0, 86_400_000, num_rows))
    pages = np.array([f"/page/{number}" for number in range(200)])
    return pa.table(
        {
            "at": pa.array(at, pa.timestamp("ms")),
            "user_id": rng.integers(0, NUM_USERS, num_rows),
            "page": pages[rng.integers(0, len(pages), num_rows)],
            "seconds": rng.integers(0, 600, num_rows).astype(np.int32),
        }
    )


def build(folder: Path, deep_store: DeepStore, num_rows: int) -> list[SegmentRecord]:
    table = manifest()
    spec = table.spec
    folder.mkdir()
    records = []
    for segment in range(NUM_SEGMENTS):
        request = BuildRequest(
            name=f"visits_{segment}",
            table=table.raw_name,
            schema=spec.table_schema,
            indexing=spec.indexing,
            time_column=spec.time_column,
        )
        records.append(upload(deep_store, build_segment(request, rows_of(segment, num_rows), folder), table.name))
    return records


@contextmanager
def embedded(folder: Path, num_rows: int) -> Iterator[str]:
    """`merlot serve`; yields its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    records = build(folder / "built", DeepStore(str(folder / "data" / "deepstore")), num_rows)
    command = [sys.executable, "-m", "merlot.cli.main", "serve", "--data", str(folder / "data"), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as node:
        try:
            wait_until(lambda: get(f"{url}/health") == b"OK")
            post(f"{url}/apply", MANIFEST.encode())
            body = {"publishId": "bench", "records": [one.model_dump(mode="json", by_alias=True) for one in records]}
            post(f"{url}/segments/visits/publish", json.dumps(body).encode())
            wait_until(lambda: count(url) == num_rows * NUM_SEGMENTS)
            yield url
        finally:
            node.terminate()


@contextmanager
def processes(folder: Path, num_rows: int) -> Iterator[str]:
    """Controller, broker and one server over ZooKeeper; yields the broker's URL."""
    with (
        ZooKeeper(folder / "zookeeper") as zookeeper,
        ClusterProcesses(folder / "cluster", f"{zookeeper.hosts}/bench", num_servers=1, level="WARNING") as cluster,
    ):
        cluster.add_table(manifest(), build(folder / "built", cluster.deep_store, num_rows))
        yield cluster.broker.url


def measure(name: str, url: str, seconds: float) -> list[Case]:
    run_load(f"{url}/query/sql", QUERIES, 1, 1)  # plans and pages
    cases = []
    for num_clients in CLIENTS:
        load = run_load(f"{url}/query/sql", QUERIES, num_clients, seconds)
        if load.errors:
            raise SystemExit(f"{load.errors} answers had exceptions: {name}, {num_clients} clients")
        peer = PINOT[num_clients]
        label = f"{name}, {num_clients} client{'s' if num_clients > 1 else ''}"
        cases.append(Case(f"{label}, p50", "ms", load.p50_ms, PINOT_NAME, peer.p50_ms))
        cases.append(Case(f"{label}, p99", "ms", load.p99_ms, PINOT_NAME, peer.p99_ms))
        cases.append(Case(f"{label}, throughput", "queries/s, more is better", load.qps, PINOT_NAME, peer.qps))
    return cases


def duckdb_ms(num_rows: int) -> float:
    """Median of the same query, prepared, over the same rows, sorted and with an index, in one process."""
    connection = duckdb.connect(config={"threads": 2})
    rows = pa.concat_tables([rows_of(segment, num_rows) for segment in range(NUM_SEGMENTS)])
    connection.register("rows", rows)
    connection.execute("CREATE TABLE visits AS SELECT * FROM rows; CREATE INDEX by_user ON visits (user_id)")
    users = iter(np.random.default_rng(1).integers(0, NUM_USERS, 10_000).tolist())
    connection.execute("PREPARE q AS SELECT count(*), sum(seconds) FROM visits WHERE user_id = ?")
    return median_ms(lambda: connection.execute(f"EXECUTE q({next(users)})").fetchall(), 300)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit("the node does not serve the table")
        time.sleep(0.05)


def get(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


def post(url: str, body: bytes) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as answer:
        return bytes(answer.read())


def count(url: str) -> int:
    answer = json.loads(post(f"{url}/query/sql", b'{"sql": "SELECT COUNT(*) FROM visits"}'))
    return -1 if answer["exceptions"] else int(answer["resultTable"]["rows"][0][0])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and seconds")
    quick = parser.parse_args(arguments).quick
    num_rows, seconds = (10_000, 2.0) if quick else (100_000, 5.0)
    cases = []
    with tempfile.TemporaryDirectory(dir=ROOT / "build" if (ROOT / "build").is_dir() else None) as name:
        folder = Path(name)
        for deployment in (embedded, processes):
            (folder / deployment.__name__).mkdir()
            with deployment(folder / deployment.__name__, num_rows) as url:
                cases += measure(deployment.__name__, url, seconds)
    in_process = duckdb_ms(num_rows)
    cases += [
        Case(f"{case.case}, beside DuckDB without HTTP", case.unit, case.ours, "DuckDB", in_process)
        for case in cases
        if case.case.endswith("1 client, p50")
    ]
    publish("point_query", f"Point queries over HTTP, {NUM_SEGMENTS} x {num_rows:,} rows (*: like machine)", cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
