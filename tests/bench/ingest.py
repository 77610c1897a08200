"""Streams on one core: `python -m tests.bench.ingest [--quick]`. JSON of 97 bytes, a `files` stream, an embedded node;
with MERLOT_KAFKA a topic of Kafka, too.

Each case runs in a process of its own, pinned to one core, but for a restart, which has all of them; rows per second
are of CPU time, all of the node's. Every row is counted, as decoded and as answered. Pinot's figure was measured on the
same kind of machine with the same messages, not in this run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pyarrow as pa
from tests.bench.report import ROOT, Case, publish

from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.ingest.stream import Pipeline
from merlot.segment.build.request import BuildRequest
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.spec.table import Table
from merlot.streams.protocol import Messages

ROWS = 2_000_000
RESTART_ROWS = 5_000_000
BATCH = 20_000
RATE = 20_000
PLAY_S = 10.0
PEER = "Pinot"
PINOT_ROWS_PER_S = 64_000.0
TICK_S = 0.005
KAFKA = os.environ.get("MERLOT_KAFKA", "")


def line(number: int, emitted_ms: int = 1_700_000_000_000) -> str:
    """One message of 97 bytes, and its line break."""
    values = {
        "id": 100_000_000 + number % 100_000_000,
        "at": emitted_ms,
        "city": f"city {number % 89:02d}",
        "amount": 100 + number % 900,
        "note": "x" * 22,
    }
    return json.dumps(values, separators=(",", ":")) + "\n"


def manifest(topic: Path | str, flush_rows: int) -> Table:
    """The table of these messages: of files, or of a topic of Kafka."""
    fields = [
        {"name": "id", "type": "LONG"},
        {"name": "at", "type": "LONG"},
        {"name": "city", "type": "STRING"},
        {"name": "amount", "type": "INT", "role": "metric"},
        {"name": "note", "type": "STRING"},
    ]
    stream: dict[str, Any] = {"type": "files", "topic": str(topic), "flush": {"rows": flush_rows}}
    if isinstance(topic, str):
        stream |= {"type": "kafka", "properties": {"bootstrap.servers": KAFKA}}
    return Table.model_validate(
        {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "Table",
            "metadata": {"name": "messages"},
            "spec": {"schema": {"fields": fields}, "ingestion": {"stream": stream}},
        }
    )


def consuming(folder: Path, rows: int) -> dict[str, float]:
    """Decode and append, no stream, no commit: what one core does while it consumes."""
    table = manifest(folder, rows)
    declared = table.spec.ingestion.stream
    assert declared is not None
    pipeline = Pipeline(table.spec, declared, 0)
    request = BuildRequest(name="bench", table="messages", schema=table.spec.table_schema)
    segment = ConsumingSegment(request, 0)
    batches = []
    for first in range(0, rows + BATCH, BATCH):
        offsets = np.arange(first, first + BATCH, dtype=np.int64)
        values = pa.array([line(number).rstrip().encode() for number in range(first, first + BATCH)], pa.large_binary())
        times = np.full(BATCH, -1, np.int64)
        batches.append(Messages(values=values, offsets=offsets, timestamps_ms=times, next_offset=first + BATCH))
    taken = 0.0
    for position, messages in enumerate(batches):
        started = time.process_time()
        found = pipeline.rows(messages)
        segment.append(found.rows, found.offsets, found.next_offset)
        taken += time.process_time() - started if position else 0.0  # the first one loads kernels
        assert (found.rows.num_rows, found.bad.count) == (BATCH, 0)
    assert segment.num_docs == len(batches) * BATCH
    assert segment.next_offset == batches[-1].next_offset
    return {"rowsPerS": rows / taken, "bytesPerRow": segment.memory_bytes / segment.num_docs}


class Running:
    """A node with the table, asked over HTTP."""

    def __init__(self, folder: Path, num_partitions: int = 1, topic: str | None = None) -> None:
        self.topic: Path | str = topic or folder / "topic"
        self.files = [folder / "topic" / str(number) / "messages.json" for number in range(num_partitions)]
        for file in self.files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        self.node = EmbeddedNode(NodeConfig(data_dir=folder / "data", http_port=0, stream_folders=(str(folder),)))

    async def start(self) -> None:
        await self.node.start()
        self.session = aiohttp.ClientSession(self.node.url)

    async def stop(self) -> None:
        await self.session.close()
        await self.node.stop()

    async def create(self, flush_rows: int) -> None:
        text = manifest(self.topic, flush_rows).model_dump_json(by_alias=True, exclude_unset=True)
        async with self.session.post("/apply", data=text, headers={"Content-Type": "application/yaml"}) as answer:
            assert answer.status == 200, await answer.text()

    async def row(self, sql: str) -> list[Any] | None:
        async with self.session.post("/query/sql", json={"sql": sql}) as answer:
            found = await answer.json()
        return None if found["exceptions"] or "resultTable" not in found else found["resultTable"]["rows"][0]

    async def shows(self, rows: int) -> None:
        """Until so many rows are answered."""
        while (await self.row("SELECT count(*) FROM messages") or [0])[0] < rows:
            await asyncio.sleep(0.02)

    async def check(self, rows: int) -> None:
        """Each message is answered once, with its values."""
        found = await self.row("SELECT count(*), sum(id), sum(amount) FROM messages")
        ids = sum(100_000_000 + number % 100_000_000 for number in range(rows))
        assert found == [rows, ids, sum(100 + number % 900 for number in range(rows))], found

    async def num_sealed(self) -> int:
        """Rows of sealed segments."""
        async with self.session.get("/segments/messages/metadata") as answer:
            return sum(one["totalDocs"] for one in (await answer.json()).values() if one["crc"])


def write_lines(file: Path, rows: int) -> None:
    """A file of messages."""
    with file.open("a") as opened:
        for first in range(0, rows, BATCH):
            opened.write("".join(map(line, range(first, min(rows, first + BATCH)))))


async def warm_up(folder: Path) -> None:
    """Load every kernel that consuming and sealing take."""
    running = Running(folder)
    write_lines(running.files[0], 2_000)
    await running.start()
    await running.create(flush_rows=1_000)
    await running.shows(2_000)
    while await running.num_sealed() < 1_000:
        await asyncio.sleep(0.02)
    await running.stop()


async def committed(folder: Path, rows: int, topic: str | None = None) -> dict[str, float]:
    """From the first poll until all rows are in committed segments."""
    await warm_up(folder / "warm")
    running = Running(folder, topic=topic)
    if topic is None:
        write_lines(running.files[0], rows)
    await running.start()
    started, cpu = time.perf_counter(), time.process_time()
    await running.create(flush_rows=rows // 4)
    while await running.num_sealed() < rows:
        await asyncio.sleep(0.05)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    await running.check(rows)
    await running.stop()
    return {"rowsPerS": rows / cpu_s, "rowsPerSOfWall": rows / wall_s}


@contextmanager
def messages_in_kafka(rows: int) -> Iterator[str]:
    """A topic of one partition with so many messages."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topic, admin = f"bench-{uuid.uuid4().hex[:8]}", AdminClient({"bootstrap.servers": KAFKA})
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": KAFKA, "queue.buffering.max.messages": 2 * BATCH, "linger.ms": 5})
    for first in range(0, rows, BATCH):
        for number in range(first, min(rows, first + BATCH)):
            producer.produce(topic, line(number).rstrip())
        assert producer.flush() == 0
    yield topic
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(30)


