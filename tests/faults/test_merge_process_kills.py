"""Minions, controllers, servers and ZooKeeper are killed while segments are merged and clients ask without pause.

At the quick level each of them once, in the order of PLAN, which above it is drawn."""

import asyncio
import itertools
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.budget import IS_QUICK, count, seed
from tests.support.load import AnswerTally, QueryLoad
from tests.support.processes import ClusterProcesses
from tests.support.sample import ORDERS, START_MS, order_rows, orders_manifest, upload_orders

from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.manifests.rollups import put_rollup
from merlot.cluster.records import Role
from merlot.cluster.segments.view import TableView, load
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import TaskOutcome
from merlot.errors import MerlotError
from merlot.metastore.protocol import Metastore
from merlot.spec.manifest import load as load_manifest
from merlot.spec.tasks import MERGE_LEVEL, MergeRollupTask
from merlot.testing.patience import until
from merlot.values.periods import DAY_MS
from merlot_spark.zookeeper import ZooKeeper

NUM_KILLS = count("MERLOT_KILLS", quick=3, every=8, fuzz=200)
PLAN = ("minion killed", "zookeeper for long", "minion frozen", "controller", "zookeeper", "server")
PATIENCE_S = 120.0
SESSION_MS = 2000
DAYS = range(16 if NUM_KILLS <= 20 else 128)
ROWS = 150
WEEK = (START_MS + 3 * DAY_MS, START_MS + 10 * DAY_MS)
LEVELS = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: orders}
spec:
  table: orders
  schedule: 1s
  levels:
    - {name: two-days, bucketTimePeriod: 2d, bufferTimePeriod: 0d, maxNumParallelBuckets: 4}
    - name: eight-days
      bucketTimePeriod: 8d
      bufferTimePeriod: 0d
      maxNumParallelBuckets: 2
      maxNumRecordsPerTask: 1000
"""
"""Eight days are too many rows for one task: they go through two shards."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600 + 8 * NUM_KILLS)]


@pytest.fixture
def zookeeper_to_hurt(tmp_path: Path) -> Iterator[ZooKeeper]:
    """Not shared: one that was restarted dies with the thread that did it, at the end of the test."""
    with ZooKeeper(tmp_path / "zookeeper", max_session_ms=SESSION_MS) as zookeeper:
        yield zookeeper


@pytest.fixture
def cluster(tmp_path: Path, zookeeper_to_hurt: ZooKeeper) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path / "cluster", f"{zookeeper_to_hurt.hosts}/merge", num_minions=2) as cluster:
        cluster.add_table(orders_manifest(replication=2), upload_orders(cluster.deep_store, DAYS, ROWS))
        yield cluster


@pytest.fixture(scope="module")
def cases() -> Mapping[str, list[list[Any]]]:
    rows = [row for day in DAYS for row in order_rows(day, ROWS).to_pylist()]
    week = [row for row in rows if WEEK[0] <= row["at"] < WEEK[1]]
    large = sorted((row["id"] for row in rows if row["amount"] > 900), reverse=True)
    return {
        "SELECT count(*), sum(amount), max(id) FROM orders": [
            [len(rows), float(sum(row["amount"] for row in rows)), float(max(row["id"] for row in rows))]
        ],
        f"SELECT count(*), sum(amount) FROM orders WHERE at >= {WEEK[0]} AND at < {WEEK[1]}": [
            [len(week), float(sum(row["amount"] for row in week))]
        ],
        "SELECT id FROM orders WHERE amount > 900 ORDER BY id DESC LIMIT 20": [[id_] for id_ in large[:20]],
    }


@dataclass(frozen=True)
class Hurts:
    """What was done to the cluster, and what clients saw."""

    hurts: list[str]
    tally: AnswerTally
    num_flagged: list[int]
    """Answers, before each of the hurts."""


def is_finished(metastore: Metastore) -> bool:
    try:
        view = load(metastore, ORDERS)
        queued = queue.list_tasks(metastore, queue.MERGE_ROLLUP)
    except MerlotError:
        return False
    return not queued and {record.custom_map.get(MERGE_LEVEL) for record in view.visible.values()} == {"eight-days"}


def is_under_way(metastore: Metastore) -> bool:
    """Whether some minion works."""
    try:
        queued = queue.list_tasks(metastore, queue.MERGE_ROLLUP)
        return any(queue.progress(metastore, queue.MERGE_ROLLUP, one) is not None for one in queued)
    except MerlotError:
        return False


async def restart(zookeeper: ZooKeeper, down_s: float) -> str:
    """Kill it and start it again."""
    await asyncio.to_thread(zookeeper.kill)
    await asyncio.sleep(down_s)
    await asyncio.to_thread(zookeeper.restart)
    return "zookeeper"


