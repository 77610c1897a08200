"""A year of flights on real processes: 366 daily segments become 13 months, then a row per day, carrier and origin,
while clients ask without pause; and answers stay what they were. At the quick level every twelfth day."""

import asyncio
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.budget import IS_QUICK
from tests.faults.flights_table import BY_DAY, EXACT, EXAMPLES, build_flights, flights_rows, flights_table
from tests.support.load import QueryLoad
from tests.support.processes import ClusterProcesses

from merlot.cluster.segments.view import TableView, load
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import TaskHistory
from merlot.ids import TableName
from merlot.values.periods import DAY_MS
from merlot_spark.zookeeper import ZooKeeper

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.slow("test_merge_process_kills merges two levels under load, the end-to-end tests a quarter of it"),
]

TABLE = TableName("flights_OFFLINE")
STEP = 12 if IS_QUICK else 1
NUM_DAYS, NUM_MONTHS = -(-366 // STEP), 13
NUM_TIMES = 1 if IS_QUICK else 7
"""How often a query is timed; for people."""


@pytest.fixture
def cluster(tmp_path: Path, shared_zookeeper: ZooKeeper) -> Iterator[ClusterProcesses]:
    chroot = f"{shared_zookeeper.hosts}/rollup-{os.getpid()}"
    with ClusterProcesses(tmp_path / "cluster", chroot, num_minions=1) as cluster:
        table = flights_table(replication=2)
        cluster.add_table(table, build_flights(table, cluster.deep_store, tmp_path / "build", some_days()))
        yield cluster


def some_days() -> pa.Table:
    """Flights of each STEP-th day, the last one among them."""
    rows = flights_rows()
    day = pc.divide(rows["time_hour"].cast(pa.int64()), DAY_MS).to_numpy()
    return rows.filter(pa.array((day[-1] - day) % STEP == 0))


def apply(cluster: ClusterProcesses, name: str) -> None:
    """Merges begin at once."""
    body = (EXAMPLES / name).read_text().replace("schedule: 10s", "schedule: 1s").encode()
    request = urllib.request.Request(f"{cluster.controller.url}/apply", body, {"Content-Type": "application/yaml"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200, answer.read()


def rollup(cluster: ClusterProcesses) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.controller.url}/rollups/flights", timeout=30) as answer:
        status: dict[str, Any] = json.load(answer)
        return status


def rows_of(cluster: ClusterProcesses, sql: str) -> list[list[Any]]:
    answer = cluster.query(sql)
    assert answer["exceptions"] == [], answer
    rows: list[list[Any]] = answer["resultTable"]["rows"]
    return rows


async def until_merged(cluster: ClusterProcesses, level: str, num_segments: int) -> TableView:
    """Until this many segments are visible, all of this level, and no task is left."""
    with cluster.metastore() as metastore:
        deadline = time.monotonic() + 180
        while True:
            view = await asyncio.to_thread(load, metastore, TABLE)
            levels = {record.custom_map.get("MergeRollupTask.mergeLevel") for record in view.visible.values()}
            queued = await asyncio.to_thread(queue.list_tasks, metastore, queue.MERGE_ROLLUP)
            if len(view.visible) == num_segments and levels == {level} and not queued:
                return view
            if time.monotonic() > deadline:
                logs = "\n".join(one.tail() for one in (cluster.controller, *cluster.minions))
                raise TimeoutError(f"segments={len(view.visible)} levels={levels} queued={list(queued)}\n{logs}")
            await asyncio.sleep(0.1)


def history(cluster: ClusterProcesses) -> TaskHistory:
    with cluster.metastore() as metastore:
        return queue.history(metastore, queue.MERGE_ROLLUP, TABLE)


def figures(cluster: ClusterProcesses, view: TableView, queries: tuple[str, ...]) -> str:
    """For people: what the table is now, and how long its queries take."""
    times = {sql: min(_seconds(cluster, sql) for _ in range(NUM_TIMES)) for sql in queries}
    mean_ms = 1000 * sum(times.values()) / len(times)
    return (
        f"segments={len(view.visible)} rows={view.total_docs} bytes={view.size_bytes} "
        f"mean query={mean_ms:.2f} ms over {len(times)} queries, least of {NUM_TIMES} each"
    )


def _seconds(cluster: ClusterProcesses, sql: str) -> float:
    started = time.perf_counter()
    cluster.query(sql)
    return time.perf_counter() - started


async def test_days_become_months_and_months_become_rows_per_day_under_load(cluster: ClusterProcesses) -> None:
    with cluster.metastore() as metastore:
        before = load(metastore, TABLE)
    assert len(before.visible) == NUM_DAYS
    by_day = {sql: await asyncio.to_thread(rows_of, cluster, sql) for sql in BY_DAY}
    exact = {sql: await asyncio.to_thread(rows_of, cluster, sql) for sql in EXACT}
    print("\nbefore:", figures(cluster, before, BY_DAY + EXACT))

    async with QueryLoad(cluster.broker.url, {**by_day, **exact}, num_clients=2) as load_:
        await load_.answered(20)
        cpu_s = cluster.minions[0].cpu_s()
        await asyncio.to_thread(apply, cluster, "rollup.yaml")
        months = await until_merged(cluster, "monthly", NUM_MONTHS)
        cpu_s = cluster.minions[0].cpu_s() - cpu_s
        await load_.answered(40)
    print("concat:", load_.tally)
    assert (load_.tally.wrong, load_.tally.examples) == ([], [])
    done = history(cluster).tasks
    seconds = sum(one.ended_ms - one.started_ms for one in done) / 1000
    print(f"concat: {len(done)} tasks, {seconds:.2f} s of task time beside the queries, {cpu_s:.2f} s of CPU time")
    print("months:", figures(cluster, months, BY_DAY + EXACT))
    totals = history(cluster).totals["monthly"]
    assert (totals.segments_before, totals.segments_after, totals.buckets) == (NUM_DAYS, NUM_MONTHS, NUM_MONTHS)
    assert months.total_docs == before.total_docs

    async with QueryLoad(cluster.broker.url, by_day, num_clients=2) as load_:
        await load_.answered(20)
        await asyncio.to_thread(apply, cluster, "rollup-by-day.yaml")
        days = await until_merged(cluster, "by-day", NUM_MONTHS)
        await load_.answered(40)
    print("rollup:", load_.tally)
    assert (load_.tally.wrong, load_.tally.examples) == ([], [])
    done = [one for one in history(cluster).tasks if one.level == "by-day"]
    print(f"rollup: {sum(one.ended_ms - one.started_ms for one in done) / 1000:.2f} s of task time")
    print("by day:", figures(cluster, days, BY_DAY))
    assert days.total_docs < 15_000 // STEP
    status = rollup(cluster)
    print(json.dumps(status, indent=1)[:3000])
