"""Two replicas of a partition, with their threads, over one metastore and a stream in memory."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.cluster.stream_table import PINNED, SERVERS, TABLE, begin, make_store

from merlot.clock import SystemClock
from merlot.cluster import paths
from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import chains, lost_ranges, open_segments
from merlot.cluster.consuming.positions import read_positions
from merlot.cluster.records import AskedEnd, ConsumingStatus, StreamSegmentRecord
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import TableView, load
from merlot.errors import UnavailableError
from merlot.ids import InstanceId
from merlot.metastore.sqlite import SqliteMetastore
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.files import LocalSegmentFiles
from merlot.server.realtime import partition
from merlot.server.realtime.memory_budget import MemoryBudget
from merlot.server.realtime.partition import PartitionConsumer
from merlot.server.realtime.partition_deps import PartitionDeps, SegmentSettings
from merlot.server.realtime.partition_log import LogPart, PartitionLog
from merlot.server.realtime.poller import PollCounts, Poller, RowBatch
from merlot.server.realtime.row_listener import PlainListener
from merlot.server.tuning import StreamTuning
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
CATCH_UP_S = 0.5


class ListenerOnTest(PlainListener):
    """Keeps what it is told of; asserts that it is told before readers see anything."""

    def __init__(self) -> None:
        self.docs: dict[int, list[int]] = {}
        """Offsets of the rows of each segment, by the id of what holds them."""
        self.log = PartitionLog()
        self.is_closed = False
        self.is_unsettled = False
        """Whether it cannot do, once there are rows, what it was told of."""
        self.num_bugs = 0
        """How often it will fail when it hears of another open part."""
        self.bugs_from = 0
        """How many parts there are when it begins to fail: none at the first segment, two when it is switched."""

    def append(self, part: LogPart, batch: RowBatch, now_ms: int) -> None:
        assert part.rows is not None
        docs = self.docs.setdefault(id(part.rows), [])
        assert len(docs) == part.rows.num_docs
        docs += batch.offsets.tolist()
        super().append(part, batch, now_ms)

    def settle(self) -> None:
        if self.is_unsettled and self.docs:
            raise UnavailableError("not settled in this test")

    def on_log_change(self, before: PartitionLog, after: PartitionLog) -> None:
        if self.num_bugs and after.open_part is not before.open_part and len(before.parts) >= self.bugs_from:
            self.num_bugs -= 1
            raise RuntimeError("a bug in this test")
        assert before == self.log
        for part in after.parts:
            ended = before.part(part.sequence - 1) or after.part(part.sequence - 1)
            is_new = part.rows is not None and id(part.rows) not in self.docs
            if is_new and part.rows is not None and part.rows.num_docs:
                assert ended is not None
                whole = after.part(ended.sequence) or ended
                assert whole.num_docs is not None
                self.docs[id(part.rows)] = self.docs[id(ended.rows)][whole.num_docs :]
        self.log = after

    def close(self) -> None:
        self.is_closed = True

    def told_of(self, log: PartitionLog) -> list[list[int]]:
        """The offsets of each part's rows as they were told."""
        return [self.docs.get(id(part.rows), [])[: part.num_docs] for part in log.parts if part.rows is not None]


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

    def poll(self, timeout_s: float) -> RowBatch:
        available = self._replica.stream.available
        if self._at < available.earliest:
            raise OffsetOutOfRangeError("in a test", self._at, available)
        until = min(available.latest, self._replica.reads_until)
        if self._bad_at is not None and until > self._bad_at:
            until = self.stopped_at = self._bad_at
        if until <= self._at:
            time.sleep(timeout_s / 10)
            return RowBatch(rows=pa.table({}), offsets=NOTHING, next_offset=self._at)
        offsets = np.arange(self._at, until)
        self._at = until
        rows = pa.table({"a": offsets.astype(np.int32)})
        return RowBatch(rows=rows, offsets=offsets, next_offset=until)

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
        self.held_elsewhere: frozenset[str] | None = frozenset()
        """Keys that other servers report; None if the reports were not read yet."""
        self.loaded: set[str] = set()
        self.moved: set[str] = set()
        """Keys of segments that other servers have loaded in place of this one."""
        self._cluster = cluster
        self.files = LocalSegmentFiles(folder / name)
        self.listener = ListenerOnTest()
        deps = PartitionDeps(
            metastore=cluster.store,
            table=TABLE,
            instance=name,
            files=self.files,
            store=lambda: DeepStore(str(folder / "deep")),
            folder=folder / name / "sealing",
            clock=SystemClock(),
            seals=cluster.pool,
            writes=cluster.pool,
            memory=MemoryBudget(1 << 30),
            settings_of=self._settings_of,
            revision=lambda: cluster.revision,
            listener_of=lambda _number, _records: self.listener,
            is_loaded=lambda key: key in self.loaded,
            is_to_hold=lambda name: not any(key.startswith(f"{name}@") for key in self.moved),
            is_elsewhere=lambda key: key in self.moved,
            on_change=lambda: None,
            on_made=lambda: None,
            reported_as_of=lambda: cluster.reported_as_of,
            grace_s=cluster.grace_s,
            tuning=StreamTuning(retry_s=cluster.retry_s, catch_up_s=CATCH_UP_S),
        )
        self.consumer = PartitionConsumer(0, deps)

    def tell(self, view: TableView) -> None:
        """Tell the consumer what the table data manager and the table's stream would."""
        if self.is_told:
            servers = view.servers_of(open_segments(view)[0].name)
            self.consumer.follow(chains(view.stream_segments).get(0, {}), view.epoch, servers)
            positions = read_positions(self._cluster.store, TABLE)
            self.consumer.follow_peers(positions, set(self._cluster.replicas), self.held_elsewhere)

    def load(self, view: TableView) -> None:
        """Have all files that are committed, but those that it makes itself."""
        making = self.consumer.making
        self.loaded |= {one.key_text for one in view.stream_segments if not one.is_open and one.name != making}

    def rows_of(self, name: str) -> int:
        """How many rows answer for `name@0`; -1 if it is not here."""
        resolved = self.consumer.log.resolve(name, lambda key: key in self.loaded)
        if resolved is None:
            return -1
        docs = {one.key_text: one.total_docs for one in self._cluster.view.stream_segments}
        return sum(docs[key] for key in resolved.keys) + sum(rows.num_docs for rows in resolved.rows)

    def _settings_of(self, record: StreamSegmentRecord) -> SegmentSettings:
        return SegmentSettings(
            request=BuildRequest(name=record.name, table="t", schema=SCHEMA),
            flush=FlushSpec(age="9999d", rows=self._cluster.flush_rows),
            access="",
            latest=lambda: self.stream.available,
            open_poller=partial(self._open_poller, self.bad_at if record.pinned == PINNED else None),
            after_gap=partial(after_gap, OutOfRange.EARLIEST),
        )

    def _open_poller(self, bad_at: int | None, start: int, _counts: PollCounts) -> Poller:
        return cast(Poller, MemoryIntake(self, start, bad_at))


