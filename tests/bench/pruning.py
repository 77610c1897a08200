"""Segment pruning under load: 720 hourly segments, queries that need 1 or 2 of them (time) or 11 (partition).

Controller, broker and one server as processes over ZooKeeper; 1, 8 and 32 clients of wrk, a random query each time:
`SELECT COUNT(*), SUM(amount) FROM events WHERE at >= … AND at < …` over one hour, or `… WHERE user_id = …` (Murmur, 64
partitions). Three modes: no pruning anywhere (`skipSegmentPruning`), the server's only, and the broker's. Peers: the
first mode in this run, and Pinot 1.5.1, whose figures were measured on a like machine with 2 cores, not in this run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.bench.http_load import Load, run_load
from tests.bench.report import ROOT, Case, publish
from tests.support.processes import ClusterProcesses

from merlot.catalog.publish import upload
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import SegmentRecord
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec import partition_functions
from merlot.spec.indexing import PartitionFunctionSpec
from merlot.spec.manifest import load
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot_spark.zookeeper import ZooKeeper

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: events}}
spec:
  timeColumn: at
  indexing: {{sortedColumns: [at]}}
  partitioning: {{columns: {{user_id: {{functionName: Murmur, numPartitions: 64}}}}}}
  routing: {{segmentPruners: [{pruners}]}}
  schema:
    fields:
      - {{name: at, type: LONG, role: dateTime, format: "1:MILLISECONDS:EPOCH"}}
      - {{name: user_id, type: LONG}}
      - {{name: country, type: STRING}}
      - {{name: amount, type: LONG, role: metric}}
"""
NUM_SEGMENTS = 720
NUM_ROWS = 5_000
NUM_USERS = 100_000
NUM_PARTITIONS = 64
START_MS = 1_700_000_000_000 // 3_600_000 * 3_600_000
HOUR_MS = 3_600_000
CLIENTS = (1, 8, 32)
SKIP = "SET skipSegmentPruning = 'true'; "
SELECT = "SELECT COUNT(*), SUM(amount) FROM events WHERE "
PINOT_NAME = "Pinot 1.5.1*"
PINOT = {
    ("time", "server"): {1: Load(497, 1.70, 18.1, 0), 8: Load(1157, 6.3, 24, 0), 32: Load(1227, 25, 72, 0)},
    ("time", "broker"): {1: Load(761, 1.23, 5.2, 0), 8: Load(2159, 3.5, 11, 0), 32: Load(2400, 12.7, 30, 0)},
    ("user", "server"): {32: Load(1097, 29, 45, 0)},
    ("user", "broker"): {1: Load(661, 1.42, 5.6, 0), 8: Load(1703, 4.5, 11.5, 0), 32: Load(1681, 18, 34, 0)},
}
MODES = ("nowhere", "server", "broker")

