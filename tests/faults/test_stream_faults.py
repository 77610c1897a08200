"""Processes die and freeze while streams are consumed: each row is there exactly once, and no answer takes one back.
Of a table whose rows replace each other, each answer has what there was at some moment.

With MERLOT_KAFKA_CONTROL the stream is a real Kafka, whose brokers are hurt too; else files.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.budget import count, seed
from tests.contracts.streams.kafka_brokers import CONTROL, KafkaBrokers, kafka_brokers
from tests.faults.stream_faults import faults_of
from tests.faults.stream_watch import (
    FLUSH_ROWS,
    NUM_PARTITIONS,
    ROWS_PER_S,
    Events,
    KafkaEvents,
    kafka_manifest,
    kafka_properties,
    replicas_agree,
    watched,
)
from tests.faults.upsert_watch import (
    FileTopic,
    KafkaTopic,
    Topic,
    board_manifest,
    every_replica_shows,
    upsert_spec,
    upserts_watched,
)
from tests.support import crash_injector
from tests.support.events import EventFiles, events_manifest
from tests.support.processes import ClusterProcesses

from merlot.cluster.manifests.tables import put_table
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

NUM_FAULTS = count("MERLOT_STREAM_FAULTS", quick=4, every=25, fuzz=500)
NUM_BROKERS = 3 if NUM_FAULTS >= 100 else 1
"""Of Kafka. Three take a while to start; only of three does one lead what another one did."""


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
        server.program = crash_injector.__name__
    with cluster:
        yield cluster


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


def make_board(cluster: ClusterProcesses, kafka: KafkaBrokers | None, folder: Path) -> Topic:
    """Another topic, and a table of it whose rows replace each other."""
    topic: Topic
    settings: dict[str, Any] = {"flush_rows": 300, "replication": 2, "upsert": {"config": upsert_spec()}}
    if kafka is None:
        topic, manifest = FileTopic(folder), board_manifest(folder, **settings)
    else:
        topic = KafkaTopic(kafka, "board")
        manifest = board_manifest("board", **settings, properties=kafka_properties(kafka))
    with cluster.metastore() as metastore:
        put_table(metastore, manifest)
    return topic


@pytest.mark.timeout(600 + 15 * NUM_FAULTS)
async def test_whatever_dies_each_row_is_there_once(
    shared: ClusterProcesses,
    kafka: KafkaBrokers | None,
    tmp_path: Path,
    zookeeper_to_hurt: ZooKeeper,
    met_faults: Callable[[int], None],
) -> None:
    rng = random.Random(seed())
    print(f"seed={seed()} (MERLOT_SEED), faults={NUM_FAULTS} (MERLOT_STREAM_FAULTS), kafka={kafka and kafka.numbers}")
    events = make_table(shared, kafka, tmp_path / "topic")
    board_topic = make_board(shared, kafka, tmp_path / "board")
    kinds = faults_of(shared, zookeeper_to_hurt, kafka)
    rounds = [rng.sample(kinds, len(kinds)) for _ in range(-(-NUM_FAULTS // len(kinds)))]
    faults = [fault for one in rounds for fault in one][:NUM_FAULTS]
    async with watched(shared, events) as watcher, upserts_watched(shared, board_topic, random.Random(seed())) as board:
        while (await watcher.counts() or [0])[0] < ROWS_PER_S:
            await asyncio.sleep(0.05)
        for number, fault in enumerate(faults):
            await asyncio.sleep(rng.uniform(0.1, 0.5))
            told = [f"{one.num_answers} answers, {one.num_flagged} flagged" for one in (watcher, board)]
            print(f"{number} {fault.name}: {'; '.join(told)}; {events.num_events} rows", flush=True)
            await fault.act(rng)
    met_faults(len(faults))
    for topic in (events, board_topic):
        await asyncio.to_thread(topic.settle)
    await watcher.shows_all()
    await replicas_agree(shared)
    await board.shows_all()
    await every_replica_shows(shared, shared.servers, board.ledgers)
    for name, one, num_rows in (("events", watcher, events.num_events), ("board", board, board.rows.num_rows)):
        print(f"{name}: rows={num_rows} answers={one.num_answers} flagged={one.num_flagged}")
        print(*(f"  {count} x {reason}" for reason, count in one.reasons.most_common(10)), sep="\n")
    print(f"faults={len(faults)} looks={watcher.num_looks}")
    assert watcher.wrong == []
    assert board.wrong == []
    assert board.num_answers - board.num_flagged > NUM_FAULTS, "answers that are not whole prove little"
