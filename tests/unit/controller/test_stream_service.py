"""What people ask of streams is written where the controller's loop and the servers see it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.events import events_manifest
from tests.support.sample import orders_manifest

from merlot.clock import SystemClock
from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.progress import PartitionProgress, ProgressRecord, write_progress
from merlot.cluster.consuming.transactions import Begin
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import AskedEnd
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import load
from merlot.controller.streams import STALE_MS, StreamService
from merlot.errors import InvalidInputError
from merlot.ids import InstanceId
from merlot.metastore.sqlite import SqliteMetastore

TABLE = events_manifest(Path("/topic")).name
SERVER = InstanceId("Server_host_1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteMetastore]:
    metastore = SqliteMetastore(tmp_path / "metastore.sqlite")
    put_table(metastore, events_manifest(Path("/topic")))
    put_table(metastore, orders_manifest())
    begins = [Begin(partition=number, offset=0, servers=(SERVER,)) for number in range(2)]
    mutate(metastore, TABLE, lambda view: transactions.begin(view, begins, "{}", 1_700_000_000_000))
    yield metastore
    metastore.close()


@pytest.fixture
def service(store: SqliteMetastore) -> StreamService:
    return StreamService(store, SystemClock(), lambda _: load(store, TABLE))


def test_a_replica_is_shown_as_its_server_told_last(store: SqliteMetastore, service: StreamService) -> None:
    now_ms = SystemClock().now_ms()
    told = (PartitionProgress(partition=0, offset=40, latest=50, lag=10, state="CONSUMING"),)
    write_progress(store, TABLE, ProgressRecord(instance=SERVER, at_ms=now_ms, partitions=told))
    first, second = service.partitions("events")["partitions"]
    assert (first["replicas"][SERVER]["state"], first["replicas"][SERVER]["lag"]) == ("CONSUMING", 10)
    assert second["replicas"] == {SERVER: {"state": "UNKNOWN"}}
    write_progress(store, TABLE, ProgressRecord(instance=SERVER, at_ms=now_ms - 2 * STALE_MS, partitions=told))
    assert service.partitions("events")["partitions"][0]["replicas"][SERVER]["state"] == "UNKNOWN"


def test_a_commit_is_asked_of_the_partitions_that_were_named(store: SqliteMetastore, service: StreamService) -> None:
    service.commit("events", [1])
    asked = {number: record.asked_end for number, record in open_segments(load(store, TABLE)).items()}
    assert asked == {0: AskedEnd.NO, 1: AskedEnd.FORCE}


def test_a_partition_can_be_consumed_from_elsewhere(store: SqliteMetastore, service: StreamService) -> None:
    service.consume_from("events", {0: 0})
    record = open_segments(load(store, TABLE))[0]
    assert (record.asked_end, record.next_offset) == (AskedEnd.FORCE, 0)


def test_a_pause_holds_until_it_is_taken_back(service: StreamService) -> None:
    service.pause("events", paused=True)
    assert service.partitions("events")["isPaused"]
    service.pause("events", paused=False)
    assert not service.partitions("events")["isPaused"]


def test_what_is_not_there_cannot_be_asked_of(service: StreamService) -> None:
    with pytest.raises(InvalidInputError, match="no such partition"):
        service.commit("events", [7])
    with pytest.raises(InvalidInputError, match="no stream"):
        service.pause("orders", paused=True)
    with pytest.raises(InvalidInputError, match="offsets"):
        service.consume_from("events", {0: -1})