async def hurt(cluster: ClusterProcesses, zookeeper: ZooKeeper, rng: random.Random) -> str:
    """Kill or freeze one process for a while."""
    minions = ["minion killed"] * 4 + ["minion frozen"] * 2
    return await hurt_as(rng.choice([*minions, "controller", "server", "server", "zookeeper"]), cluster, zookeeper, rng)


async def hurt_as(how: str, cluster: ClusterProcesses, zookeeper: ZooKeeper, rng: random.Random) -> str:
    """As PLAN has it."""
    if how.startswith("zookeeper"):
        return await restart(zookeeper, 3.0 if how == "zookeeper for long" else rng.uniform(0, 0.5))
    victims = {"controller": [cluster.controller], "server": cluster.servers}.get(how, cluster.minions)
    victim = rng.choice(victims)
    if how == "minion frozen":
        # Longer than its session: another minion has its task when it wakes.
        victim.send(signal.SIGSTOP)
        await asyncio.sleep(1.5 * SESSION_MS / 1000)
        victim.send(signal.SIGCONT)
        return f"{victim.name} frozen"
    await asyncio.to_thread(victim.kill)
    await asyncio.sleep(rng.uniform(0, 0.5))
    victim.start()
    await asyncio.to_thread(victim.wait_ready)
    return victim.name


Hurt = Callable[[random.Random], Awaitable[str]]


async def merge_while(
    cluster: ClusterProcesses,
    cases: Mapping[str, list[list[Any]]],
    num_kills: int,
    hurt: Hurt,
    *,
    has_trash: bool = False,
) -> Hurts:
    """Merge the table, level by level, with clients that ask and something that is hurt again and again, until it was
    hurt often enough or nothing is left to merge; then everything gets well, and all has to be as it should."""
    rng = random.Random(seed())
    print(f"seed={seed()} (MERLOT_SEED), kills={num_kills} (MERLOT_KILLS)")
    hurts: list[str] = []
    num_flagged: list[int] = []
    with cluster.metastore() as metastore:
        async with QueryLoad(cluster.broker.url, cases, num_clients=1) as queries:
            await queries.answered(10)
            await asyncio.to_thread(put_rollup, metastore, _levels())
            while len(hurts) < num_kills and not await asyncio.to_thread(is_finished, metastore):
                await asyncio.sleep(rng.uniform(0.01, 0.3))
                if await asyncio.to_thread(is_under_way, metastore):
                    num_flagged.append(queries.tally.num_flagged)
                    hurts.append(await hurt(rng))
            deadline = time.monotonic() + PATIENCE_S
            while not await asyncio.to_thread(is_finished, metastore):
                tails = "\n".join(f"{one.name}:\n{one.tail()}" for one in (cluster.controller, *cluster.minions))
                assert time.monotonic() < deadline, f"hurts={hurts}\n{tails}"
                await asyncio.sleep(0.1)
            await queries.answered(50)
        view = await asyncio.to_thread(load, metastore, ORDERS)
        history = await asyncio.to_thread(queue.history, metastore, queue.MERGE_ROLLUP, ORDERS)
    print(f"hurts={hurts} {queries.tally}")
    assert hurts, "merges were over before anything was hurt"
    assert queries.tally.wrong == []
    assert view.total_docs == len(DAYS) * ROWS
    assert any("_s1_" in name for name in view.visible), "large buckets went through shards"
    assert TaskOutcome.POISONED not in {one.outcome for one in history.tasks}
    await check_files(cluster, view, has_trash=has_trash)
    return Hurts(hurts, queries.tally, num_flagged)


async def test_merges_finish_and_every_answer_is_right_whoever_dies(
    cluster: ClusterProcesses, zookeeper_to_hurt: ZooKeeper, cases: Mapping[str, list[list[Any]]]
) -> None:
    plan = itertools.cycle(PLAN)

    def hurt_next(rng: random.Random) -> Awaitable[str]:
        if IS_QUICK:
            return hurt_as(next(plan), cluster, zookeeper_to_hurt, rng)
        return hurt(cluster, zookeeper_to_hurt, rng)

    done = await merge_while(cluster, cases, NUM_KILLS, hurt_next)
    num_servers_killed = 0
    for one, num_flagged in zip([*done.hurts, ""], [*done.num_flagged, done.tally.num_flagged], strict=True):
        assert num_flagged <= num_servers_killed, (one, done.tally.examples)
        num_servers_killed += one.startswith("server")


