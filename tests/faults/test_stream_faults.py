"""Processes die and freeze while a stream is consumed: each row is there exactly once, and no answer takes one back."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.view import load
from merlot.ids import offline
from merlot.testing.events import COUNTS, EventFiles, events_manifest
from merlot.testing.patience import PATIENCE_S
from merlot.testing.processes import ClusterProcesses, RoleProcess
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

NUM_FAULTS = int(os.environ.get("MERLOT_STREAM_FAULTS", "30"))
SEED = int(os.environ.get("MERLOT_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
NUM_PARTITIONS = 4
ROWS_PER_S = 2000
TABLE = offline(events_manifest(Path()).raw_name)


@pytest.fixture(scope="module")
def zookeeper_to_hurt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        yield zookeeper


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, zookeeper_to_hurt: ZooKeeper) -> Iterator[ClusterProcesses]:
    folder = tmp_path_factory.mktemp("streams")
    with ClusterProcesses(folder, f"{zookeeper_to_hurt.hosts}/streams") as cluster:
        yield cluster


@dataclass
class Watcher:
    """Counts while things happen. An answer with an exception says of itself that it is not whole."""

    cluster: ClusterProcesses
    files: EventFiles
    num_answers: int = 0
    num_flagged: int = 0
    wrong: list[str] = field(default_factory=list)
    last: float = 0.0
    is_stopping: bool = False

    async def append(self) -> None:
        """Rows at a constant rate, over all partitions in turn."""
        partition = 0
        while not self.is_stopping:
            self.files.append(ROWS_PER_S // 20, partition)
            partition = (partition + 1) % NUM_PARTITIONS
            await asyncio.sleep(0.05)

    async def ask(self) -> None:
        while not self.is_stopping:
            counts = await self.counts()
            if counts is not None and not counts[0] == counts[1] == counts[2]:
                self.wrong.append(f"answer {self.num_answers} of {self.files.num_events}: {counts}")
            await asyncio.sleep(0.01)

    async def counts(self) -> list[float] | None:
        try:
            answer = await asyncio.to_thread(self.cluster.query, COUNTS)
        except OSError:
            return None
        self.num_answers += 1
        if answer["exceptions"] or not answer.get("resultTable"):
            self.num_flagged += 1
            return None
        row: list[float] = answer["resultTable"]["rows"][0]
        return row

    async def shows_all(self) -> None:
        """Every row that was appended, once."""
        async with asyncio.timeout(PATIENCE_S):
            counts = None
            while counts is None or counts[0] < self.files.num_events:
                counts = await self.counts()
                await asyncio.sleep(0.05)
        assert counts == [self.files.num_events] * 3


@asynccontextmanager
async def watched(cluster: ClusterProcesses, files: EventFiles) -> AsyncIterator[Watcher]:
    watcher = Watcher(cluster, files)
    tasks = [asyncio.create_task(watcher.append()), asyncio.create_task(watcher.ask())]
    try:
        yield watcher
    finally:
        watcher.is_stopping = True
        await asyncio.gather(*tasks)


async def kill(process: RoleProcess, rng: random.Random) -> None:
    await asyncio.to_thread(process.kill)
    await asyncio.sleep(rng.uniform(0, 0.5))
    process.start()
    await asyncio.to_thread(process.wait_ready)


async def freeze(process: RoleProcess, rng: random.Random) -> None:
    process.send(signal.SIGSTOP)
    await asyncio.sleep(rng.uniform(0.2, 2.0))
    process.send(signal.SIGCONT)


async def hurt(zookeeper: ZooKeeper, rng: random.Random) -> None:
    if rng.random() < 0.5:
        await asyncio.to_thread(zookeeper.restart)
        return
    zookeeper.freeze()
    await asyncio.sleep(rng.uniform(0.2, 2.0))
    zookeeper.thaw()


async def replicas_agree(cluster: ClusterProcesses) -> None:
    """Both servers have loaded every sealed segment of the record's checksum; each row is in one segment."""
    with cluster.metastore() as metastore:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                view = await asyncio.to_thread(load, metastore, TABLE)
                sealed = {one.key_text for one in view.segments.values() if not one.is_open}
                held = [one.get("/tables").get(TABLE, {}).get("loaded", ()) for one in cluster.servers]
                if all(sealed <= set(keys) for keys in held):
                    break
                await asyncio.sleep(0.1)
        by_partition: dict[int, list[StreamSegmentRecord]] = {}
        for record in view.segments.values():
            assert isinstance(record, StreamSegmentRecord)
            by_partition.setdefault(record.partition, []).append(record)
    for records in by_partition.values():
        records.sort(key=lambda one: one.sequence)
        ends = [one.end_offset for one in records]
        assert [one.start_offset for one in records] == [0, *ends[:-1]]
    assert len(by_partition) == NUM_PARTITIONS


@pytest.mark.timeout(180 + 15 * NUM_FAULTS)
async def test_whatever_dies_each_row_is_there_once(
    shared: ClusterProcesses, tmp_path: Path, zookeeper_to_hurt: ZooKeeper
) -> None:
    rng = random.Random(SEED)
    print(f"seed={SEED} (MERLOT_SEED), faults={NUM_FAULTS} (MERLOT_STREAM_FAULTS)")
    files = EventFiles(tmp_path / "topic", NUM_PARTITIONS)
    with shared.metastore() as metastore:
        put_table(metastore, events_manifest(files.folder, flush_rows=1500, replication=2))
    first, second = shared.servers
    victims = [first, second, first, second, shared.broker, shared.controller, zookeeper_to_hurt]
    async with watched(shared, files) as watcher:
        while (await watcher.counts() or [0])[0] < ROWS_PER_S:
            await asyncio.sleep(0.05)
        for _ in range(NUM_FAULTS):
            await asyncio.sleep(rng.uniform(0.1, 1.0))
            victim = rng.choice(victims)
            if isinstance(victim, ZooKeeper):
                await hurt(victim, rng)
            elif victim is shared.broker:
                await kill(victim, rng)
            else:
                await rng.choice([kill, freeze])(victim, rng)
    await watcher.shows_all()
    await replicas_agree(shared)
    print(f"rows={files.num_events} answers={watcher.num_answers} flagged={watcher.num_flagged}")
    assert watcher.wrong == []
