"""Many small segments on one node: `python -m tests.bench.small_segments [--quick]`.

20,000 segments of 100 rows and eight columns are published to a `merlot serve` in one request. Measured are the time
from the publication's answer until a count over the table is right, the memory that the node takes then and after a
query that reads a column of every segment, and the time that a restart takes until it answers again; CPU time beside
each, which other work on the machine blurs less. Segments are built once, into build/small_segments, and used again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.bench.report import ROOT, Case, publish
from tests.support.fork_server import Child

from merlot.catalog.publish import upload
from merlot.cluster.records import SegmentRecord
from merlot.ids import TableName, offline
from merlot.ports import free_port
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.manifest import load_tables
from merlot.store.deepstore import DeepStore

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: events}
spec:
  timeColumn: at
  indexing: {sortedColumns: [at], inverted: [country]}
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: id, type: LONG}
      - {name: user_id, type: LONG}
      - {name: country, type: STRING}
      - {name: device, type: STRING}
      - {name: url, type: STRING}
      - {name: amount, type: LONG, role: metric}
      - {name: price, type: DOUBLE, role: metric}
"""
NUM_ROWS = 100
START_MS = 1_700_000_000_000
STEP_MS = 60_000
COUNTRIES = np.array(["AT", "BR", "CH", "DE", "ES", "FR", "GB", "IT"])
DEVICES = np.array(["desktop", "phone", "tablet", "watch"])
BARS = {"served": 15.0, "memory": 300.0, "restart": 5.0}
PATIENCE_S = 600.0
IDLE_SHARE = 0.05
POLL_S = 0.2
"""A count over 20,000 segments takes as long: asked without a pause it would be half of what is measured."""