async def committed_of_kafka(folder: Path, rows: int) -> dict[str, float]:
    """The same from Kafka."""
    with messages_in_kafka(rows) as topic:
        return await committed(folder, rows, topic)


async def restarted_of_kafka(folder: Path, rows: int) -> dict[str, float]:
    """The same from Kafka."""
    with messages_in_kafka(rows) as topic:
        return await restarted(folder, rows, topic)


async def restarted(folder: Path, rows: int, topic: str | None = None) -> dict[str, float]:
    """A node that starts again with so many rows that are not sealed."""
    await warm_up(folder / "warm")
    running = Running(folder, topic=topic)
    if topic is None:
        write_lines(running.files[0], rows)
    await running.start()
    await running.create(flush_rows=rows * 2)
    await running.shows(rows)
    await running.stop()
    again = Running(folder, topic=topic)
    started, cpu = time.perf_counter(), time.process_time()
    await again.start()
    await again.shows(rows)
    taken, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    await again.check(rows)
    await again.stop()
    return {"seconds": taken, "cpuS": cpu_s}


async def freshness(folder: Path, num_partitions: int) -> dict[str, float]:
    """Age of the newest answered row, at a constant rate of rows over all partitions."""
    await warm_up(folder / "warm")
    running = Running(folder, num_partitions)
    await running.start()
    await running.create(flush_rows=10_000_000)
    is_over = threading.Event()

    def produce() -> None:
        began, written = time.monotonic(), 0
        while not is_over.wait(TICK_S):
            due = int((time.monotonic() - began) * RATE)
            now_ms = time.time_ns() // 1_000_000
            text = "".join(line(number, now_ms) for number in range(written, due))
            with running.files[written % num_partitions].open("a") as file:
                file.write(text)
            written = due

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    await running.shows(RATE * 2)
    ages = []
    ends = time.monotonic() + PLAY_S
    while time.monotonic() < ends:
        row = await running.row("SELECT max(at) FROM messages")
        if row is not None:
            ages.append(time.time_ns() / 1e6 - row[0])
        await asyncio.sleep(0.01)
    is_over.set()
    thread.join()
    cpu = time.process_time()
    await running.stop()
    p50, p99 = np.percentile(ages, [50, 99])
    return {"p50Ms": float(p50), "p99Ms": float(p99), "cpuS": cpu}


