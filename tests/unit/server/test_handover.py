"""A server that is told to stop marks itself, and goes once others need not read for long what it has consumed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cluster.stream_table import SERVERS, TABLE, begin, end_of, make_store, opened, sealed

from merlot.clock import SystemClock
from merlot.cluster.consuming.commits import commit_segment, propose_end
from merlot.cluster.consuming.handover import MOST_REPLAYED
from merlot.cluster.consuming.progress import PartitionProgress, ProgressRecord, write_progress
from merlot.cluster.instances.drains import marks
from merlot.cluster.instances.liveness import register
from merlot.cluster.records import InstanceRecord, Role
from merlot.ids import TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.server.realtime.handover import hand_over

ONE = SERVERS[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteMetastore]:
    made = make_store(tmp_path)
    for server in SERVERS:
        register(made, InstanceRecord(id=server, role=Role.SERVER, host="h"))
    begin(made, 0)
    yield made
    made.close()


def has_read(store: SqliteMetastore, offset: int) -> None:
    progress = PartitionProgress(partition=0, segment=opened(store).name, offset=offset, state="CONSUMING")
    write_progress(store, TABLE, ProgressRecord(instance=ONE, at_ms=1, partitions=(progress,)))


def test_little_is_read_again_so_nobody_waits(store: SqliteMetastore) -> None:
    has_read(store, MOST_REPLAYED)
    assert hand_over(store, ONE, [TABLE, TableName("gone_OFFLINE")], 30.0, SystemClock())
    assert marks(store) == {}


def test_it_waits_until_what_it_has_read_is_committed(store: SqliteMetastore) -> None:
    has_read(store, MOST_REPLAYED + 1)
    ended: list[bool] = []
    waiting = threading.Thread(target=lambda: ended.append(hand_over(store, ONE, [TABLE], 60.0, SystemClock())))
    waiting.start()
    while ONE not in marks(store):
        waiting.join(0.01)
    assert not marks(store)[ONE].leaving
    record = opened(store)
    propose_end(store, TABLE, end_of(record, MOST_REPLAYED + 1))
    assert ended == []
    commit_segment(store, TABLE, sealed(record, MOST_REPLAYED + 1))
    waiting.join(30)
    assert ended == [True]


def test_it_does_not_wait_for_ever(store: SqliteMetastore) -> None:
    has_read(store, MOST_REPLAYED + 1)
    assert not hand_over(store, ONE, [TABLE], 0.0, SystemClock())
