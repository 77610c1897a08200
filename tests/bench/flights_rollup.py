"""366 daily segments of flights to 13 months, then to a row per day, carrier and origin, on a node: `make demo-rollup`.

Task time is from taking a task to leaving it, servers' loading included, summed over the tasks. Pinot's is that of its
minion for the same segments (1.5.1, to 13 segments of 30 days: it has no calendar months), measured on the same kind of
machine, not in this run.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests.bench import report
from tests.faults import flights_table
from tests.faults.flights_table import BY_DAY, EXACT, EXAMPLES

from merlot.cluster.records import SegmentRecord
from merlot.controller.merges import status as merge_status
from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore

PINOT_TASK_S = 28.6
REPEATS = 9
PATIENCE_S = 120.0
LOOK_S = 0.5
"""Between two looks: they are part of the node's CPU time."""
NUM_DAYS, NUM_MONTHS = 366, 13
COUNT = "SELECT COUNT(*) FROM flights"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query says, and of how much."""

    exceptions: Sequence[Any]
    rows: Any
    num_segments: int
    total_docs: int


class Client:
    """One node's HTTP API."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str) -> Any:
        async with self._session.get(path) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json(content_type=None)

    async def post(self, path: str, body: str | bytes) -> Any:
        async with self._session.post(path, data=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json(content_type=None)

    async def ask(self, sql: str) -> Answer:
        answer = await self.post("/query/sql", json.dumps({"sql": sql}))
        rows = None if answer["exceptions"] else answer["resultTable"]["rows"]
        return Answer(answer["exceptions"], rows, answer["numSegmentsQueried"], answer["totalDocs"])

    async def check(self, expected: Mapping[str, Any]) -> None:
        """Every query answers what it shall."""
        for sql, rows in expected.items():
            answer = await self.ask(sql)
            assert answer.rows == rows, f"{sql}\nexpected={rows}\ngot={answer}"

    async def mean_query_ms(self, queries: tuple[str, ...]) -> float:
        """Mean over the queries of the least of some runs each."""
        return sum([await self._least_ms(sql) for sql in queries]) / len(queries)

    async def _least_ms(self, sql: str) -> float:
        times = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            await self.ask(sql)
            times.append(1000 * (time.perf_counter() - started))
        return min(times)

    async def until_answered(self, number: int) -> list[SegmentRecord]:
        """The visible segments, once queries are answered from all of them: brokers hear of a table, and of a load, a
        little later than the controller."""
        names = (await self.get("/segments/flights/select"))[0]["OFFLINE"]
        statuses = await self.get("/segments/flights/metadata")
        records = [SegmentRecord.model_validate(statuses[name]) for name in names]
        assert len(records) == number
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = await self.ask(COUNT)
            if (answer.num_segments, answer.total_docs) == (number, sum(one.total_docs for one in records)):
                return records
            assert time.monotonic() < deadline, answer
            await asyncio.sleep(LOOK_S)

    async def until_merged(self, level: str, expected: Mapping[str, Any]) -> tuple[int, float]:
        """How many tasks a level had and how long they took together, once it is done. Meanwhile answers stay right."""
        queries = itertools.cycle(expected.items())
        deadline = time.monotonic() + PATIENCE_S
        while True:
            await self.check(dict([next(queries)]))
            status = await self.get("/rollups/flights")
            done = [one for one in status["history"] if one["level"] == level]
            if status["state"] == "UpToDate" and done:
                return len(done), sum(one["endedMs"] - one["startedMs"] for one in done) / 1000
            assert time.monotonic() < deadline, status
            await asyncio.sleep(LOOK_S)


def tell(title: str, records: list[SegmentRecord], query_ms: float) -> None:
    rows, num_bytes = sum(one.total_docs for one in records), sum(one.size_bytes for one in records)
    print(f"{title:8} {len(records):4} segments {rows:8,} rows {num_bytes / 1e6:7.2f} MB  mean query {query_ms:.2f} ms")


async def measure(folder: Path) -> list[report.Case]:
    merge_status.RECENT_TASKS = 50
    node = EmbeddedNode(NodeConfig(data_dir=folder / "node", http_port=0, warm_up_s=0.0))
    await node.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{node.port}") as session:
            return await run(Client(session), node, folder)
    finally:
        await node.stop()


async def run(client: Client, node: EmbeddedNode, folder: Path) -> list[report.Case]:
    table: Table = flights_table.flights_table()
    store = DeepStore(str(folder / "node" / "deepstore"))
    records = await asyncio.to_thread(flights_table.build_flights, table, store, folder / "build")
    await client.post("/apply", (EXAMPLES / "table.yaml").read_bytes())
    body = {"records": [one.model_dump(mode="json", by_alias=True) for one in records]}
    await client.post("/segments/flights/publish", json.dumps(body))
    days = await client.until_answered(NUM_DAYS)
    expected = {sql: (await client.ask(sql)).rows for sql in BY_DAY + EXACT}
    tell("days", days, await client.mean_query_ms(BY_DAY + EXACT))

    cpu_s = time.process_time()
    await client.post("/apply", (EXAMPLES / "rollup.yaml").read_bytes())
    number, task_s = await client.until_merged("monthly", expected)
    cpu_s = time.process_time() - cpu_s
    months = await client.until_answered(NUM_MONTHS)
    await client.check(expected)
    tell("months", months, await client.mean_query_ms(BY_DAY + EXACT))
    print(f"         {number} tasks, {task_s:.2f} s of task time, {cpu_s:.2f} s of the whole node's CPU time")

    await client.post("/apply", (EXAMPLES / "rollup-by-day.yaml").read_bytes())
    by_day = {sql: expected[sql] for sql in BY_DAY}
    number, rolled_s = await client.until_merged("by-day", by_day)
    rolled = await client.until_answered(NUM_MONTHS)
    await client.check(by_day)
    tell("by day", rolled, await client.mean_query_ms(BY_DAY))
    print(f"         {number} tasks, {rolled_s:.2f} s of task time")
    return [report.Case("366 daily segments to 13 months", "s of task time", task_s, "pinot", PINOT_TASK_S)]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="merlot-flights-") as folder:
        cases = asyncio.run(measure(Path(folder)))
    report.publish("flights_rollup", "Merging a year of flights", cases)


if __name__ == "__main__":
    main()
