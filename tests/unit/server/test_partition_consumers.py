"""Two replicas of a partition, with their threads, over one metastore and a stream in memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.cluster.stream_table import PINNED, SERVERS, TABLE, begin, make_store

from merlot.clock import SystemClock
from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import chains, lost_ranges, open_segments
from merlot.cluster.consuming.positions import read_positions
from merlot.cluster.records import AskedEnd, ConsumingStatus, StreamSegmentRecord
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import TableView, load
from merlot.ids import InstanceId
from merlot.metastore.sqlite import SqliteMetastore
from merlot.segment.build.request import BuildRequest
from merlot.server.files import SegmentFiles
from merlot.server.realtime import partition
from merlot.server.realtime.intake import Batch, Counts, Intake
from merlot.server.realtime.memory import MemoryRoom
from merlot.server.realtime.partition import Around, PartitionConsumer, Settings
from merlot.server.realtime.sealing import Sealing
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.stream import FlushSpec, OutOfRange
from merlot.store.deepstore import DeepStore
from merlot.streams.opening import after_gap
from merlot.streams.protocol import OffsetOutOfRangeError, OffsetRange
from merlot.testing.patience import PATIENCE_S
from merlot.values.types import TypeName

A, B = SERVERS
SCHEMA = TableSchema(fields=(FieldSpec(name="a", type=TypeName.INT),))
NOTHING = np.empty(0, np.int64)


class MemoryStream:
    """One partition whose messages are their offsets."""

    def __init__(self) -> None:
        self.available = OffsetRange(0, 0)


class MemoryIntake:
    """Stands for reader and pipeline."""

    def __init__(self, replica: ReplicaOnTest, start: int, bad_at: int | None) -> None:
        self._replica = replica
        self._bad_at = bad_at
        self._at = start
        self.stopped_at: int | None = None

    def seek(self, offset: int) -> None:
        self._at = offset

    def poll(self, timeout_s: float) -> Batch:
        available = self._replica.stream.available
        if self._at < available.earliest:
            raise OffsetOutOfRangeError("in a test", self._at, available)
        until = min(available.latest, self._replica.reads_until)
        if self._bad_at is not None and until > self._bad_at:
            until = self.stopped_at = self._bad_at
        if until <= self._at:
            time.sleep(timeout_s / 10)
            return Batch(rows=pa.table({}), offsets=NOTHING, message_offsets=NOTHING, next_offset=self._at)
        offsets = np.arange(self._at, until)
        self._at = until
        rows = pa.table({"a": offsets.astype(np.int32)})
        return Batch(rows=rows, offsets=offsets, message_offsets=offsets, next_offset=until)

    def close(self) -> None:
        """Holds nothing."""


class ReplicaOnTest:
    """A server's consumer, and what the server around it would do."""

    def __init__(self, name: InstanceId, cluster: ClusterOnTest, folder: Path) -> None:
        self.name = name
        self.stream = cluster.stream
        self.reads_until = 1 << 40
        self.bad_at: int | None = None
        """A message behind which nothing is read by the first settings."""
        self.is_told = True
        """Whether it hears of what changes."""
        self.loaded: set[str] = set()
        self._cluster = cluster
        files = SegmentFiles(folder / name)
        sealing = Sealing(
            metastore=cluster.store,
            table=TABLE,
            instance=name,
            files=files,
            store=lambda: DeepStore(str(folder / "deep")),
            clock=SystemClock(),
            folder=folder / name / "sealing",
        )
        around = Around(
            sealing=sealing,
            seals=cluster.seals,
            clock=SystemClock(),
            room=MemoryRoom(1 << 30),
            settings_of=self._settings_of,
            is_loaded=lambda key: key in self.loaded,
            is_live=lambda server: server in cluster.replicas,
            on_change=lambda: None,
            grace_s=1e9,
        )
        self.consumer = PartitionConsumer(0, around)

    def tell(self, view: TableView) -> None:
        """As the keeper and the table's stream do."""
        if self.is_told:
            servers = view.servers_of(open_segments(view)[0].name)
            self.consumer.follow(chains(view.stream_segments).get(0, {}), view.epoch, servers)
            self.consumer.follow_positions(read_positions(self._cluster.store, TABLE))

    def load(self, view: TableView) -> None:
        """Have all files that are committed."""
        self.loaded |= {one.key_text for one in view.stream_segments if not one.is_open}

    def rows_of(self, name: str) -> int:
        """How many rows answer for `name@0`; -1 if it is not here."""
        resolved = self.consumer.line.resolve(name, lambda key: key in self.loaded)
        if resolved is None:
            return -1
        docs = {one.key_text: one.total_docs for one in self._cluster.view.stream_segments}
        return sum(docs[key] for key in resolved.keys) + sum(rows.num_docs for rows in resolved.rows)

    def _settings_of(self, record: StreamSegmentRecord) -> Settings:
        return Settings(
            request=BuildRequest(name=record.name, table="t", schema=SCHEMA),
            flush=FlushSpec(age="9999d"),
            latest=lambda: self.stream.available,
            open_intake=partial(self._open_intake, self.bad_at if record.pinned == PINNED else None),
            after_gap=partial(after_gap, OutOfRange.EARLIEST),
        )

    def _open_intake(self, bad_at: int | None, start: int, _counts: Counts) -> Intake:
        return cast(Intake, MemoryIntake(self, start, bad_at))


