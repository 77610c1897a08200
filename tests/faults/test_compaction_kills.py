"""Minions, servers, the controller and ZooKeeper are killed, and brokers freeze, while replaced rows leave segments of
an upsert table.

With a time to live and without, whole rows and merged ones; rows come and clients ask without pause. MERLOT_KILLS.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.budget import count, seed
from tests.faults.upsert_watch import (
    BOARD,
    NUM_PARTITIONS,
    FileTopic,
    Ledger,
    UpsertWatcher,
    board_manifest,
    every_replica_shows,
    upsert_spec,
    upserts_watched,
)
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.unit.upsert.oracle import Oracle

from merlot.cluster.manifests.tables import put_table
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.compactions import UPSERT_COMPACTION
from merlot.cluster.tasks.records import TaskHistory, TaskOutcome
from merlot.errors import MerlotError
from merlot.ids import RawTableName, offline
from merlot.metastore.protocol import Metastore
from merlot_spark.zookeeper import ZooKeeper

NUM_KILLS = count("MERLOT_KILLS", quick=5, every=6, fuzz=200)
PATIENCE_S = 240.0
SESSION_MS = 2000
TTL = 200
EAGER = {"compaction": {"bufferTimePeriod": "0d", "invalidRecordsThresholdPercent": 1}}
KINDS: dict[str, dict[str, Any]] = {
    "whole rows": {},
    "whole rows of small segments that become one": {
        "compaction": {
            "bufferTimePeriod": "0d",
            "invalidRecordsThresholdPercent": 50,
            "merge": {"maxNumSegmentsPerTask": 4},
        }
    },
    "whole rows that expire": {"ttl": TTL, "snapshot": "ENABLE"},
    "merged rows that expire": {
        "ttl": TTL,
        "snapshot": "ENABLE",
        "mode": "PARTIAL",
        "partialUpsertStrategies": {"amount": "INCREMENT"},
    },
}

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600 + 12 * NUM_KILLS),
    pytest.mark.slow("takes minutes; compaction without kills, and kills of merges, are in the quick run"),
]


@pytest.fixture
def zookeeper_to_hurt(tmp_path: Path) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path / "zookeeper", max_session_ms=SESSION_MS) as zookeeper:
        yield zookeeper


@pytest.fixture
def cluster(tmp_path: Path, zookeeper_to_hurt: ZooKeeper) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path / "cluster", f"{zookeeper_to_hurt.hosts}/compaction", num_minions=2) as cluster:
        yield cluster


async def hurt(cluster: ClusterProcesses, zookeeper: ZooKeeper, draw: random.Random) -> str:
    """Kill or freeze one process for a while."""
    victims: list[RoleProcess | ZooKeeper] = [
        *cluster.minions * 3,
        cluster.controller,
        *cluster.servers,
        *[cluster.broker] * 2,
        zookeeper,
    ]
    victim = draw.choice(victims)
    if isinstance(victim, ZooKeeper):
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(draw.uniform(0, 0.5))
        await asyncio.to_thread(victim.restart)
        return "zookeeper"
    if victim in cluster.minions and draw.random() < 0.3:
        # Longer than its session: another minion has its task when it wakes.
        victim.send(signal.SIGSTOP)
        await asyncio.sleep(1.5 * SESSION_MS / 1000)
        victim.send(signal.SIGCONT)
        return f"{victim.name} frozen"
    if victim is cluster.broker:
        # When it wakes it asks by an old view, and then takes up all that has changed in one step.
        victim.send(signal.SIGSTOP)
        await asyncio.sleep(draw.uniform(0.2, 2 * SESSION_MS / 1000))
        victim.send(signal.SIGCONT)
        return f"{victim.name} frozen"
    await asyncio.to_thread(victim.kill)
    await asyncio.sleep(draw.uniform(0, 0.5))
    victim.start()
    await asyncio.to_thread(victim.wait_ready)
    return victim.name


def is_under_way(metastore: Metastore) -> bool:
    """Whether some minion works."""
    try:
        queued = queue.list_tasks(metastore, UPSERT_COMPACTION)
        return any(queue.progress(metastore, UPSERT_COMPACTION, one) is not None for one in queued)
    except MerlotError:
        return False


def done(metastore: Metastore) -> TaskHistory:
    try:
        return queue.history(metastore, UPSERT_COMPACTION, offline(RawTableName(BOARD)))
    except MerlotError:
        return TaskHistory()


async def has_compacted(metastore: Metastore, wanted: int, watcher: UpsertWatcher) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while sum(one.tasks for one in (await asyncio.to_thread(done, metastore)).totals.values()) < wanted:
        assert time.monotonic() < deadline, f"rows={watcher.rows.num_rows} flagged={watcher.num_flagged}"
        await asyncio.sleep(0.1)


async def is_over(metastore: Metastore) -> None:
    """Nothing is compacted any more, since no rows come: servers are asked for the very files that there are. A machine
    that is busy has many small segments left to merge, and gets the time for them as long as tasks end."""
    looks, num_done, deadline = 0, 0, time.monotonic() + PATIENCE_S
    while looks < 20:
        try:
            queued = list(await asyncio.to_thread(queue.list_tasks, metastore, UPSERT_COMPACTION))
        except MerlotError:
            queued = ["not known"]  # ZooKeeper was killed a moment ago
        looks = 0 if queued else looks + 1
        before, num_done = (
            num_done,
            sum(one.tasks for one in (await asyncio.to_thread(done, metastore)).totals.values()),
        )
        if num_done > before:
            deadline = time.monotonic() + PATIENCE_S
        assert time.monotonic() < deadline, f"done={num_done} tasks={queued}"
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_row_is_what_it_was_whoever_dies_while_segments_are_compacted(
    cluster: ClusterProcesses, zookeeper_to_hurt: ZooKeeper, tmp_path: Path, kind: str
) -> None:
    draw = random.Random(seed())
    options = {**EAGER, **KINDS[kind]}
    ttl = options.pop("ttl", None)
    print(f"seed={seed()} (MERLOT_SEED), kills={NUM_KILLS} (MERLOT_KILLS)")
    topic = FileTopic(tmp_path / "topic")
    upsert = {"config": upsert_spec(ttl, **options)}
    with cluster.metastore() as metastore:
        put_table(metastore, board_manifest(tmp_path / "topic", flush_rows=120, replication=2, upsert=upsert))
        async with upserts_watched(cluster, topic, draw) as watcher:
            is_partial = options.get("mode") == "PARTIAL"
            watcher.ledgers[:] = [
                Ledger(Oracle() if ttl is None else Oracle(ttl), adds=is_partial) for _ in range(NUM_PARTITIONS)
            ]
            hurts: list[str] = []
            deadline = time.monotonic() + 2 * PATIENCE_S + 10 * NUM_KILLS
            while len(hurts) < NUM_KILLS:
                assert time.monotonic() < deadline, f"too little is compacted to hurt hurts={hurts}"
                await asyncio.sleep(draw.uniform(0.01, 0.3))
                if await asyncio.to_thread(is_under_way, metastore):
                    hurts.append(await hurt(cluster, zookeeper_to_hurt, draw))
            await has_compacted(metastore, 3, watcher)
        await watcher.shows_all()
        await is_over(metastore)
        await every_replica_shows(cluster, cluster.servers, watcher.ledgers, is_compacted=True)
        for server in cluster.servers:
            await asyncio.to_thread(server.kill)
            server.start()
        for server in cluster.servers:
            await asyncio.to_thread(server.wait_ready)
        await every_replica_shows(cluster, cluster.servers, watcher.ledgers, is_compacted=True)
        history = await asyncio.to_thread(done, metastore)
    counts = f"answers={watcher.num_answers} flagged={watcher.num_flagged} late={watcher.num_late}"
    print(f"hurts={hurts} {counts} {history.totals}")
    assert not watcher.wrong
    assert watcher.num_answers > watcher.num_flagged
    assert TaskOutcome.POISONED not in {one.outcome for one in history.tasks}
