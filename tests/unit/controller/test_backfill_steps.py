"""A backfill's steps over a real store: whoever dies at any write, the next one goes on, and reads nothing twice."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path

import pytest
from tests.support.faults import Fault, FaultyMetastore, ProcessDied
from tests.unit.cluster.stream_table import SERVERS, TABLE, end_of, sealed

from merlot.clock import Clock
from merlot.cluster.backfill_record import ORDER, BackfillRecord, BackfillStep
from merlot.cluster.consuming import backfills, transactions
from merlot.cluster.consuming.backfills import begun
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.pinned import pinned_upsert, unpin_upsert, upsert_id
from merlot.cluster.consuming.progress import (
    MemoryProgress,
    PartitionProgress,
    ProgressRecord,
    UpsertProgress,
    write_progress,
)
from merlot.cluster.consuming.recovery import decided_by, number_of, point_of
from merlot.cluster.consuming.stream_facts import record_stream
from merlot.cluster.manifests import tables
from merlot.cluster.records import AskedEnd, ConsumingStatus, StreamSegmentRecord
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import TableView, load
from merlot.controller.placement.assignment import Servers
from merlot.controller.placement.moves import Situation
from merlot.controller.realtime.following import follow_stream
from merlot.errors import ConflictError
from merlot.metastore.protocol import Check, Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables

MANIFEST = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  replication: 2
  schema:
    fields: [{name: a, type: LONG}, {name: seq, type: LONG}]
    primaryKey: [a]
  partitioning: {columns: {a: {functionName: Modulo, numPartitions: 2}}}
  ingestion: {stream: {type: files, topic: /nowhere}}
  upsert: {config: {mode: FULL, comparisonColumns: [seq], primaryKeyTtl: "20"}}
""")[0]
STREAM_END = 300
READ_BEFORE = 200
ROUND_MS = 1_000
MOST_ROUNDS = 150