def rows_of(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    start = START_MS + number * STEP_MS
    return pa.table(
        {
            "at": np.sort(rng.integers(start, start + STEP_MS, NUM_ROWS)),
            "id": np.arange(NUM_ROWS) + number * NUM_ROWS,
            "user_id": rng.integers(0, 100_000, NUM_ROWS),
            "country": COUNTRIES[rng.integers(0, len(COUNTRIES), NUM_ROWS)],
            "device": DEVICES[rng.integers(0, len(DEVICES), NUM_ROWS)],
            "url": [f"https://example.com/{page}" for page in rng.integers(0, 5_000, NUM_ROWS).tolist()],
            "amount": np.ones(NUM_ROWS, dtype=np.int64),
            "price": rng.integers(100, 10_000, NUM_ROWS) / 100,
        }
    )


def built_segments(folder: Path, count: int) -> list[SegmentRecord]:
    """Records of segments in the deep store at `folder`, built where they are not there yet."""
    listed = folder / "records.jsonl"
    records = [SegmentRecord.model_validate_json(line) for line in listed.open()] if listed.exists() else []
    (table,) = load_tables(MANIFEST)
    deep_store = DeepStore(str(folder / "deepstore"))
    folder.mkdir(parents=True, exist_ok=True)
    with listed.open("a") as lines:
        for number in range(len(records), count):
            request = BuildRequest(
                name=f"events_{number}",
                table=table.raw_name,
                schema=table.spec.table_schema,
                indexing=table.spec.indexing,
                time_column=table.spec.time_column,
                partitioning=None,
            )
            built = build_segment(request, rows_of(number), folder)
            records.append(upload(deep_store, built, offline(table.raw_name)))
            lines.write(records[-1].model_dump_json(by_alias=True, exclude_defaults=True) + "\n")
            built.path.unlink()
    return records[:count]


@dataclass(frozen=True)
class Cost:
    """Of one step of the node: time on the clock, and of the processor."""

    wall_s: float
    cpu_s: float


class ServedNode:
    """A `merlot serve` in a process of its own, with an interpreter of its own: whose memory is told."""

    def __init__(self, folder: Path, deep_store: Path) -> None:
        self._folder = folder
        self._deep_store = deep_store
        self._port = free_port()
        self._child: Child | None = None

    def start(self) -> None:
        arguments = ["serve", "--data", str(self._folder / "node"), "--deep-store", str(self._deep_store)]
        arguments += ["--port", str(self._port)]
        self._child = Child("merlot.cli.main", arguments, self._folder / "node.log", is_fresh=True)

    def stop(self) -> None:
        assert self._child is not None
        self._child.send(signal.SIGTERM)
        self._child.wait(PATIENCE_S)

    def post(self, path: str, body: bytes, content_type: str = "application/json") -> Any:
        url = f"http://127.0.0.1:{self._port}{path}"
        with urllib.request.urlopen(
            urllib.request.Request(url, body, {"Content-Type": content_type}), timeout=PATIENCE_S
        ) as answer:
            return json.load(answer)

    def ask(self, sql: str) -> Any:
        """The first value of the answer; None if there is none, or not a whole one."""
        try:
            answer = self.post("/query/sql", json.dumps({"sql": sql, "queryOptions": "timeoutMs=60000"}).encode())
        except OSError:
            return None
        table = answer.get("resultTable")
        return table["rows"][0][0] if table and not answer["exceptions"] else None

    def cpu_s(self) -> float:
        """User and system, of all its threads."""
        assert self._child is not None
        fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self, field: str = "VmRSS") -> float:
        assert self._child is not None
        lines = Path(f"/proc/{self._child.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024

    def settle(self) -> None:
        """Until it does nothing any more: kernels are loaded, the last reports are read."""
        before = -1.0
        while self.cpu_s() - before > IDLE_SHARE:
            before = self.cpu_s()
            time.sleep(1)

    def until(self, sql: str, wanted: Any) -> None:
        """Ask until the answer is the right one."""
        deadline = time.monotonic() + PATIENCE_S
        while (got := self.ask(sql)) != wanted:
            if time.monotonic() > deadline:
                raise SystemExit(f"{sql!r} answers {got!r} instead of {wanted!r}, see {self._folder / 'node.log'}")
            time.sleep(POLL_S)


def timed(node: ServedNode, action: Callable[[], object], cpu_before_s: float | None = None) -> Cost:
    started, worked = time.monotonic(), node.cpu_s() if cpu_before_s is None else cpu_before_s
    action()
    return Cost(time.monotonic() - started, node.cpu_s() - worked)


def measure(folder: Path, deep_store: Path, records: Sequence[SegmentRecord]) -> list[Case]:
    count = len(records)
    node = ServedNode(folder, deep_store)
    node.start()
    num_rows = count * NUM_ROWS
    body = json.dumps({"records": [json.loads(record.to_bytes()) for record in records]}).encode()
    try:
        while True:
            try:
                node.post("/apply", MANIFEST.encode(), "application/yaml")
            except OSError:
                time.sleep(POLL_S)
            else:
                break
        node.settle()
        empty_mb = node.memory_mb()
        table: TableName = offline("events")  # type: ignore[arg-type]
        published = timed(node, lambda: node.post(f"/segments/{table}/publish", body))
        served = timed(node, lambda: node.until("SELECT count(*) FROM events", num_rows))
        node.settle()
        memory_mb, peak_mb = node.memory_mb(), node.memory_mb("VmHWM")
        scanned = timed(node, lambda: node.until("SELECT sum(amount) FROM events", num_rows))
        again = timed(node, lambda: node.until("SELECT sum(amount), max(price) FROM events", num_rows))
        scanned_mb = node.memory_mb()
        node.stop()

        def restart() -> None:
            node.start()
            node.until("SELECT count(*) FROM events", num_rows)

        restarted = timed(node, restart, 0.0)
        node.settle()
        restarted_mb = node.memory_mb()
    finally:
        node.stop()
    share = count / 20_000

    def case(what: str, unit: str, ours: float, bar: float) -> Case:
        return Case(what, unit, ours, "bar", bar)

    return [
        case("publish, wall", "s", published.wall_s, 5.0),
        case("publish, CPU", "s", published.cpu_s, 5.0),
        case("published to served, wall", "s", served.wall_s, BARS["served"] * share),
        case("published to served, CPU", "s", served.cpu_s, BARS["served"] * share),
        case("memory when served", "MB", memory_mb, BARS["memory"]),
        case("memory at most until then", "MB", peak_mb, BARS["memory"]),
        case("memory of an empty node", "MB", empty_mb, BARS["memory"]),
        case("first query that reads all, wall", "s", scanned.wall_s, 10.0),
        case("first query that reads all, CPU", "s", scanned.cpu_s, 10.0),
        case("another query that reads all, CPU", "s", again.cpu_s, 10.0),
        case("memory after them", "MB", scanned_mb, BARS["memory"]),
        case("restart to served, wall", "s", restarted.wall_s, BARS["restart"]),
        case("restart to served, CPU", "s", restarted.cpu_s, BARS["restart"]),
        case("memory after a restart", "MB", restarted_mb, BARS["memory"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a node with many small segments.")
    parser.add_argument("--quick", action="store_true", help="2,000 segments instead of 20,000")
    parser.add_argument("--segments", type=int)
    options = parser.parse_args()
    count = options.segments or (2_000 if options.quick else 20_000)
    built = ROOT / "build" / "small_segments"
    records = built_segments(built, count)
    folder = built / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cases = measure(folder, built / "deepstore", records)
    shutil.rmtree(folder)
    publish("small_segments", f"{count:,} segments of {NUM_ROWS} rows on one node", cases)


if __name__ == "__main__":
    main()
