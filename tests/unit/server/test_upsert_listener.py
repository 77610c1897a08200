"""What queries see of a partition of an upsert table is one row of each key, whatever becomes of its segments."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from tests.budget import count
from tests.unit.server.merging_replicas import segments_of

from merlot.clock import SystemClock
from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.consuming.steps import Switch
from merlot.cluster.consuming.transactions import COMPACTED
from merlot.cluster.records import ConsumingStatus, StreamSegmentRecord
from merlot.errors import InvalidInputError, UnavailableError
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.request import BuildRequest
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.reader import Segment, SomeDocs
from merlot.server.realtime.indexed import IndexDeps
from merlot.server.realtime.partition_deps import SegmentSettings
from merlot.server.realtime.partition_log import PartitionLog
from merlot.server.realtime.poller import RowBatch
from merlot.server.realtime.read_view import ConsumedPartition, Consumer, StreamReadView
from merlot.server.realtime.upserts import UpsertListener
from merlot.server.realtime.views import UpsertView, fitted
from merlot.server.tuning import StreamTuning
from merlot.spec.schema import TableSchema
from merlot.upsert.rules import Rules

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "key", "type": "LONG"},
            {"name": "at", "type": "LONG"},
            {"name": "offset", "type": "LONG"},
            {"name": "gone", "type": "BOOLEAN"},
        ],
        "primaryKey": ["key"],
    }
)
REQUEST = BuildRequest(name="", table="t", schema=SCHEMA)
NUM_SEEDS = count("MERLOT_SINKS", quick=3, every=12, fuzz=1000)
FIRST_SEED = 7
"""Seeds below it but 3 find less: a fix of the past that was undone passed with them."""
PLAIN = '{"mode":"FULL"}'
EXPIRING = '{"mode":"FULL","primaryKeyTtl":"5"}'
OTHERWISE_COMPARED = '{"mode":"FULL","comparisonColumns":["offset"]}'
"""What a table with rows is not given: one that has it goes on by the settings before."""
CHANGES = (PLAIN, EXPIRING, OTHERWISE_COMPARED)
SETTINGS = cast(SegmentSettings, SimpleNamespace(request=REQUEST))


class Chain:
    """What all replicas agree on: messages of the stream, the sealed segments, and the open one."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.rows: list[tuple[int, int]] = []
        self.records = {0: opened(0, 0)}
        self.sealed: dict[str, Segment] = {}

    @property
    def open(self) -> StreamSegmentRecord:
        return self.records[max(self.records)]

    def produce(self, number: int) -> None:
        now = len(self.rows)
        self.rows += [(self._draw.randrange(12), now + row - self._draw.choice((0, 0, 1, 9))) for row in range(number)]

    def table(self, start: int, stop: int) -> pa.Table:
        keys, values = zip(*self.rows[start:stop], strict=True) if stop > start else ((), ())
        gone = [is_deletion(offset) for offset in range(start, stop)]
        rows = {"key": keys, "at": values, "offset": range(start, stop), "gone": gone}
        return pa.table(rows, schema=arrow_schema(SCHEMA))

    def commit(self, end: int, upsert: str = "") -> None:
        """Seal the open segment there, and open the next one, with other settings maybe."""
        record = self.open
        done = record.model_copy(
            update={"status": ConsumingStatus.DONE.value, "end_offset": end, "total_docs": end - record.start_offset}
        )
        growing = ConsumingSegment(REQUEST, record.start_offset)
        growing.append(self.table(record.start_offset, end), np.arange(record.start_offset, end), end)
        self.records = {
            **self.records,
            record.sequence: done,
            record.sequence + 1: opened(record.sequence + 1, end, upsert or record.upsert),
        }
        self.sealed[done.key_text] = growing.snapshot()

    def replace_open(self, upsert: str) -> None:
        """End the open segment, which has no rows: nothing is left of it."""
        gone = self.open
        kept = {number: record for number, record in self.records.items() if number != gone.sequence}
        self.records = {**kept, gone.sequence + 1: opened(gone.sequence + 1, gone.start_offset, upsert)}

    def newest(self, stop: int) -> set[int]:
        """Offsets of the newest row of each key, of those before an offset: what a dictionary comes to."""
        found: dict[int, tuple[int, int]] = {}
        for offset, (key, at) in enumerate(self.rows[:stop]):
            if key not in found or at >= found[key][0]:
                found[key] = (at, offset)
        return {offset for _, offset in found.values()}


