"""Brokers, controllers and servers die and freeze while batches take over from a stream: no answer has a row twice, and
none lacks one without saying so."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.budget import count, seed
from tests.support.hybrid import OrderFiles, hybrid_manifest
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.support.sample import ORDERS, START_MS, upload_orders

from merlot.cluster.manifests.tables import put_table
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.view import load
from merlot.testing.patience import PATIENCE_S
from merlot.values.periods import DAY_MS
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

NUM_FAULTS = count("MERLOT_HYBRID_FAULTS", quick=2, every=8, fuzz=100)
TOTALS = "SELECT count(*), count(DISTINCT id) FROM orders"
PER_DAY = 100


@pytest.fixture(scope="module")
def cluster_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, shared_zookeeper: ZooKeeper
) -> Iterator[ClusterProcesses]:
    folder = tmp_path_factory.mktemp("hybrid")
    with ClusterProcesses(folder, f"{shared_zookeeper.hosts}/hybrid-{os.getpid()}") as cluster:
        yield cluster


@dataclass
class Watcher:
    """Counts all the while: every answer without an exception has each row once, and none that is only to come."""

    cluster: ClusterProcesses
    files: OrderFiles
    wrong: list[str] = field(default_factory=list)
    num_whole: int = 0
    is_stopping: bool = False
    settled_rows: int = 0
    """That were answered by all replicas before anything happened: answers have at least these."""

    async def run(self) -> None:
        while not self.is_stopping:
            await self.look()
            await asyncio.sleep(0.01)

    async def look(self) -> list[int] | None:
        try:
            answer = await asyncio.to_thread(self.cluster.query, TOTALS)
        except OSError:
            return None
        if answer["exceptions"] or not answer.get("resultTable"):
            return None
        count, ids = map(int, answer["resultTable"]["rows"][0])
        self.num_whole += 1
        if count != ids or not self.settled_rows <= count <= self.files.num_days * PER_DAY:
            self.wrong.append(f"count={count} ids={ids} least={self.settled_rows} answer={self.num_whole}")
        return [count, ids]

    async def shows_all(self) -> None:
        expected = [self.files.num_days * PER_DAY] * 2
        shown = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (shown := await self.look()) != expected:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(f"rows and ids: wanted {expected}, shown {shown}") from None


async def hurt(process: RoleProcess, rng: random.Random) -> None:
    if rng.random() < 0.5:
        process.send(signal.SIGSTOP)
        await asyncio.sleep(rng.uniform(0.2, 1.5))
        process.send(signal.SIGCONT)
        return
    await asyncio.to_thread(process.kill)
    await asyncio.sleep(rng.uniform(0, 0.5))
    process.start()
    await asyncio.to_thread(process.wait_ready)


def publish_day(cluster: ClusterProcesses, day: int) -> None:
    records = upload_orders(cluster.deep_store, [day])
    with cluster.metastore() as metastore:
        publish(metastore, ORDERS, records)


def boundary_ms(cluster: ClusterProcesses) -> int | None:
    with cluster.metastore() as metastore:
        return load(metastore, ORDERS).root.time_boundary_ms


@pytest.mark.timeout(600 + 20 * NUM_FAULTS)
async def test_the_boundary_moves_through_faults_without_a_row_twice_or_missing(
    cluster_of_its_own: ClusterProcesses, tmp_path: Path
) -> None:
    cluster, rng = cluster_of_its_own, random.Random(seed())
    print(f"seed={seed()} (MERLOT_SEED), faults={NUM_FAULTS} (MERLOT_HYBRID_FAULTS)")
    files = OrderFiles(tmp_path / "topic")
    with cluster.metastore() as metastore:
        put_table(metastore, hybrid_manifest(files.folder, selector="strictReplicaGroup", replication=2))
    watcher = Watcher(cluster, files)
    files.append(3)
    await watcher.shows_all()
    victims = [cluster.broker, cluster.controller, *cluster.servers]
    watching = asyncio.create_task(watcher.run())
    try:
        for number in range(NUM_FAULTS):
            files.append(1)
            moving = asyncio.create_task(asyncio.to_thread(publish_day, cluster, number))
            await asyncio.sleep(rng.uniform(0, 0.5))
            await hurt(rng.choice(victims), rng)
            await moving
        async with asyncio.timeout(2 * PATIENCE_S):
            while await asyncio.to_thread(boundary_ms, cluster) != START_MS + (NUM_FAULTS - 1) * DAY_MS:
                await asyncio.sleep(0.1)
    finally:
        watcher.is_stopping = True
        await watching
    await watcher.shows_all()
    assert watcher.wrong == []
    assert watcher.num_whole > 0