WRK_SCRIPT = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
math.randomseed(os.time())
local next_body = math.random(#bodies)
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
request = function()
  next_body = next_body %% #bodies + 1
  return wrk.format(nil, nil, nil, bodies[next_body])
end
local errors = 0
response = function(status, headers, body)
  if not body:find('"exceptions":[]', 1, true) then errors = errors + 1 end
  if errors == 1 then print(body) end
end
done = function(summary, latency, requests)
  io.write(string.format('RESULT {"qps": %%f, "p50_ms": %%f, "p99_ms": %%f, "errors": %%d}\\n',
    summary.requests / (summary.duration / 1e6), latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    summary.errors.status + summary.errors.timeout + summary.errors.read))
end
"""


@dataclass(frozen=True)
class Run:
    """One measured load."""

    kind: str
    mode: str
    num_clients: int
    load: Load
    num_asked: int
    """Segments that servers were asked for by one such query."""
    broker_us: float
    server_us: float
    """CPU time of a query in the two processes: other work on the machine blurs it less than throughput."""

    def __str__(self) -> str:
        load = f"{self.load.qps:7.0f} QPS  p50 {self.load.p50_ms:7.2f}  p99 {self.load.p99_ms:7.2f} ms"
        cpu = f"CPU {self.broker_us:6.0f} us broker, {self.server_us:6.0f} us server"
        what = f"{self.kind:5} {self.mode:8} {self.num_clients:2} clients"
        return f"{what}: {load}  {self.num_asked:3} segments asked  {cpu}"


def manifest(pruners: str) -> Table:
    return load(MANIFEST.format(pruners=pruners))[0]


def users_by_partition() -> dict[int, list[int]]:
    partition_of = partition_functions.get(PartitionFunctionSpec(function_name="Murmur", num_partitions=NUM_PARTITIONS))
    users: dict[int, list[int]] = defaultdict(list)
    for user in range(NUM_USERS):
        users[partition_of(str(user))].append(user)
    return users


def build(folder: Path, deep_store: DeepStore, num_segments: int) -> list[SegmentRecord]:
    """Segment n holds hour n, and users of partition n modulo 64."""
    table = manifest("")
    folder.mkdir()
    users = users_by_partition()
    countries = np.array(["AT", "BR", "CH", "DE", "ES", "FR", "GB", "IT"])
    records = []
    for hour in range(num_segments):
        rng = np.random.default_rng(hour)
        start = START_MS + hour * HOUR_MS
        rows = pa.table(
            {
                "at": np.sort(rng.integers(start, start + HOUR_MS, NUM_ROWS)),
                "user_id": rng.choice(np.array(users[hour % NUM_PARTITIONS]), NUM_ROWS),
                "country": countries[rng.integers(0, len(countries), NUM_ROWS)],
                "amount": rng.integers(1, 1000, NUM_ROWS),
            }
        )
        request = BuildRequest(
            name=f"events_{hour}",
            table=table.raw_name,
            schema=table.spec.table_schema,
            indexing=table.spec.indexing,
            time_column=table.spec.time_column,
            partitioning=table.spec.partitioning,
        )
        built = build_segment(request, rows, folder)
        records.append(upload(deep_store, built, table.name))
        built.path.unlink()
    return records


def queries(kind: str, mode: str, num_segments: int, count: int = 20_000) -> list[str]:
    """Literals hardly ever repeat: no plan is found by its text."""
    rng = np.random.default_rng(count)
    prefix = (SKIP if mode == "nowhere" else "") + SELECT
    if kind == "user":
        return [f"{prefix}user_id = {user}" for user in rng.integers(0, NUM_USERS, count).tolist()]
    starts = START_MS + rng.integers(0, (num_segments - 1) * HOUR_MS, count)
    return [f"{prefix}at >= {start} AND at < {start + HOUR_MS}" for start in starts.tolist()]


def run_wrk(folder: Path, url: str, sqls: Sequence[str], num_clients: int, seconds: float) -> Load:
    """One thread, as in the figures of Pinot."""
    bodies, script = folder / "bodies.jsonl", folder / "post.lua"
    bodies.write_text("\n".join(json.dumps({"sql": sql}) for sql in sqls))
    script.write_text(WRK_SCRIPT % bodies)
    command = [
        "wrk",
        "-t1",
        f"-c{num_clients}",
        f"-d{round(seconds)}s",
        "--timeout",
        "10s",
        "--latency",
        "-s",
        str(script),
    ]
    done = subprocess.run([*command, url], capture_output=True, text=True, check=True)
    (result,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if '"errorCode"' in done.stdout:
        raise SystemExit(f"answers had exceptions:\n{done.stdout[:2000]}")
    return Load(**json.loads(result.removeprefix("RESULT ")))


def measure(cluster: ClusterProcesses, folder: Path, options: argparse.Namespace, seconds: float) -> list[Run]:
    run = run_wrk if shutil.which("wrk") else _run_python
    url = f"{cluster.broker.url}/query/sql"
    num_segments: int = options.segments
    runs = []
    for mode in options.modes:
        _switch(cluster, "time, partition" if mode == "broker" else "", num_segments)
        for kind in ("time", "user"):
            sqls = queries(kind, mode, num_segments)
            asked = _check(cluster, kind, mode, sqls[0])
            run(folder, url, sqls, 8, 3)
            for num_clients in CLIENTS:
                broker_s, server_s = cluster.broker.cpu_s(), cluster.servers[0].cpu_s()
                load = run(folder, url, sqls, num_clients, seconds)
                us_per_query = 1e6 / (load.qps * seconds)
                broker_us = (cluster.broker.cpu_s() - broker_s) * us_per_query
                server_us = (cluster.servers[0].cpu_s() - server_s) * us_per_query
                if load.errors:
                    raise SystemExit(f"{load.errors} requests failed: {kind}, {mode}, {num_clients} clients")
                runs.append(Run(kind, mode, num_clients, load, asked, broker_us, server_us))
                print(runs[-1], flush=True)
    return runs


def _run_python(folder: Path, url: str, sqls: Sequence[str], num_clients: int, seconds: float) -> Load:
    """Where wrk is not installed; takes more of the cores."""
    return run_load(url, sqls, num_clients, seconds)


def _switch(cluster: ClusterProcesses, pruners: str, num_segments: int) -> None:
    with cluster.metastore() as metastore:
        put_table(metastore, manifest(pruners))
    wanted = num_segments if pruners else 0
    while cluster.query(f"{SELECT} at < 0").get("numSegmentsPrunedByBroker") != wanted:
        pass


def _check(cluster: ClusterProcesses, kind: str, mode: str, sql: str) -> int:
    """That the mode prunes as it should; returns how many segments servers are asked for."""
    answer = cluster.query(sql)
    if answer["exceptions"]:
        raise SystemExit(str(answer["exceptions"]))
    asked = int(answer["numSegmentsQueried"])
    processed = int(answer["numSegmentsProcessed"])
    few = 2 if kind == "time" else -(-NUM_SEGMENTS // NUM_PARTITIONS)
    is_right = {
        "nowhere": processed == asked > few,
        "server": asked > few >= processed,
        "broker": few >= asked,
    }[mode]
    if not is_right:
        raise SystemExit(f"mode {mode} is not what it says, {kind}: asked {asked}, processed {processed}")
    return asked


def cases_of(runs: Sequence[Run]) -> list[Case]:
    by = {(run.kind, run.mode, run.num_clients): run for run in runs}
    cases = []
    for run in runs:
        label = f"{run.kind}, pruning {run.mode}, {run.num_clients} clients"
        pinot = PINOT.get((run.kind, run.mode), {}).get(run.num_clients)
        if pinot is not None:
            unit = "queries/s, more is better"
            cases.append(Case(f"{label}, throughput", unit, run.load.qps, PINOT_NAME, pinot.qps))
            cases.append(Case(f"{label}, p50", "ms", run.load.p50_ms, PINOT_NAME, pinot.p50_ms))
            cases.append(Case(f"{label}, p99", "ms", run.load.p99_ms, PINOT_NAME, pinot.p99_ms))
        if run.mode == "broker":
            for mode in ("nowhere", "server"):
                if (run.kind, mode, run.num_clients) not in by:
                    continue
                other = by[run.kind, mode, run.num_clients].load
                unit = "queries/s, more is better"
                cases.append(Case(f"{label}, beside pruning {mode}", unit, run.load.qps, f"pruning {mode}", other.qps))
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer seconds")
    parser.add_argument("--segments", type=int, default=NUM_SEGMENTS)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--modes", nargs="*", default=MODES, choices=MODES)
    options = parser.parse_args(arguments)
    seconds = options.seconds or (3 if options.quick else 10)
    if shutil.which("wrk") is None:
        print("wrk is not installed (Debian: apt-get install wrk); a Python client takes its place", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=ROOT / "build" if (ROOT / "build").is_dir() else None) as name:
        folder = Path(name)
        with (
            ZooKeeper(folder / "zookeeper") as zookeeper,
            ClusterProcesses(folder / "cluster", f"{zookeeper.hosts}/bench", num_servers=1, level="WARNING") as cluster,
        ):
            records = build(folder / "built", cluster.deep_store, options.segments)
            cluster.add_table(manifest(""), records)
            runs = measure(cluster, folder, options, seconds)
    title = f"Segment pruning, {options.segments} x {NUM_ROWS:,} rows, by wrk (*: like machine, not in this run)"
    publish("pruning", title, cases_of(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