def is_deletion(offset: int) -> bool:
    """Of rows of tables whose settings say that `gone` deletes."""
    return offset % 4 == 3


def opened(sequence: int, start: int, upsert: str = PLAIN) -> StreamSegmentRecord:
    return StreamSegmentRecord(
        name=f"t__0__{sequence}__20260101T0000Z",
        crc=0,
        size_bytes=0,
        url="",
        total_docs=0,
        creation_time_ms=0,
        partition=0,
        sequence=sequence,
        start_offset=start,
        upsert=upsert,
        status=ConsumingStatus.CONSUMING.value,
    )


class Replica:
    """One replica's rows and index."""

    def __init__(self, chain: Chain, tuning: StreamTuning | None = None) -> None:
        self.chain = chain
        self.tuning = tuning or StreamTuning()
        self.loaded: set[str] = set()
        self.restart()

    def deps(self) -> IndexDeps:
        return IndexDeps(
            where="in a test",
            rules_of=lambda record: Rules.of(unpin_upsert(record.upsert), SCHEMA, "at"),
            scan_s_of=lambda _: 0.0,
            misplaced=lambda _: 0,
            clock=SystemClock(),
            borrow=self._borrow,
            on_change=lambda: None,
            tuning=self.tuning,
        )

    def restart(self) -> None:
        self.loaded = set(self.chain.sealed)
        self.listener = UpsertListener(self.deps(), lambda: self.chain.records)
        self.segments = segments_of(self.listener, self.loaded)
        assert self.listener.may_begin()
        self.segments.begin(self.chain.open, SETTINGS)

    @contextmanager
    def _borrow(self, key: str) -> Iterator[Segment | None]:
        yield self.chain.sealed[key] if key in self.loaded else None

    @property
    def offset(self) -> int:
        found = self.segments.next_offset
        assert found is not None
        return found

    def read(self, stop: int) -> None:
        start = self.offset
        offsets = np.arange(start, stop)
        batch = RowBatch(rows=self.chain.table(start, stop), offsets=offsets, next_offset=stop)
        self.segments.append(batch, 0)

    def follow(self, old: StreamSegmentRecord, *, carries: bool) -> None:
        """Take up a commit, as the state machine would have it done: what was taken for the tail is not carried if the
        next segment turns out to have other settings."""
        assert old.end_offset is not None
        self.loaded.add(old.key_text)
        has_all = self.offset >= old.end_offset
        if has_all:
            self.segments.end(old.end_offset, takes_tail=carries)
        following = self.chain.records[old.sequence + 1]
        carries = has_all and carries and following.upsert == old.upsert
        self.segments.switch(Switch(record=following, keep=False, carry=carries), old, SETTINGS)

    def vanish(self, upsert: str) -> None:
        """The open segment has no rows, and another takes its place, with other settings maybe."""
        gone = self.chain.open
        self.chain.replace_open(upsert)
        assert self.chain.open.sequence == gone.sequence + 1
        self.segments.switch(Switch(record=self.chain.open, keep=False, carry=False), None, SETTINGS)

    def seen(self) -> tuple[int, list[int]]:
        """How far it is, and the offsets of all rows that a query sees."""
        view = self.listener.view
        assert view is not None
        log = view.log
        stop = max(part.rows.next_offset if part.num_docs is None else part.end for part in log.parts if part.rows)
        sources = {part.sequence: part.snapshot() for part in log.parts if part.rows is not None}
        for record in self.chain.records.values():
            if record.sequence not in sources and not record.is_open and record.sequence < max(sources):
                sources[record.sequence] = self.chain.sealed[record.key_text]
        found: list[int] = []
        for sequence, segment in sources.items():
            masked = view.masked(sequence, segment)
            assert masked is not None, sequence
            found += visible(masked)
        return stop, found


def fails(*_: Any, **__: Any) -> None:
    raise InvalidInputError("no room")