class Time(Clock):
    """Goes on by rounds."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class World:
    """A table, and servers that read, end segments and tell, as far as a backfill can see."""

    def __init__(self, folder: Path, *, limit_bytes: int = 2**30) -> None:
        self.store = SqliteMetastore(folder / "meta.db")
        self.time = Time()
        self.limit_bytes = limit_bytes
        self.position = {0: 0, 1: 0}
        self.steps: list[BackfillStep] = []
        if tables.find_table(self.store, "t") is not None:  # another world has got so far
            self.time.ms += 60_000
            self.position = {number: one.start_offset for number, one in open_segments(self.view).items()}
            return
        tables.put_table(self.store, MANIFEST)
        record_stream(self.store, TABLE, dict.fromkeys(self.position, 0), SERVERS[0], self.time.ms)
        while min(self.position.values()) < READ_BEFORE:
            self.control(self.store)
            self.serve()
        self.end_all()

    @property
    def view(self) -> TableView:
        return load(self.store, TABLE)

    @property
    def record(self) -> BackfillRecord:
        found = backfills.find_backfill(self.store, TABLE)
        assert found is not None
        return found

    def ask(self, offsets: dict[int, int] | None) -> None:
        backfills.change_backfill(
            self.store, TABLE, lambda before: begun(before, "again", self.time.ms, offsets=offsets)
        )

    def control(self, store: Metastore) -> None:
        """A pass of the controller."""
        servers = Servers(live=frozenset(SERVERS))
        situation = Situation(spec=MANIFEST.spec, servers=servers, now_ms=self.time.ms)
        follow_stream(store, load(store, TABLE), situation, self.time, None)

    def end_all(self) -> None:
        mutate(self.store, TABLE, lambda view: transactions.ask_to_end(view, None, AskedEnd.FORCE, self.time.ms))
        self.serve()

    def serve(self) -> None:
        """A second of the servers."""
        for number, record in open_segments(self.view).items():
            self.position[number] = min(STREAM_END, max(self.position[number], record.start_offset) + 30)
            if record.asked_end is not AskedEnd.NO:
                self._end(number, record)
        self.time.ms += ROUND_MS
        for server in SERVERS:
            write_progress(self.store, TABLE, self._told(server))

    def _end(self, number: int, record: StreamSegmentRecord) -> None:
        end = end_of(record, max(self.position[number], record.start_offset))
        view = mutate(self.store, TABLE, lambda view: transactions.propose_end(view, end))
        agreed = open_segments(view)[number]
        assert agreed.end_offset is not None
        made = self.stored(sealed(agreed, agreed.end_offset))
        view = mutate(self.store, TABLE, lambda view: transactions.commit(view, made))
        self.position[number] = open_segments(view)[number].start_offset

    def stored(self, made: transactions.SealedSegment) -> transactions.SealedSegment:
        """Put the file of a sealed segment where it belongs: nowhere, as long as nobody looks."""
        return made

    def _told(self, server: str) -> ProgressRecord:
        memory = MemoryProgress(limit_bytes=self.limit_bytes, taken_bytes=1000, keys_bytes=100, needed_bytes=1025)
        parts = [
            PartitionProgress(
                partition=number,
                segment=record.name,
                offset=self.position[number],
                latest=STREAM_END,
                state=ConsumingStatus.CONSUMING,
                upsert=UpsertProgress(keys=10, settings=upsert_id(pinned_upsert(record.pinned))),
            )
            for number, record in open_segments(self.view).items()
        ]
        return ProgressRecord(instance=server, at_ms=self.time.ms, partitions=tuple(parts), memory=memory)

    def run(self, store: Metastore, rounds: int = MOST_ROUNDS) -> bool:
        """Until it is done."""
        for _ in range(rounds):
            self.control(store)
            if self.steps[-1:] != [self.record.step]:
                self.steps.append(self.record.step)
            if self.record.is_over:
                return True
            self.serve()
        return False


def assert_read_again_once(world: World) -> None:
    """Both partitions began again at 0 once; what was read there is decided without a time to live, and what comes
    now by the one there is."""
    assert world.steps == sorted(world.steps, key=ORDER.index)
    for number, opened in open_segments(world.view).items():
        chain = {one.sequence: one for one in world.view.stream_segments if one.partition == number}
        again = [one for one in chain.values() if one.start_offset == 0 and one.sequence > 0]
        assert len(again) == 1
        point = point_of(chain)
        for sequence in [one for one in chain if not chain[one].is_open]:
            spec = unpin_upsert(decided_by(chain, sequence, point))
            is_before = sequence <= again[0].sequence
            assert spec.primary_key_ttl is None or not is_before, (number, sequence)
        ends = [one.end_offset or 0 for one in chain.values() if again[0].sequence <= one.sequence and not one.is_open]
        assert max(ends) >= READ_BEFORE
        assert unpin_upsert(opened.upsert).primary_key_ttl == "20"
        assert number_of(opened.upsert) == 1


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER], ids=lambda one: one.name)
def test_a_backfill_whose_controller_dies_at_any_write_is_finished_by_the_next(fault: Fault, tmp_path: Path) -> None:
    World(tmp_path).store.close()
    for number in itertools.count():
        folder = tmp_path / str(number)
        folder.mkdir()
        shutil.copy(tmp_path / "meta.db", folder)
        world = World(folder)
        world.ask({0: 0, 1: 0})
        faulty = FaultyMetastore(world.store, fault, number)
        is_over = False
        with contextlib.suppress(ProcessDied):
            is_over = world.run(faulty)
        assert is_over or world.run(world.store), (number, world.record)
        assert_read_again_once(world)
        world.store.close()
        if faulty.num_writes <= number:
            break
    assert number > len(ORDER), "each step is written down"


def test_a_segment_that_ends_before_it_is_asked_to_is_no_harm(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ask({0: 0, 1: 0})
    for _ in range(MOST_ROUNDS):
        world.control(world.store)
        if world.record.step is BackfillStep.LOAD:
            break
        world.serve()
    world.end_all()
    assert world.run(world.store)
    assert_read_again_once(world)


def test_it_waits_for_memory_until_there_is_some_or_somebody_says_otherwise(tmp_path: Path) -> None:
    world = World(tmp_path, limit_bytes=2_000)
    world.ask({0: 0})
    assert not world.run(world.store, 20)
    assert world.record.step is BackfillStep.SCALE
    assert "add memory or servers" in world.record.message
    world.limit_bytes = 2**30
    world.serve()
    assert world.run(world.store)


def test_rows_of_the_stream_are_loaded_up_to_what_it_has_when_somebody_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ask(None)
    assert not world.run(world.store, 20)
    assert world.record.step is BackfillStep.LOAD
    backfills.change_backfill(
        world.store, TABLE, lambda record: None if record is None else backfills.mark_loaded(record, world.time.ms)
    )
    assert world.run(world.store)
    assert {one.start_offset for one in open_segments(world.view).values()} == {STREAM_END}


@pytest.mark.parametrize("has_record", [False, True])
def test_a_controller_that_no_longer_leads_changes_no_backfill(tmp_path: Path, has_record: bool) -> None:
    store = SqliteMetastore(tmp_path / "meta.db")
    store.create("/leader", b"")
    store.put("/leader", b"another", 0)
    first = begun(None, "first", 1, offsets=None)
    if has_record:
        backfills.change_backfill(store, TABLE, lambda _: first)
    with pytest.raises(ConflictError):
        backfills.change_backfill(store, TABLE, lambda _: begun(None, "again", 2, offsets=None), Check("/leader", 0))
    assert backfills.find_backfill(store, TABLE) == (first if has_record else None)