class ClusterOnTest:
    """The metastore, and replicas as they come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: SqliteMetastore = make_store(folder)
        self.stream = MemoryStream()
        self.seals = ThreadPoolExecutor(2)
        self.replicas: dict[InstanceId, ReplicaOnTest] = {}
        begin(self.store, 0)

    @property
    def view(self) -> TableView:
        return load(self.store, TABLE)

    def produce(self, latest: int, earliest: int = 0) -> None:
        self.stream.available = OffsetRange(earliest, latest)

    def start(self, name: InstanceId, reads_until: int = 1 << 40, bad_at: int | None = None) -> ReplicaOnTest:
        """A new one, which comes so far in the stream for now."""
        replica = self.replicas[name] = ReplicaOnTest(name, self, self.folder)
        replica.reads_until, replica.bad_at = reads_until, bad_at
        replica.tell(self.view)
        replica.consumer.start()
        return replica

    def stop(self, name: InstanceId) -> None:
        if name in self.replicas:
            replica = self.replicas.pop(name)
            replica.consumer.stop()
            replica.consumer.join()

    def ask(self, asked: AskedEnd, pinned: str = "") -> None:
        mutate(self.store, TABLE, lambda view: transactions.ask_to_end(view, None, asked, 0, next_pinned=pinned))

    def reaches(self, is_so: Callable[[], bool], *, load: bool = True) -> None:
        """Play the servers around the consumers until it is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, [str(one.consumer.line) for one in self.replicas.values()]
            view = self.view
            for replica in self.replicas.values():
                replica.tell(view)
                if load:
                    replica.load(view)
            time.sleep(0.01)

    def close(self) -> None:
        for name in list(self.replicas):
            self.stop(name)
        self.seals.shutdown()
        self.store.close()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterOnTest]:
    monkeypatch.setattr(partition, "CATCH_UP_S", 0.5)
    with contextlib.closing(ClusterOnTest(tmp_path)) as made:
        yield made


def first_of(cluster: ClusterOnTest) -> str:
    return cluster.view.stream_segments[0].name


def test_a_replica_that_lost_its_place_has_the_rows_that_another_one_has_read(cluster: ClusterOnTest) -> None:
    cluster.produce(50)
    one = cluster.start(A)
    cluster.reaches(lambda: one.consumer.next_offset == 50)
    cluster.produce(60, earliest=30)
    late = cluster.start(B)
    cluster.reaches(lambda: late.consumer.next_offset == 60)
    assert not lost_ranges(cluster.view)
    assert cluster.view.stream_segments[0].total_docs >= 50
    cluster.reaches(lambda: one.rows_of(first_of(cluster)) == 60)


def test_rows_that_every_replica_has_lost_are_given_up_and_told_of(cluster: ClusterOnTest) -> None:
    cluster.produce(60, earliest=30)
    replicas = [cluster.start(A), cluster.start(B)]
    cluster.reaches(lambda: all(one.consumer.next_offset == 60 for one in replicas))
    assert lost_ranges(cluster.view) == {0: ((0, 30),)}


def test_a_replica_beyond_an_end_that_it_learns_of_late_keeps_what_it_has_answered(cluster: ClusterOnTest) -> None:
    cluster.produce(80)
    one, ahead = cluster.start(A, reads_until=50), cluster.start(B)
    cluster.reaches(lambda: one.consumer.next_offset == 50 and ahead.consumer.next_offset == 80)
    first = first_of(cluster)
    ahead.is_told, ahead.reads_until = False, 0
    cluster.reaches(lambda: one.consumer.is_ready)
    cluster.ask(AskedEnd.FORCE)
    cluster.reaches(lambda: not cluster.view.stream_segments[0].is_open, load=False)
    ahead.is_told = True
    cluster.reaches(lambda: len(ahead.consumer.line.parts) == 2, load=False)
    assert ahead.rows_of(first) == 80
    cluster.reaches(lambda: ahead.rows_of(open_segments(cluster.view)[0].name) == 30, load=False)
    cluster.reaches(lambda: ahead.consumer.line.parts[0].rows is None)
    assert ahead.rows_of(first) == 80


def test_a_pause_takes_no_row_back_and_going_on_reads_none_twice(cluster: ClusterOnTest) -> None:
    cluster.produce(80)
    one, ahead = cluster.start(A, reads_until=50), cluster.start(B)
    cluster.reaches(lambda: one.consumer.next_offset == 50 and ahead.consumer.next_offset == 80)
    first = first_of(cluster)
    ahead.is_told = False
    cluster.reaches(lambda: one.consumer.is_ready)
    cluster.ask(AskedEnd.PAUSE)
    cluster.reaches(lambda: open_segments(cluster.view)[0].status == ConsumingStatus.PAUSED, load=False)
    ahead.is_told = True
    cluster.reaches(lambda: len(ahead.consumer.line.parts) == 2, load=False)
    assert ahead.rows_of(first) == 80
    cluster.produce(90)
    one.reads_until = 1 << 40
    mutate(cluster.store, TABLE, lambda view: transactions.resume(view, 0))
    cluster.reaches(lambda: one.rows_of(first) == ahead.rows_of(first) == 90)


def test_new_settings_go_on_behind_a_bad_message_that_stopped_the_old_ones(cluster: ClusterOnTest) -> None:
    cluster.produce(80)
    one = cluster.start(A, bad_at=20)
    cluster.reaches(lambda: one.consumer.next_offset == 20)
    first = first_of(cluster)
    cluster.ask(AskedEnd.FORCE, pinned="settings that skip bad messages")
    cluster.reaches(lambda: one.consumer.next_offset == 80)
    assert one.rows_of(first) == 80
    assert [(record.start_offset, record.end_offset) for record in cluster.view.stream_segments] == [
        (0, 20),
        (20, None),
    ]