def visible(segment: Segment) -> list[int]:
    """Offsets of the rows that count."""
    valid = segment.valid_docs
    assert isinstance(valid, SomeDocs)
    bits = np.unpackbits(valid.words.view(np.uint8), bitorder="little")
    assert not bits[segment.num_docs :].any()
    docs = np.flatnonzero(bits).astype(np.uint32)
    column = segment.column("offset")
    assert column is not None
    if column.dictionary is not None:
        assert column.dictionary.numeric is not None
        return [int(one) for one in column.dictionary.numeric[column.take_dict_ids(docs)]]
    return [int(one) for one in column.take_values(docs)]


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + NUM_SEEDS))
def test_a_replica_shows_the_newest_row_of_each_key_after_every_step(seed: int) -> None:
    """Batches, ends behind and before what was read, carried and hidden tails, files that come first, restarts."""
    draw = random.Random(seed)
    chain = Chain(draw)
    replica = Replica(chain)
    for _ in range(60):
        match draw.choice(("read", "read", "read", "commit", "jump", "release", "restart")):
            case "read":
                chain.produce(draw.randrange(1, 30))
                replica.read(draw.randrange(replica.offset, len(chain.rows)) + 1)
            case "commit" if replica.offset > chain.open.start_offset:
                old = chain.open
                chain.commit(draw.randrange(old.start_offset, replica.offset) + 1)
                replica.follow(chain.records[old.sequence], carries=draw.random() < 0.7)
            case "jump":
                chain.produce(draw.randrange(1, 30))
                old = chain.open
                chain.commit(len(chain.rows))
                replica.follow(chain.records[old.sequence], carries=True)
            case "release":
                replica.segments.release()
            case "restart":
                replica.restart()
        stop, seen = replica.seen()
        assert len(seen) == len(set(seen))
        assert set(seen) == chain.newest(stop)


def test_an_index_that_knows_of_rows_that_were_not_stored_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(random.Random(1))
    replica = Replica(chain)
    chain.produce(40)
    replica.read(10)

    with monkeypatch.context() as patched:
        patched.setattr(ConsumingSegment, "append", fails)
        with pytest.raises(InvalidInputError):
            replica.read(20)
    assert set(replica.seen()[1]) == chain.newest(10), "nothing is answered by an index that is ahead of the rows"
    assert replica.listener.is_building
    replica.listener.settle()
    assert not replica.listener.is_building
    assert set(replica.seen()[1]) == chain.newest(10)
    replica.read(40)
    assert set(replica.seen()[1]) == chain.newest(40)


@pytest.fixture
def _shown_amid_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """While an index is built anew, what was shown before is shown."""
    build = UpsertListener._rebuild

    def checked(listener: UpsertListener, shown: UpsertView | None = None) -> None:
        before, look = listener.view, listener._build

        def amid(log: PartitionLog) -> None:
            if before is not None:
                assert listener.view is not None, "hidden by a change of settings"
                assert (listener.view.log, listener.view.cut, listener.view.numbers) == (
                    before.log,
                    before.cut,
                    before.numbers,
                )
                assert listener.is_building
            look(log)

        with monkeypatch.context() as patched:
            patched.setattr(listener, "_build", amid)
            build(listener, shown)

    monkeypatch.setattr(UpsertListener, "_rebuild", checked)


@pytest.mark.usefixtures("_shown_amid_it")
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + NUM_SEEDS // 2))
def test_replicas_show_the_same_rows_whenever_settings_change(seed: int) -> None:
    """One that goes on, with and without a tail beyond the end, and one that begins anew at every step."""
    draw = random.Random(seed)
    chain = Chain(draw)
    replica = Replica(chain)
    for _ in range(25):
        chain.produce(draw.randrange(1, 12))
        replica.read(draw.randrange(replica.offset, len(chain.rows)) + 1)
        if replica.offset > chain.open.start_offset and draw.random() < 0.5:
            old = chain.open
            end = draw.choice((replica.offset, draw.randrange(old.start_offset, replica.offset) + 1))
            replica.segments.end(end, takes_tail=True)
            chain.commit(end, draw.choice(CHANGES))
            replica.follow(chain.records[old.sequence], carries=True)
            if replica.offset == end and draw.random() < 0.5:
                replica.vanish(draw.choice(CHANGES))
        fresh = Replica(chain)
        fresh.read(replica.offset)
        assert sorted(replica.seen()[1]) == sorted(fresh.seen()[1])


