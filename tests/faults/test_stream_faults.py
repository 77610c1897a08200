"""Processes die and freeze while a stream is consumed: each row is there exactly once, and no answer takes one back.

With MERLOT_KAFKA_CONTROL the stream is a real Kafka, whose brokers are hurt too; else files.
"""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from kafka_brokers import CONTROL, KafkaBrokers, kafka_brokers
from stream_watch import (
    FLUSH_ROWS,
    NUM_PARTITIONS,
    ROWS_PER_S,
    Events,
    KafkaEvents,
    kafka_manifest,
    replicas_agree,
    watched,
)

from merlot.cluster.manifests.tables import put_table
from merlot.testing import dying
from merlot.testing.events import EventFiles, events_manifest
from merlot.testing.processes import ClusterProcesses, RoleProcess
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

NUM_FAULTS = int(os.environ.get("MERLOT_STREAM_FAULTS", "30"))
SEED = int(os.environ.get("MERLOT_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
NUM_BROKERS = 3 if NUM_FAULTS >= 100 else 1
"""Of Kafka. Three take a while to start; only of three does one lead what another one did."""
ORDER_S = 8.0
"""How long a server has to come to the step that it shall die at."""


@pytest.fixture(scope="module")
def zookeeper_to_hurt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        yield zookeeper


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBrokers | None]:
    if not CONTROL:
        print("the stream are files: MERLOT_KAFKA_CONTROL names no program that runs a Kafka")
        yield None
        return
    with kafka_brokers(tmp_path_factory.mktemp("kafka") / "brokers", NUM_BROKERS) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, zookeeper_to_hurt: ZooKeeper) -> Iterator[ClusterProcesses]:
    folder = tmp_path_factory.mktemp("streams")
    cluster = ClusterProcesses(folder, f"{zookeeper_to_hurt.hosts}/streams")
    for server in cluster.servers:
        server.program = dying.__name__
    with cluster:
        yield cluster


@dataclass(frozen=True)
class Fault:
    """Something that is done to somebody."""

    name: str
    act: Callable[[random.Random], Awaitable[None]]


async def kill(process: RoleProcess, rng: random.Random) -> None:
    await asyncio.to_thread(process.kill)
    await asyncio.sleep(rng.uniform(0, 0.5))
    process.start()
    await asyncio.to_thread(process.wait_ready)


async def freeze(process: RoleProcess, rng: random.Random) -> None:
    process.send(signal.SIGSTOP)
    await asyncio.sleep(rng.uniform(0.2, 2.0))
    process.send(signal.SIGCONT)


async def order(cluster: ClusterProcesses, ordered: dying.Order, rng: random.Random) -> None:
    """One of the servers meets it at the step."""
    number = rng.randrange(len(cluster.servers))
    server, path = cluster.servers[number], dying.give(cluster.server_dir(number), ordered)
    try:
        async with asyncio.timeout(ORDER_S):
            while path.exists():
                await asyncio.sleep(0.01)
    except TimeoutError:
        path.unlink(missing_ok=True)  # the other one does all of it; it is hurt where it is
    await (freeze if ordered.signal == signal.SIGSTOP else kill)(server, rng)


def faults_of_steps(cluster: ClusterProcesses) -> list[Fault]:
    """Death before and after each step of a commit, and at some write; freezes too."""
    skips = {dying.WRITE: 7}
    orders = [
        dying.Order(step, skips.get(step, 0), is_after, number)
        for step in dying.STEPS
        for is_after, number in ((False, signal.SIGKILL), (True, signal.SIGKILL), (step == "upload", signal.SIGSTOP))
    ]
    return [Fault(str(one), partial(order, cluster, one)) for one in orders]


def faults_of(cluster: ClusterProcesses, zookeeper: ZooKeeper, kafka: KafkaBrokers | None) -> list[Fault]:
    """Each kind once."""
    victims = [*cluster.servers, cluster.broker, cluster.controller]
    kinds = {"kill": kill, "freeze": freeze}
    faults = [Fault(f"{kind} {victim.name}", partial(act, victim)) for victim in victims for kind, act in kinds.items()]

    async def restart_zookeeper(_: random.Random) -> None:
        await asyncio.to_thread(zookeeper.restart)

    async def freeze_zookeeper(rng: random.Random) -> None:
        zookeeper.freeze()
        await asyncio.sleep(rng.uniform(0.2, 2.0))
        zookeeper.thaw()

    faults += [Fault("restart zookeeper", restart_zookeeper), Fault("freeze zookeeper", freeze_zookeeper)]
    return faults + faults_of_steps(cluster) + ([] if kafka is None else faults_of_kafka(kafka))


def faults_of_kafka(kafka: KafkaBrokers) -> list[Fault]:
    async def restart_kafka(rng: random.Random) -> None:
        number = rng.choice(kafka.numbers)
        await asyncio.to_thread(kafka.kill, number)
        await asyncio.sleep(rng.uniform(0, 1.0))
        await asyncio.to_thread(kafka.start, number)

    async def freeze_kafka(rng: random.Random) -> None:
        number = rng.choice(kafka.numbers)
        kafka.freeze(number)
        await asyncio.sleep(rng.uniform(0.2, 3.0))
        kafka.thaw(number)

    return [Fault("kill kafka", restart_kafka), Fault("freeze kafka", freeze_kafka)]


def make_table(cluster: ClusterProcesses, kafka: KafkaBrokers | None, folder: Path) -> Events:
    """A topic, and the table of it."""
    events: Events
    if kafka is None:
        events = EventFiles(folder, NUM_PARTITIONS)
        manifest = events_manifest(folder, flush_rows=FLUSH_ROWS, replication=2)
    else:
        events, manifest = KafkaEvents(kafka, "events"), kafka_manifest(kafka, "events")
    with cluster.metastore() as metastore:
        put_table(metastore, manifest)
    return events


@pytest.mark.timeout(240 + 15 * NUM_FAULTS)
async def test_whatever_dies_each_row_is_there_once(
    shared: ClusterProcesses, kafka: KafkaBrokers | None, tmp_path: Path, zookeeper_to_hurt: ZooKeeper
) -> None:
    rng = random.Random(SEED)
    print(f"seed={SEED} (MERLOT_SEED), faults={NUM_FAULTS} (MERLOT_STREAM_FAULTS), kafka={kafka and kafka.numbers}")
    events = make_table(shared, kafka, tmp_path / "topic")
    kinds = faults_of(shared, zookeeper_to_hurt, kafka)
    rounds = [rng.sample(kinds, len(kinds)) for _ in range(-(-NUM_FAULTS // len(kinds)))]
    faults = [fault for one in rounds for fault in one][:NUM_FAULTS]
    async with watched(shared, events) as watcher:
        while (await watcher.counts() or [0])[0] < ROWS_PER_S:
            await asyncio.sleep(0.05)
        for number, fault in enumerate(faults):
            await asyncio.sleep(rng.uniform(0.1, 0.5))
            print(f"{number} {fault.name}: answers={watcher.num_answers} rows={events.num_events}", flush=True)
            await fault.act(rng)
    await asyncio.to_thread(events.settle)
    await watcher.shows_all()
    await replicas_agree(shared)
    seen = f"answers={watcher.num_answers} flagged={watcher.num_flagged} looks={watcher.num_looks}"
    print(f"rows={events.num_events} {seen}")
    assert watcher.wrong == []
