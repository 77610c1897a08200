"""A year of flights as upserts, with and without a time to live: keys and memory as the year passes.

In the end the board has to be what DuckDB's arg_max makes of all events. MERLOT_KAFKA names the brokers of a real
Kafka; else the stream are files.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
from examples.demos import quickstart_data
from examples.demos.demo import DemoClient
from examples.demos.flight_events import KEY, NUM_PARTITIONS, manifests, read_events, write_events
from examples.demos.flight_keys import KeyCounts
from examples.demos.local_node import LocalNode, free_port
from examples.demos.upsert_demo import DAY_MS, NEW_YEAR_MS, STATES
from tests.bench.report import ROOT

KAFKA = os.environ.get("MERLOT_KAFKA", "")
DAYS = 365
FLUSH_ROWS = 5_000
STEPS = 73
PATIENCE_S = 60.0
TOLD_S = 1.2
"""After so long a replica has told of its keys again."""
BOARD = "flightboard"
COLUMNS = (*KEY, "dest", "state", "delay", "happened")
TIMES = ("departs", "happened")


def upsert_keys() -> str:
    """Measure and draw."""
    events = read_events(quickstart_data.flights_file(ROOT / "build" / "quickstart" / "source"), DAYS)
    with tempfile.TemporaryDirectory(prefix="upsert_keys_", dir=ROOT / "build") as folder:
        node = LocalNode(Path(folder) / "node", free_port(8099), Path(folder))
        try:
            node.start()
            return _played(DemoClient(node.url), Path(folder) / "topic", events)
        finally:
            node.stop()


def _played(client: DemoClient, folder: Path, events: pa.Table) -> str:
    topic = _Topic(folder)
    for name, ttl in ((BOARD, ""), (f"{BOARD}_day", "1d")):
        text = manifests(topic.name, FLUSH_ROWS, name=name, ttl=ttl, kafka=KAFKA)
        client.call("/apply", text.encode(), "application/yaml")
    counts = KeyCounts()
    happened = events.column("happened").to_numpy()
    for step in range(STEPS):
        first, stop = (events.num_rows * number // STEPS for number in (step, step + 1))
        topic.append(events.slice(first, stop - first))
        for name in (BOARD, f"{BOARD}_day"):
            _until(client, f"SET skipUpsert = true; SELECT COUNT(*) FROM {name}", stop)
        time.sleep(TOLD_S)
        counts.note(client, float((happened[:stop].max() - NEW_YEAR_MS) / DAY_MS))
        print(
            f"day {counts.keys[BOARD][-1][0]:.0f}: keys {[int(one[-1][1]) for one in counts.keys.values()]}", flush=True
        )
    _check(client, events)
    return counts.chart()


class _Topic:
    """Files, or a topic of Kafka."""

    def __init__(self, folder: Path) -> None:
        self.name: Path | str = folder
        if KAFKA:
            from confluent_kafka import Producer
            from confluent_kafka.admin import AdminClient, NewTopic

            self.name = f"flights-{uuid.uuid4().hex[:8]}"
            admin = AdminClient({"bootstrap.servers": KAFKA})
            admin.create_topics([NewTopic(self.name, NUM_PARTITIONS, 1)])[self.name].result(30)
            self._producer = Producer({"bootstrap.servers": KAFKA, "linger.ms": 5})

    def append(self, events: pa.Table) -> None:
        """Each event to the partition of its flight."""
        if not isinstance(self.name, str):
            write_events(events, self.name)
            return
        for event in events.to_pylist():
            self._producer.produce(self.name, json.dumps(event), partition=event["flight"] % NUM_PARTITIONS)
        assert self._producer.flush() == 0


def _until(client: DemoClient, sql: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    found = None
    while found != [count]:
        if time.monotonic() > deadline:
            raise SystemExit(f"{sql}: {found} instead of {count}")
        with suppress(OSError):
            found = client.row(sql)
        time.sleep(0.05)


def _check(client: DemoClient, events: pa.Table) -> None:
    """The board is what DuckDB makes of all events; of two that happened at once, the later one counts."""
    ordered = events.append_column("place", pa.array(range(events.num_rows)))
    rest = ", ".join(f"arg_max({name}, happened * 2000000 + place)" for name in ("dest", "state", "delay"))
    sql = f"SELECT {', '.join(KEY)}, {rest}, max(happened) FROM ordered GROUP BY ALL"
    with duckdb.connect() as connection:
        connection.register("ordered", ordered)
        right = sorted(list(map(str, row)) for row in connection.execute(sql).fetchall())
    names = [f"CAST({name} AS LONG)" if name in TIMES else name for name in COLUMNS]
    found = sorted(
        list(map(str, row))
        for state in STATES
        for row in client.rows(f"SELECT {', '.join(names)} FROM {BOARD} WHERE state = '{state}' LIMIT 1000000")
    )
    if found != right:
        raise SystemExit(f"the board is not what DuckDB has: rows={len(found)} of {len(right)}")
    print(f"{len(found):,} flights are as DuckDB's arg_max has them, of {events.num_rows:,} events")