CASES: dict[str, Callable[[Path, float], Awaitable[dict[str, float]] | dict[str, float]]] = {
    "consuming": lambda folder, scale: consuming(folder, int(ROWS * scale)),
    "committed": lambda folder, scale: committed(folder, int(ROWS * scale)),
    "restarted": lambda folder, scale: restarted(folder, int(RESTART_ROWS * scale)),
    "committedOfKafka": lambda folder, scale: committed_of_kafka(folder, int(ROWS * scale)),
    "restartedOfKafka": lambda folder, scale: restarted_of_kafka(folder, int(RESTART_ROWS * scale)),
    "freshness": lambda folder, _: freshness(folder, 1),
    "freshness64": lambda folder, _: freshness(folder, 64),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows")
    parser.add_argument("--child", nargs=3, metavar=("CASE", "FOLDER", "SCALE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, folder, scale = arguments.child
        if not name.startswith("restarted"):
            os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
        measured = CASES[name](Path(folder), float(scale))
        print(json.dumps(measured if isinstance(measured, dict) else asyncio.run(_awaited(measured))))
        return
    scale = 0.2 if arguments.quick else 1.0
    (ROOT / "build").mkdir(exist_ok=True)
    found = {name: _child(name, scale) for name in CASES if KAFKA or not name.endswith("OfKafka")}
    of_kafka = found.get("committedOfKafka")
    publish(
        "ingest",
        f"Streams on one core, JSON of 97 bytes, {int(ROWS * scale):,} rows",
        [
            Case("end to end, through commit", "rows/s", found["committed"]["rowsPerS"], PEER, PINOT_ROWS_PER_S),
            *(
                [Case("the same from Kafka", "rows/s", of_kafka["rowsPerS"], PEER, PINOT_ROWS_PER_S)]
                if of_kafka
                else []
            ),
            Case("decode and append", "rows/s", found["consuming"]["rowsPerS"], PEER, PINOT_ROWS_PER_S),
        ],
    )
    print(f"\nmemory of a row: {found['consuming']['bytesPerRow']:.0f} bytes")
    for name, source in (("restarted", "files"), ("restartedOfKafka", "Kafka")):
        if name in found:
            rows, one = int(RESTART_ROWS * scale), found[name]
            text = f"restart with {rows:,} rows of {source} not sealed: {one['seconds']:.1f} s until all are answered"
            print(f"{text}, {one['cpuS']:.1f} s of CPU, {len(os.sched_getaffinity(0))} cores")
    for name, partitions in (("freshness", 1), ("freshness64", 64)):
        one = found[name]
        text = (
            f"freshness at {RATE:,} rows/s, {partitions} partitions: p50 {one['p50Ms']:.0f}, p99 {one['p99Ms']:.0f} ms"
        )
        print(f"{text}, producer and node on one core")


async def _awaited(measured: Awaitable[dict[str, float]]) -> dict[str, float]:
    return await measured


def _child(name: str, scale: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="ingest_", dir=ROOT / "build") as folder:
        command = [sys.executable, "-m", "tests.bench.ingest", "--child", name, folder, str(scale)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{name}: {found}", flush=True)
    return found


if __name__ == "__main__":
    main()