@pytest.mark.parametrize("is_noted", [True, False])
def test_rows_are_shown_while_those_of_a_tail_are_decided_by_other_settings(
    is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the tail's segment are not: which docs of one of them count is not known by the former settings."""
    chain = Chain(random.Random(1))
    replica = Replica(chain)
    chain.rows = [(1, 100), (2, 200), (1, 150), (2, 190)]
    replica.read(4)
    first = chain.open
    if is_noted:
        replica.segments.end(2, takes_tail=True)
    chain.commit(2, EXPIRING)
    replica.loaded |= set(chain.sealed)
    looks: list[tuple[list[int], bool, bool]] = []

    def look() -> None:
        view = replica.listener.view
        assert view is not None
        known = [view.knows(one.sequence, f"{one.name}@7") for one in chain.records.values()]
        looks.append((sorted(replica.seen()[1]), known[0], known[1]))

    build = replica.listener._build
    monkeypatch.setattr(replica.listener, "_build", lambda log: (look(), build(log))[1])
    replica.segments.end(2, takes_tail=False)
    replica.segments.switch(Switch(record=chain.open, keep=False, carry=False), chain.records[first.sequence], SETTINGS)
    assert looks == [([1, 2], is_noted, False)]
    replica.segments.release()
    replica.listener.settle()
    replica.read(4)
    assert sorted(replica.seen()[1]) == [0, 1, 2]


def test_settings_count_from_the_first_row_behind_a_segment_that_ended_where_a_replica_was() -> None:
    chain = Chain(random.Random(1))
    replica = Replica(chain)
    chain.rows = [(1, 100), (2, 200), (1, 90), (2, 190)]
    replica.read(2)
    old = chain.open
    replica.segments.end(2, takes_tail=True)
    chain.commit(2, EXPIRING)
    replica.follow(chain.records[old.sequence], carries=True)
    replica.read(4)
    fresh = Replica(chain)
    fresh.read(4)
    assert sorted(replica.seen()[1]) == sorted(fresh.seen()[1])
    assert sorted(replica.seen()[1]) == [0, 1, 2], "key 1 was dead by the new settings when its second row came"


def test_settings_of_a_segment_that_never_had_rows_leave_no_trace() -> None:
    """Its record is gone, and whoever begins anew does not know that there was one."""
    chain = Chain(random.Random(1))
    replica = Replica(chain)
    chain.rows = [(1, 100), (2, 200), (1, 150), (3, 160), (1, 155)]
    replica.read(2)
    old = chain.open
    chain.commit(2, EXPIRING)
    replica.follow(chain.records[old.sequence], carries=True)
    replica.vanish(PLAIN)
    for stop in (4, 5):
        replica.read(stop)
        fresh = Replica(chain)
        fresh.read(stop)
        assert sorted(replica.seen()[1]) == sorted(fresh.seen()[1])
        assert set(replica.seen()[1]) == chain.newest(stop)


def test_a_tail_is_decided_anew_if_its_segment_was_sealed_by_other_settings() -> None:
    chain = Chain(random.Random(1))
    replica = Replica(chain)
    chain.rows = [(1, 100), (2, 200), (1, 90), (2, 190), (3, 300)]
    replica.read(4)
    first = chain.open
    replica.segments.end(2, takes_tail=True)
    chain.commit(2, EXPIRING)
    chain.commit(4)
    replica.loaded |= set(chain.sealed)
    replica.segments.switch(Switch(record=chain.open, keep=False, carry=False), chain.records[first.sequence], SETTINGS)
    replica.segments.release()
    replica.listener.settle()
    replica.read(5)
    fresh = Replica(chain)
    fresh.read(5)
    assert sorted(replica.seen()[1]) == sorted(fresh.seen()[1])


def test_an_index_that_could_not_be_built_anew_is_built_without_another_row(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(random.Random(2))
    replica = Replica(chain)
    for stop in (20, 40):
        chain.produce(20)
        replica.read(stop)
        old = chain.open
        chain.commit(stop)
        replica.follow(chain.records[old.sequence], carries=True)
        replica.segments.release()
    chain.produce(20)
    replica.read(50)
    away = chain.records[1].key_text
    replica.loaded.discard(away)
    with monkeypatch.context() as patched:
        patched.setattr(ConsumingSegment, "append", fails)
        with pytest.raises(InvalidInputError):
            replica.read(60)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            replica.listener.settle()
        assert replica.listener.view is None
    replica.loaded.add(away)
    replica.listener.settle()
    assert set(replica.seen()[1]) == chain.newest(50)


def test_what_a_commit_leaves_to_prune_is_done_between_batches() -> None:
    chain = Chain(random.Random(1))
    chain.records = {0: opened(0, 0, EXPIRING)}
    replica = Replica(chain, StreamTuning(tidy_s=0.0))
    chain.rows = [(key, 0) for key in range(500)] + [(1000, 100)]
    replica.read(501)
    old = chain.open
    chain.commit(501)
    replica.follow(chain.records[old.sequence], carries=True)
    assert replica.listener.stats.keys == 501
    replica.listener.settle()
    assert 0 < replica.listener.stats.expired < 500
    for _ in range(64):
        replica.listener.settle()
    assert (replica.listener.stats.keys, replica.listener.stats.expired) == (1, 500)
    assert Replica(chain).listener.stats.keys == 1, "who begins anew has not all of them at once"


def test_a_partition_waits_for_its_sealed_segments() -> None:
    chain = Chain(random.Random(1))
    replica = Replica(chain)
    chain.produce(40)
    replica.read(40)
    old = chain.open
    chain.commit(30)
    replica.follow(chain.records[old.sequence], carries=True)
    listener = replica.listener
    [key] = chain.sealed
    replica.loaded.clear()
    waiting = UpsertListener(listener._deps, lambda: chain.records)
    assert not waiting.may_begin()
    assert waiting.waits_for == key
    assert waiting.view is None
    replica.loaded.add(key)
    assert waiting.may_begin()
    assert waiting.waits_for == ""


def test_a_partition_that_is_stopped_while_its_sealed_segments_are_read_reads_no_more_of_them() -> None:
    chain = Chain(random.Random(1))
    replica = Replica(chain)
    chain.produce(40)
    replica.read(40)
    for end in (20, 40):
        old = chain.open
        chain.commit(end)
        replica.follow(chain.records[old.sequence], carries=True)
    lent: list[str] = []

    @contextmanager
    def lend(key: str) -> Iterator[Segment | None]:
        lent.append(key)
        stopped.stop()
        yield chain.sealed[key]

    stopped = UpsertListener(replace(replica.deps(), borrow=lend), lambda: chain.records)
    with pytest.raises(UnavailableError, match="stopped"):
        stopped.may_begin()
    assert lent == [chain.records[0].key_text]
    assert stopped.view is None


def test_a_broker_that_has_not_heard_of_what_is_consumed_is_answered_for_that_too() -> None:
    """Else it would see neither the rows that were replaced, nor those that replaced them."""
    chain = Chain(random.Random(3))
    replica = Replica(chain)
    chain.produce(80)
    replica.read(40)
    old = chain.open
    chain.commit(40)
    replica.follow(chain.records[old.sequence], carries=True)
    replica.segments.release()
    replica.read(80)
    key, [segment] = f"{old.name}@7", chain.sealed.values()
    view = replica.listener.view
    assert view is not None
    sealed = view.masked(0, segment)
    assert sealed is not None
    assert set(visible(sealed)) < chain.newest(40)
    consumer = cast(Consumer, SimpleNamespace(log=view.log, is_ready=True))
    cut = StreamReadView({0: ConsumedPartition(consumer, replica.listener)}, replica.loaded.__contains__)
    [(last, resolved)] = cut.behind([key])
    assert last == key
    assert resolved is not None
    assert resolved.keys == ()
    assert set(visible(sealed)) | {row for one in resolved.rows for row in visible(one)} == chain.newest(80)
    assert list(cut.behind([key, f"{chain.open.name}@0"])) == [], "the broker knows"


@pytest.mark.parametrize("num_read", [3, 5, 12, 20])
def test_a_replica_that_stood_still_reads_the_whole_file_of_a_segment_that_was_rewritten(num_read: int) -> None:
    """It had read some rows of the segment: these are not the first docs of the file that has only the valid ones."""
    chain = Chain(random.Random(3))
    replica = Replica(chain)
    chain.produce(40)
    replica.read(num_read)
    chain.commit(40)
    kept = sorted(chain.newest(40))
    growing = ConsumingSegment(REQUEST, 0)
    growing.append(chain.table(0, 40).take(kept), np.array(kept), 40)
    update = {"crc": 6, "total_docs": len(kept), "custom_map": {COMPACTED: "1"}}
    rewritten = chain.records[0].model_copy(update=update)
    chain.records = {**chain.records, 0: rewritten}
    chain.sealed[rewritten.key_text] = growing.snapshot()
    replica.follow(rewritten, carries=True)
    replica.segments.release()
    replica.listener.settle()
    view = replica.listener.view
    assert view is not None
    masked = view.masked(0, chain.sealed[rewritten.key_text])
    assert masked is not None
    assert visible(masked) == kept


def test_a_replica_that_is_behind_follows_a_rewritten_segment_once_it_has_what_replaced_its_rows() -> None:
    """Others have sealed rows that it has not read, and a minion has taken out what these replaced."""
    chain = Chain(random.Random(3))
    replica = Replica(chain)
    chain.produce(40)
    replica.read(40)
    old = chain.open
    chain.commit(40)
    replica.follow(chain.records[old.sequence], carries=True)
    replica.segments.release()
    replica.listener.settle()
    chain.produce(8)
    kept = sorted(offset for offset in chain.newest(48) if offset < 40)
    assert 0 < len(kept) < len(chain.newest(40))
    growing = ConsumingSegment(REQUEST, 0)
    growing.append(chain.table(0, 40).take(kept), np.array(kept), 40)
    update = {"crc": 6, "total_docs": len(kept), "custom_map": {COMPACTED: "1"}}
    rewritten = chain.records[0].model_copy(update=update)
    chain.records = {**chain.records, 0: rewritten}
    chain.sealed[rewritten.key_text] = growing.snapshot()
    replica.loaded.add(rewritten.key_text)

    def is_followed() -> bool:
        replica.listener.files._seen = None  # it is time to look
        replica.listener.settle()
        assert replica.listener.view is not None
        return replica.listener.view.knows(0, rewritten.key_text)

    assert not is_followed()
    replica.read(44)
    is_followed()
    replica.read(48)
    assert is_followed()
    view = replica.listener.view
    assert view is not None
    masked = view.masked(0, chain.sealed[rewritten.key_text])
    assert masked is not None
    assert visible(masked) == kept


def test_a_partition_that_has_not_begun_follows_a_rewritten_segment_and_knows_settled_docs() -> None:
    chain = Chain(random.Random(3))
    replica = Replica(chain)
    chain.produce(40)
    replica.read(40)
    chain.commit(40)
    replica.follow(chain.records[0], carries=True)
    paused = UpsertListener(replica.listener._deps, lambda: chain.records)
    assert paused.may_begin()
    assert paused.files.settled.num_docs == {chain.records[0].key_text: 40}
    kept = sorted(chain.newest(40))
    growing = ConsumingSegment(REQUEST, 0)
    growing.append(chain.table(0, 40).take(kept), np.array(kept), 40)
    update = {"crc": 6, "total_docs": len(kept), "custom_map": {COMPACTED: "1"}}
    rewritten = chain.records[0].model_copy(update=update)
    chain.records = {**chain.records, 0: rewritten}
    chain.sealed[rewritten.key_text] = growing.snapshot()
    replica.loaded.add(rewritten.key_text)
    assert paused.may_begin()
    assert paused.view is not None
    masked = paused.view.masked(0, chain.sealed[rewritten.key_text])
    assert masked is not None
    assert visible(masked) == kept


def test_keys_of_a_segment_that_is_deleted_go_with_its_file() -> None:
    chain = Chain(random.Random(3))
    replica = Replica(chain)

    def read_and_commit(stop: int) -> None:
        chain.produce(stop - len(chain.rows))
        replica.read(stop)
        old = chain.open
        chain.commit(stop)
        replica.follow(chain.records[old.sequence], carries=True)
        replica.segments.release()

    for stop in (40, 80, 120):
        read_and_commit(stop)
    num_keys = replica.listener.stats.keys
    gone = chain.records.pop(0)
    read_and_commit(121)

    def seen_of_deleted() -> list[int]:
        view = replica.listener.view
        assert view is not None
        masked = view.masked(0, chain.sealed[gone.key_text])
        assert masked is not None, "brokers that have not heard of the deletion lack the whole partition"
        return visible(masked)

    # Until the file goes, its rows are replaced like others: no broker sees a key twice.
    assert sorted([*seen_of_deleted(), *replica.seen()[1]]) == sorted(chain.newest(121))
    read_and_commit(160)
    assert sorted([*seen_of_deleted(), *replica.seen()[1]]) == sorted(chain.newest(160))

    replica.loaded.remove(gone.key_text)
    read_and_commit(161)
    view = replica.listener.view
    assert view is not None
    assert 0 not in view.numbers
    assert replica.listener.stats.keys <= num_keys
    assert set(replica.seen()[1]) == {offset for offset in chain.newest(161) if offset >= 40}


@pytest.mark.parametrize("num_docs", [0, 1, 63, 64, 65, 200])
def test_words_fit_the_docs(num_docs: int) -> None:
    words = np.full(3, 0xFFFFFFFFFFFFFFFF, np.uint64)
    found = np.unpackbits(fitted(words, num_docs).view(np.uint8), bitorder="little")
    assert len(found) == (num_docs + 63) // 64 * 64
    assert found.sum() == min(num_docs, 192)
    assert fitted(None, num_docs).sum() == 0