class ClusterOnTest:
    """The metastore, and replicas as they come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: SqliteMetastore = make_store(folder)
        self.stream = MemoryStream()
        self.pool = ThreadPoolExecutor(4)
        self.flush_rows = 1_000_000
        self.revision = 0
        self.retry_s = StreamTuning().retry_s
        self.reported_as_of = -math.inf
        self.grace_s = 1e9
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
            assert time.monotonic() < deadline, [str(one.consumer.log) for one in self.replicas.values()]
            view = self.view
            for replica in self.replicas.values():
                replica.tell(view)
                if load:
                    replica.load(view)
            time.sleep(0.01)

    def close(self) -> None:
        for name in list(self.replicas):
            self.stop(name)
        self.pool.shutdown()
        self.store.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOnTest]:
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


@pytest.mark.parametrize("is_read", [False, True], ids=["unread reports", "another server answers"])
def test_a_replica_behind_the_stream_is_not_queried_before_it_knows_that_no_other_server_answers(
    cluster: ClusterOnTest, is_read: bool
) -> None:
    cluster.produce(80)
    late = cluster.start(A, reads_until=50)
    late.held_elsewhere = frozenset({first_of(cluster) + "@0"}) if is_read else None
    cluster.reaches(lambda: late.consumer.next_offset == 50)
    deadline = time.monotonic() + 3 * CATCH_UP_S
    cluster.reaches(lambda: time.monotonic() > deadline)
    assert not late.consumer.is_ready
    late.held_elsewhere = frozenset()
    cluster.reaches(lambda: late.consumer.is_ready)


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
    cluster.reaches(lambda: len(ahead.consumer.log.parts) == 2, load=False)
    assert ahead.rows_of(first) == 80
    cluster.reaches(lambda: ahead.rows_of(open_segments(cluster.view)[0].name) == 30, load=False)
    cluster.reaches(lambda: ahead.consumer.log.parts[0].rows is None)
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
    cluster.reaches(lambda: len(ahead.consumer.log.parts) == 2, load=False)
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


def test_segments_end_by_rows_and_both_replicas_make_equal_files(cluster: ClusterOnTest) -> None:
    cluster.flush_rows = 30
    cluster.produce(100)
    replicas = [cluster.start(A), cluster.start(B)]
    cluster.reaches(lambda: open_segments(cluster.view)[0].start_offset == 90)
    sealed = [one for one in cluster.view.stream_segments if not one.is_open]
    assert [(one.start_offset, one.end_offset, one.total_docs) for one in sealed] == [
        (0, 30, 30),
        (30, 60, 30),
        (60, 90, 30),
    ]
    name = open_segments(cluster.view)[0].name
    cluster.reaches(lambda: all(one.rows_of(name) == 10 for one in replicas))
    for one in replicas:
        assert all(one.files.path_of(TABLE, record.key_text).exists() for record in sealed), "nobody had to fetch them"


def test_a_position_that_a_cleaner_has_deleted_at_once_is_published_again(
    cluster: ClusterOnTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    children, deleted = cluster.store.children, []

    def cleaned(path: str) -> list[str]:
        names = children(path)
        is_step = threading.current_thread() is not threading.main_thread()
        if is_step and path == paths.positions(TABLE) and names and not deleted:
            deleted.extend(names)
            for name in names:
                cluster.store.delete(paths.child(path, name))
        return children(path)

    monkeypatch.setattr(cluster.store, "children", cleaned)
    cluster.retry_s = 0.05
    cluster.produce(50)
    one = cluster.start(A)
    cluster.reaches(lambda: one.consumer.next_offset == 50)
    cluster.ask(AskedEnd.FORCE)
    cluster.reaches(lambda: not cluster.view.stream_segments[0].is_open)
    assert deleted


def test_rows_and_file_of_a_segment_that_another_server_loads_do_not_stay(cluster: ClusterOnTest) -> None:
    cluster.reported_as_of, cluster.grace_s, cluster.flush_rows = math.inf, 0.0, 30
    cluster.produce(40)
    one = cluster.start(A)
    cluster.reaches(lambda: open_segments(cluster.view)[0].start_offset == 30, load=False)
    cluster.reaches(lambda: one.consumer.log.parts[-1].sequence == 1, load=False)
    sealed, file = cluster.view.stream_segments[0], one.files.path_of(TABLE, cluster.view.stream_segments[0].key_text)
    assert one.rows_of(sealed.name) == 40
    assert file.exists()
    one.moved.add(sealed.key_text)
    cluster.reaches(lambda: [part.sequence for part in one.consumer.log.parts] == [1], load=False)
    cluster.reaches(lambda: not file.exists(), load=False)


def test_a_listener_hears_of_every_row_and_of_tails_before_readers_see_them(cluster: ClusterOnTest) -> None:
    cluster.flush_rows = 30
    cluster.produce(100)
    one = cluster.start(A)
    cluster.reaches(lambda: open_segments(cluster.view)[0].start_offset == 90, load=False)
    cluster.reaches(lambda: len(one.consumer.log.parts) == 4 and one.consumer.log.parts[-1].name != "", load=False)
    assert one.listener.told_of(one.consumer.log) == [
        [*range(30)],
        [*range(30, 60)],
        [*range(60, 90)],
        [*range(90, 100)],
    ]
    cluster.reaches(lambda: all(part.rows is None for part in one.consumer.log.parts[:-1]))
    assert one.listener.log == one.consumer.log
    cluster.stop(A)
    assert one.listener.is_closed


def test_a_step_that_fails_is_told_until_it_succeeds_and_rows_come_in_meanwhile(
    cluster: ClusterOnTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away = threading.Event()
    is_away.set()
    put, builds = DeepStore.put, []
    seal = ConsumingSegment.seal

    def failing(store: DeepStore, source: Path, url: str) -> None:
        if is_away.is_set():
            raise UnavailableError("no deep store in this test")
        put(store, source, url)

    def counted(segment: ConsumingSegment, *args: Any) -> BuiltSegment:
        builds.append(segment)
        return seal(segment, *args)

    monkeypatch.setattr(DeepStore, "put", failing)
    monkeypatch.setattr(ConsumingSegment, "seal", counted)
    cluster.flush_rows = 30
    cluster.produce(50)
    one = cluster.start(A)
    cluster.reaches(lambda: "no deep store" in one.consumer.error)
    cluster.produce(55)
    cluster.reaches(lambda: one.consumer.next_offset == 55)
    assert "no deep store" in one.consumer.error, "it is told as long as it is so"
    is_away.clear()
    cluster.reaches(lambda: not cluster.view.stream_segments[0].is_open)
    cluster.reaches(lambda: not one.consumer.error)
    assert len(builds) == 1, "what was made is uploaded again, not made again"


def test_settings_that_are_not_pinned_take_effect_on_a_running_segment(cluster: ClusterOnTest) -> None:
    cluster.produce(50)
    one = cluster.start(A)
    cluster.reaches(lambda: one.consumer.next_offset == 50)
    cluster.flush_rows = 30
    cluster.revision += 1
    cluster.reaches(lambda: open_segments(cluster.view)[0].start_offset == 30)


def test_a_partition_that_is_let_go_is_asked_for_no_more_but_answers_until_it_is_closed(cluster: ClusterOnTest) -> None:
    cluster.produce(50)
    one = cluster.start(A)
    cluster.reaches(lambda: one.consumer.names != [] and one.consumer.next_offset == 50)
    one.consumer.let_go(is_gone=True)
    cluster.reaches(lambda: one.consumer.has_left)
    assert one.consumer.names == []
    assert one.rows_of(first_of(cluster)) == 50
    one.consumer.let_go(is_gone=False)
    cluster.reaches(lambda: one.consumer.names != [])


def test_a_paused_partition_that_is_let_go_before_it_has_begun_leaves(cluster: ClusterOnTest) -> None:
    cluster.produce(5)
    one = cluster.start(A)
    cluster.reaches(lambda: one.consumer.next_offset == 5)
    cluster.ask(AskedEnd.PAUSE)
    cluster.reaches(lambda: open_segments(cluster.view)[0].status == ConsumingStatus.PAUSED)
    late = cluster.start(B)
    late.consumer.let_go(is_gone=True)
    cluster.reaches(lambda: late.consumer.has_left)
    late.consumer.let_go(is_gone=False)
    cluster.reaches(lambda: not late.consumer.has_left)
    mutate(cluster.store, TABLE, lambda view: transactions.resume(view, 0))
    cluster.produce(10)
    cluster.reaches(lambda: late.consumer.next_offset == 10)


def test_a_replica_that_has_just_begun_ends_no_segment_that_its_peer_has_rows_of(cluster: ClusterOnTest) -> None:
    cluster.produce(50)
    one = cluster.start(A)
    cluster.reaches(lambda: one.consumer.next_offset == 50)
    cluster.start(B, reads_until=3)
    cluster.ask(AskedEnd.FORCE)
    cluster.reaches(lambda: not cluster.view.stream_segments[0].is_open)
    assert cluster.view.stream_segments[0].end_offset == 50


@pytest.mark.parametrize("bugs_from", [0, 1, 2], ids=["begin", "end", "switch"])
def test_a_partition_goes_on_whatever_fails_while_it_is_told_what_came_of_its_steps(
    cluster: ClusterOnTest, monkeypatch: pytest.MonkeyPatch, bugs_from: int
) -> None:
    cluster.retry_s = 0.05
    limits = partition._limits
    monkeypatch.setattr(partition, "_limits", lambda settings: replace(limits(settings), max_retry_ms=200))
    cluster.flush_rows = 30
    cluster.produce(50)
    one = ReplicaOnTest(A, cluster, cluster.folder)
    cluster.replicas[A] = one
    one.listener.is_unsettled = True
    one.listener.num_bugs, one.listener.bugs_from = 6, bugs_from
    one.tell(cluster.view)
    one.consumer.start()
    cluster.reaches(lambda: one.consumer.next_offset == 50)
    cluster.reaches(lambda: "not settled" in one.consumer.error)
    one.listener.is_unsettled = False
    cluster.reaches(lambda: one.listener.num_bugs == 0)
    cluster.reaches(lambda: open_segments(cluster.view)[0].start_offset == 30)
    name = open_segments(cluster.view)[0].name
    cluster.reaches(lambda: one.rows_of(name) == 20)
    cluster.reaches(lambda: not one.consumer.error)


def test_a_file_that_is_being_made_when_its_partition_is_stopped_is_not_left_behind(
    cluster: ClusterOnTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    seal = ConsumingSegment.seal

    def slow(segment: ConsumingSegment, *args: Any) -> BuiltSegment:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)
        return seal(segment, *args)

    monkeypatch.setattr(ConsumingSegment, "seal", slow)
    cluster.flush_rows = 30
    cluster.produce(50)
    cluster.start(A)
    cluster.reaches(has_begun.is_set)
    cluster.stop(A)
    may_end.set()
    cluster.pool.shutdown()
    assert not [one for one in (cluster.folder / A / "sealing").rglob("*") if one.is_file()]
