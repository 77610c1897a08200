"""`merlot backfill` by a Spark job on a cluster of processes: merged data, its window replaced, merged again."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.support.processes import ClusterProcesses
from tests.support.sample import BY_THREE_DAYS, ORDERS, START_MS, order_rows, orders_manifest, upload_orders

from merlot.cli.starting import INTERRUPTED
from merlot.cluster.manifests.rollups import put_rollup
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.view import TableView, load
from merlot.spec.manifest import load as load_manifest
from merlot.spec.tasks import BACKFILLED, MERGE_LEVEL, MergeRollupTask
from merlot.testing.patience import until, wait_until
from merlot.values.periods import DAY_MS

DAYS = range(6)
NUM_BUCKETS = 3
"""Of three days, counted from 1970: the first two days, the next three, the last one."""
WINDOW = (START_MS + round(1.5 * DAY_MS), START_MS + 3 * DAY_MS)
TOTALS = "SELECT count(*), sum(amount), max(id) FROM orders"

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: str) -> Iterator[ClusterProcesses]:
    """A table of six days that is merged."""
    (manifest,) = load_manifest(BY_THREE_DAYS)
    assert isinstance(manifest, MergeRollupTask)
    with ClusterProcesses(tmp_path / "cluster", zookeeper, num_minions=1) as cluster:
        cluster.add_table(orders_manifest(replication=2), upload_orders(cluster.deep_store, DAYS))
        with cluster.metastore() as metastore:
            put_rollup(metastore, manifest)
        wait_until(lambda: is_merged(view_of(cluster)))
        yield cluster


def view_of(cluster: ClusterProcesses) -> TableView:
    with cluster.metastore() as metastore:
        return load(metastore, ORDERS)


def is_merged(view: TableView) -> bool:
    visible = view.visible.values()
    return len(visible) == NUM_BUCKETS and all(
        MERGE_LEVEL in one.custom_map and BACKFILLED not in one.custom_map for one in visible
    )


def totals(rows: Sequence[dict[str, Any]]) -> list[float]:
    return [len(rows), float(sum(row["amount"] for row in rows)), float(max(row["id"] for row in rows))]


def rows_of(days: Sequence[int], revision: int = 0) -> list[dict[str, Any]]:
    return [row for day in days for row in order_rows(day, revision=revision).to_pylist()]


def is_inside(row: dict[str, Any]) -> bool:
    return bool(WINDOW[0] <= row["at"] < WINDOW[1])


@contextlib.asynccontextmanager
async def watching(cluster: ClusterProcesses) -> AsyncIterator[list[Any]]:
    """The different answers that a client sees, one after the other; what went wrong is among them."""
    seen: list[Any] = []

    async def watch() -> None:
        while True:
            answer = await asyncio.to_thread(cluster.query, TOTALS)
            now = answer["exceptions"] or answer["resultTable"]["rows"][0]
            if not seen or seen[-1] != now:
                seen.append(now)
            await asyncio.sleep(0.02)

    watcher = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher


def backfill(cluster: ClusterProcesses, source: Path) -> subprocess.Popen[str]:
    window = ["--from", str(WINDOW[0]), "--to", str(WINDOW[1])]
    command = ["backfill", "orders", *window, "--source", str(source), "--json", "--url", cluster.controller.url]
    return subprocess.Popen(
        [sys.executable, "-m", "merlot.cli.main", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def descendants(pid: int) -> list[int]:
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    children = [int(text) for text in found.stdout.split()]
    return children + [one for child in children for one in descendants(child)]


def runs_java(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"org.apache.spark" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def is_gone(pid: int) -> bool:
    """Ended, whether somebody has looked after it or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Other amounts for five days, of which one and a half are in the window."""
    path = tmp_path / "orders.parquet"
    parquet.write_table(pa.Table.from_pylist(rows_of(DAYS[:5], revision=1)), path)
    return path


@pytest.mark.slow("it starts another Spark; test_backfills and test_backfill_faults replace windows without")
async def test_a_spark_job_replaces_its_window_of_merged_days_and_they_are_merged_again(
    cluster: ClusterProcesses, source: Path
) -> None:
    new = [row for row in rows_of(DAYS[:5], revision=1) if is_inside(row)]
    kept = [row for row in rows_of(DAYS) if not is_inside(row)]
    async with watching(cluster) as seen:
        process = await asyncio.to_thread(backfill, cluster, source)
        output, errors = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0, errors
        await until(lambda: is_merged(view_of(cluster)))
        await until(lambda: totals([*kept, *new]) in seen)
    outcome = json.loads(output)
    assert (outcome["rows"], outcome["rows_outside"]) == (len(new), 500 - len(new))
    assert len(outcome["replaced"]) == len(outcome["rewritten"]) == 2, "the window has rows of two buckets"
    assert seen == [totals(rows_of(DAYS)), totals([*kept, *new])]
    view = view_of(cluster)
    assert view.total_docs == len(kept) + len(new)
    assert not {record.name for record in view.visible.values()} & set(outcome["published"]), "merged once more"
    check_buckets(list(view.visible.values()))


def check_buckets(records: Sequence[SegmentRecord]) -> None:
    """One segment for each bucket, and none beyond its own."""
    spans = [(record.start_time_ms, record.end_time_ms) for record in records]
    buckets = {(first // (3 * DAY_MS), last // (3 * DAY_MS)) for first, last in spans if first and last}
    assert len(buckets) == NUM_BUCKETS
    assert all(first == last for first, last in buckets)


@pytest.mark.slow("it starts another Spark; test_backfill_faults ends backfills at every step, test_quickstart Spark")
def test_a_job_that_is_interrupted_ends_with_all_its_processes_and_leaves_the_old_rows(
    cluster: ClusterProcesses, source: Path
) -> None:
    before = view_of(cluster)
    process = backfill(cluster, source)
    wait_until(lambda: any(map(runs_java, descendants(process.pid))) or process.poll() is not None)
    started = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == INTERRUPTED, errors
    assert "the old rows answer" in errors
    wait_until(lambda: all(map(is_gone, started)))
    assert view_of(cluster).epoch == before.epoch
    assert cluster.query(TOTALS)["resultTable"]["rows"] == [totals(rows_of(DAYS))]
    assert cluster.deep_store.list(ORDERS) == sorted(record.url for record in before.segments.values())