@pytest.mark.slow("the test above kills ZooKeeper for a moment and for long, and no query may fail")
async def test_merges_finish_through_kills_of_zookeeper_and_no_query_fails(
    cluster: ClusterProcesses, zookeeper_to_hurt: ZooKeeper, cases: Mapping[str, list[list[Any]]]
) -> None:
    """Down for a moment, or for longer than the sessions of those that run the tasks."""
    num_kills = NUM_KILLS // 2  # each takes ZooKeeper's start
    done = await merge_while(cluster, cases, num_kills, lambda rng: restart(zookeeper_to_hurt, rng.choice([0.2, 1, 3])))
    assert done.tally.num_flagged == 0, done.tally.examples


async def cancel(cluster: ClusterProcesses, rng: random.Random, *, is_killed: bool) -> str:
    """Cancel what runs, and kill or freeze a minion while it takes that back, or before; then everything goes on."""
    victim = rng.choice(cluster.minions)
    with cluster.metastore() as metastore:
        await asyncio.to_thread(_retried, lambda: put_rollup(metastore, _levels(is_suspended=True)))
        await asyncio.sleep(rng.uniform(0, 0.8))
        if is_killed:
            await asyncio.to_thread(victim.kill)
        else:
            victim.send(signal.SIGSTOP)
        await asyncio.sleep(rng.uniform(0, 0.5))
        await asyncio.to_thread(_retried, lambda: put_rollup(metastore, _levels()))
    if is_killed:
        victim.start()
        await asyncio.to_thread(victim.wait_ready)
    else:
        # Longer than its session: another one takes its task back, and may do it anew.
        await asyncio.sleep(1.5 * SESSION_MS / 1000)
        victim.send(signal.SIGCONT)
    return f"cancelled, {victim.name} {'killed' if is_killed else 'frozen'}"


def _retried(act: Callable[[], object]) -> None:
    for _ in range(10):
        try:
            act()
        except MerlotError:
            time.sleep(0.2)
        else:
            return
    act()


def _levels(*, is_suspended: bool = False) -> MergeRollupTask:
    text = LEVELS.replace("  schedule: 1s", "  schedule: 1s\n  suspend: true") if is_suspended else LEVELS
    (manifest,) = load_manifest(text)
    assert isinstance(manifest, MergeRollupTask)
    return manifest


@pytest.mark.slow("test_undo_faults ends whoever takes a merge back at every step")
async def test_merges_finish_though_they_are_cancelled_and_whoever_takes_them_back_dies_or_freezes(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    num_kills = 2 if IS_QUICK else NUM_KILLS // 2
    kills = itertools.cycle((True, False))
    done = await merge_while(
        cluster, cases, num_kills, lambda rng: cancel(cluster, rng, is_killed=next(kills)), has_trash=True
    )
    assert done.tally.num_flagged == 0, done.tally.examples


async def test_a_server_that_was_away_when_merges_ended_takes_their_outputs_up(cluster: ClusterProcesses) -> None:
    """A replacement ends when the live servers have loaded its outputs: one whose session was lost gets them later."""
    away = cluster.servers[1]
    with cluster.metastore() as metastore:
        await until(lambda: len(live_instances(metastore, Role.SERVER)) == 2)
        away.send(signal.SIGSTOP)
        await until(lambda: len(live_instances(metastore, Role.SERVER)) == 1)
        await asyncio.to_thread(put_rollup, metastore, _levels())
        await until(lambda: is_finished(metastore), PATIENCE_S)
        view = await asyncio.to_thread(load, metastore, ORDERS)
        assert not keys_of(view) & held_by(cluster, 1)
        away.send(signal.SIGCONT)
        await check_files(cluster, view, has_trash=False)
        await until(lambda: len(live_instances(metastore, Role.SERVER)) == 2)


async def check_files(cluster: ClusterProcesses, view: TableView, *, has_trash: bool) -> None:
    """I4 and I6: what is published is in the deep store, and once those that were away are back, on both servers.
    Beside it there is nothing, but for what was taken back, which waits in the trash."""
    stored = set(cluster.deep_store.list(ORDERS))
    named = {record.url for record in view.segments.values()}
    assert named <= stored if has_trash else named == stored
    for number in range(len(cluster.servers)):
        await until(lambda number=number: keys_of(view) <= held_by(cluster, number))  # type: ignore[misc]


def keys_of(view: TableView) -> set[str]:
    return {str(record.key) for record in view.visible.values()}


def held_by(cluster: ClusterProcesses, number: int) -> set[str]:
    """Keys of the files that a server has."""
    return {path.stem for path in (cluster.server_dir(number) / "segments" / ORDERS).glob("*.mseg")}
