"""A hybrid table under everything that happens to it: each row that the stream brought is answered, once.

Batches bring the rows of whole days again. They are published, loaded, refreshed, merged, taken back, while the stream
seals segments, a broker follows the root and the servers' reports in any order, and another one starts anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import count

from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot, build
from merlot.cluster.records import ConsumingStatus, LineageRecord, RootRecord, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.boundary import BEFORE_ALL, BoundaryRule, TimeSplit
from merlot.cluster.segments.mutations import (
    EndReplacement,
    ForgetReplacement,
    Mutation,
    PreconditionError,
    PutOutputs,
    PutSegments,
    RemoveSegments,
    RevertReplacement,
    StartReplacement,
)
from merlot.cluster.segments.transaction import apply
from merlot.cluster.segments.view import TableView
from merlot.controller.placement.retention import FOLLOWED_MS, covered_by_batches
from merlot.controller.realtime import boundary
from merlot.ids import InstanceId, SegmentKey, TableName
from merlot.spec.manifest import load
from merlot.spec.table import TableSpec, TimeBoundarySpec

TABLE = TableName("events_OFFLINE")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PER_SEGMENT = 7
"""Rows of a stream's segment, one an hour: segments begin at no midnight."""
NUM_PARTITIONS = 2
CASES = count("MERLOT_ROUTING_CASES", quick=50, every=100, fuzz=5000)
BATCHES, STREAM = InstanceId("Server_host_1"), InstanceId("Server_host_2")
NOW_MS = 1_700_000_000_000 // DAY_MS * DAY_MS
FIRST_MS = NOW_MS - 10 * DAY_MS


def spec_of() -> TableSpec:
    return load("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: events}
spec:
  timeColumn: at
  schema:
    fields:
      - {name: id, type: LONG}
      - {name: at, type: TIMESTAMP, role: dateTime}
  ingestion:
    stream: {type: files, topic: /tmp/topic}
    timeBoundary: {unit: 1d}
""")[0].spec


SPEC = spec_of()
RULE = BoundaryRule.of(SPEC)

Row = tuple[int, int, int]
"""Partition, offset, time: what tells rows apart."""


def rows_of_stream(partition: int, start: int, end: int) -> list[Row]:
    return [(partition, offset, FIRST_MS + offset * HOUR_MS) for offset in range(start, end)]


@dataclass
class World:
    """The root, what servers report, and the rows of each version of a segment."""

    view: TableView = field(
        default_factory=lambda: TableView(TABLE, RootRecord(num_buckets=1, time_boundary_ms=BEFORE_ALL), 1, {})
    )
    rows: dict[str, list[Row]] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    heard: set[str] = field(default_factory=set)
    """As the broker knows it: what servers report reaches it after the controller."""
    details: dict[str, LineageRecord] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=lambda: [0] * NUM_PARTITIONS)
    num_days: int = 0
    num_names: int = 0
    now_ms: int = NOW_MS
    snapshot: RoutingSnapshot | None = None

    def __post_init__(self) -> None:
        self.put(*(self.opened(partition, 0) for partition in range(NUM_PARTITIONS)))

    def opened(self, partition: int, sequence: int) -> StreamSegmentRecord:
        return StreamSegmentRecord(
            name=f"events__{partition}__{sequence}__20260101T0000Z",
            crc=0,
            size_bytes=0,
            url="",
            total_docs=0,
            creation_time_ms=self.now_ms,
            status=ConsumingStatus.CONSUMING.value,
            partition=partition,
            sequence=sequence,
            start_offset=sequence * PER_SEGMENT,
        )

    def change(self, *mutations: Mutation) -> None:
        changed = apply(self.view, mutations)
        if changed is None:
            return
        self.details |= changed.details
        boundary_ms, moved_ms = changed.time_boundary
        root = self.view.root.model_copy(
            update={
                "epoch": self.view.epoch + 1,
                "lineage": dict(changed.lineage),
                "time_boundary_ms": boundary_ms,
                "time_boundary_moved_ms": moved_ms,
            }
        )
        self.view = TableView(TABLE, root, self.view.version + 1, {**self.view.buckets, **changed.buckets})

    def put(self, *records: SegmentRecord) -> None:
        self.change(PutSegments(records))

    def consume(self, partition: int, num_rows: int) -> None:
        """Rows come, and segments are sealed; their file is there at once, since this is not about commits."""
        self.offsets[partition] += num_rows
        while True:
            (one,) = (one for one in self.view.stream_segments if one.is_open and one.partition == partition)
            end = one.start_offset + PER_SEGMENT
            if end > self.offsets[partition]:
                return
            rows = rows_of_stream(partition, one.start_offset, end)
            done = one.model_copy(
                update={
                    **described(rows),
                    "crc": 1,
                    "url": one.name,
                    "end_offset": end,
                    "status": ConsumingStatus.DONE.value,
                    "push_time_ms": self.now_ms,
                }
            )
            self.rows[done.key_text] = rows
            self.put(done, self.opened(partition, one.sequence + 1))

    def publish_day(self) -> None:
        """The next whole day that the stream has brought, a segment a partition."""
        last_ms = FIRST_MS + (self.num_days + 1) * DAY_MS
        if any(FIRST_MS + offset * HOUR_MS < last_ms for offset in self.offsets):
            return
        day = self.num_days
        self.num_days += 1
        self.put(*(self.batch(f"events_{day}_{number}", rows_of_day(day, number)) for number in range(NUM_PARTITIONS)))

    def batch(self, name: str, rows: list[Row], crc: int = 1) -> SegmentRecord:
        record = SegmentRecord(
            name=name, crc=crc, size_bytes=1, url=f"{name}@{crc}", push_time_ms=self.now_ms, **described(rows)
        )
        self.rows[record.key_text] = rows
        return record

    def of_batches(self) -> list[SegmentRecord]:
        return [one for one in self.view.visible.values() if not self.is_stream(one)]

    def refresh(self, number: int) -> None:
        """A day's segments in new versions, rows moved between them."""
        days = sorted({one.name.split("_")[1] for one in self.of_batches() if one.name.startswith("events_")})
        if not days:
            return
        day = days[number % len(days)]
        present = [one for one in self.of_batches() if one.name.startswith(f"events_{day}_")]
        if len(present) < NUM_PARTITIONS or any(one.replaced_by for one in present):
            return
        rows = [row for one in present for row in self.rows[one.key_text]]
        halves = rows[::2], rows[1::2]
        self.put(*(self.batch(one.name, half, one.crc + 1) for one, half in zip(present, halves, strict=True)))

    def take_back(self) -> None:
        """Whoever published the newest day removes it."""
        names = [f"events_{self.num_days - 1}_{number}" for number in range(NUM_PARTITIONS)]
        records = [self.view.segment(name) for name in names]
        keys = [one.key for one in records if one is not None and not one.replaced_by]
        if len(keys) == NUM_PARTITIONS:
            self.change(RemoveSegments(tuple(keys)))
            self.num_days -= 1

    def merge(self, number: int, *, of_stream: bool) -> None:
        """Two segments of one part become one, from start to end; servers load the output first."""
        if of_stream:
            closed = [one for one in self.view.visible.values() if one.name not in self.held() and self.is_stream(one)]
        else:
            closed = self.of_batches()
        free = sorted(
            (one for one in closed if not one.replaced_by), key=lambda one: (one.start_time_ms or 0, one.name)
        )
        if len(free) < 2:
            return
        at = number % (len(free) - 1)
        inputs = free[at : at + 2]
        self.num_names += 1
        entry, name = f"e{self.num_names}", f"{'sm' if of_stream else 'merged'}{self.num_names}"
        rows = [row for one in inputs for row in self.rows[one.key_text]]
        output = self.batch(name, rows)
        start = StartReplacement(
            entry=entry,
            segments_from={one.name: one.crc for one in inputs},
            segments_to=(name,),
            now_ms=self.now_ms,
        )
        self.change(start)
        self.change(PutOutputs(entry, (output,)))
        self.loaded.add(output.key_text)
        self.heard.add(output.key_text)
        self.change(EndReplacement(entry=entry, details=self.details[entry], now_ms=self.now_ms))

    def is_stream(self, record: SegmentRecord) -> bool:
        return isinstance(record, StreamSegmentRecord) or bool(record.stream_offsets)

    def held(self) -> set[str]:
        """The open ones, and the newest of each partition."""
        kept: dict[int, str] = {}
        for one in self.view.stream_segments:
            if not one.is_open:
                kept[one.partition] = one.name
        return {one.name for one in self.view.stream_segments if one.is_open} | set(kept.values())

    def undo_or_forget(self, number: int) -> None:
        entries = sorted(self.view.lineage)
        if not entries:
            return
        entry = entries[number % len(entries)]
        newer = {one.replaced_by for one in self.view.segments.values() if one.replaces == entry}
        is_used = any(newer)
        if number % 2 and not is_used and self.view.lineage[entry].state == "COMPLETED":
            self.change(RevertReplacement(entry=entry, details=self.details[entry], now_ms=self.now_ms))
        elif not is_used:
            self.change(ForgetReplacement(entry))

    def load_some(self, number: int) -> None:
        """The server of the batches loads one more of what it lacks, or all."""
        lacking = sorted(one.key_text for one in self.of_all() if one.key_text not in self.loaded)
        if lacking:
            self.loaded.update([lacking[number % len(lacking)]] if number % 3 else lacking)

    def hear(self) -> None:
        """The broker reads the reports."""
        self.heard = set(self.loaded)

    def of_all(self) -> Iterable[SegmentRecord]:
        return (one for one in self.view.segments.values() if not isinstance(one, StreamSegmentRecord))

    def control(self) -> None:
        """The controller's look at the boundary."""
        self.change(*boundary.decide(self.view, SPEC, {BATCHES: frozenset(self.loaded)}, self.now_ms))

    def reports(self) -> Mapping[InstanceId, set[str]]:
        of_stream = {one.key_text for one in self.view.stream_segments}
        begun = {f"{one.name}@0" for one in self.view.stream_segments}
        return {BATCHES: set(self.heard), STREAM: of_stream | begun}

    def route(self, *, anew: bool = False) -> None:
        """A broker looks at the root. One that starts has read the reports after it."""
        if anew:
            self.heard = set(self.loaded)
        reports = self.reports()
        inputs = RoutingInputs(
            view=self.view,
            reports=reports,
            standings=dict.fromkeys(reports, ServerStanding.PREFERRED),
            now_ms=self.now_ms,
            rule=RULE,
        )
        self.snapshot = build(inputs, None if anew else self.snapshot)

    def answered(self, snapshot: RoutingSnapshot) -> Counter[Row]:
        found: Counter[Row] = Counter()
        boundary_ms = snapshot.time_boundary_ms
        assert boundary_ms is not None
        for route in snapshot.select(0):
            for key in route.segments:
                rows = self.rows_of(key)
                if route.time_split is TimeSplit.BEFORE:
                    rows = [row for row in rows if row[2] < boundary_ms]
                elif route.time_split is TimeSplit.FROM:
                    rows = [row for row in rows if row[2] >= boundary_ms]
                found.update(rows)
        return found

    def rows_of(self, key: str) -> list[Row]:
        if not key.endswith("@0"):
            return self.rows[key]
        _, partition, sequence, _ = key.split("__")
        return rows_of_stream(int(partition), int(sequence) * PER_SEGMENT, self.offsets[int(partition)])

    def check(self) -> None:
        assert self.snapshot is not None
        if self.snapshot.unavailable:
            return  # said, with every answer
        expected = Counter(row for number, end in enumerate(self.offsets) for row in rows_of_stream(number, 0, end))
        assert self.answered(self.snapshot) == expected


def rows_of_day(day: int, partition: int) -> list[Row]:
    return rows_of_stream(partition, 24 * day, 24 * day + 24)


def described(rows: list[Row]) -> dict[str, object]:
    times = [time for _, _, time in rows]
    return {"total_docs": len(rows), "start_time_ms": min(times, default=None), "end_time_ms": max(times, default=None)}


ACTIONS: Mapping[str, Callable[[World, int], None]] = {
    "consume": lambda world, number: world.consume(number % NUM_PARTITIONS, 30 if number % 3 else 5),
    "publish": lambda world, _: world.publish_day(),
    "load": lambda world, number: world.load_some(number),
    "control": lambda world, _: world.control(),
    "hear": lambda world, _: world.hear(),
    "refresh": lambda world, number: world.refresh(number),
    "take back": lambda world, _: world.take_back(),
    "merge": lambda world, number: world.merge(number, of_stream=False),
    "merge stream": lambda world, number: world.merge(number, of_stream=True),
    "undo": lambda world, number: world.undo_or_forget(number),
    "route": lambda world, _: world.route(),
    "restart": lambda world, _: world.route(anew=True),
}
STEPS = st.tuples(st.sampled_from(sorted(ACTIONS)), st.integers(0, 30))


@settings(max_examples=CASES, deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_each_row_is_answered_once_whatever_moves_the_boundary(steps: list[tuple[str, int]]) -> None:
    world = world_with_days(2)
    world.route()
    for action, number in steps:
        ACTIONS[action](world, number)
        if action in ("route", "restart"):
            world.check()
    settle(world)


def world_with_days(num_days: int) -> World:
    world = World()
    for partition in range(NUM_PARTITIONS):
        world.consume(partition, 24 * (num_days + 1))
    for _ in range(num_days):
        world.publish_day()
    return world


def settle(world: World) -> RoutingSnapshot:
    world.load_some(0)
    world.hear()
    world.control()
    world.route()
    world.check()
    assert world.snapshot is not None
    return world.snapshot


def test_batches_answer_for_all_but_their_last_day() -> None:
    world = world_with_days(3)
    snapshot = settle(world)
    assert snapshot.time_boundary_ms == FIRST_MS + 2 * DAY_MS
    hidden = {segment.record.name for segment in snapshot.segments.values() if segment.time_split is TimeSplit.HIDDEN}
    assert {"events_2_0", "events_2_1"} <= hidden
    assert not {"events_0_0", "events_1_1"} & hidden
    assert snapshot.total_docs < sum(one.record.total_docs for one in snapshot.segments.values())


def test_a_day_that_is_half_loaded_moves_nothing() -> None:
    world = world_with_days(3)
    before = settle(world).time_boundary_ms
    for partition in range(NUM_PARTITIONS):
        world.consume(partition, 48)
    world.publish_day()
    world.publish_day()
    world.loaded.add("events_3_0@1")
    world.hear()
    world.control()
    world.route()
    world.check()
    assert world.snapshot is not None
    assert world.snapshot.time_boundary_ms == before
    assert settle(world).time_boundary_ms == FIRST_MS + 4 * DAY_MS


def test_rows_of_the_newest_batch_that_is_taken_back_are_the_stream_s_in_the_same_snapshot() -> None:
    world = world_with_days(3)
    settle(world)
    world.take_back()
    world.route()
    world.check()
    assert world.snapshot is not None
    assert world.view.root.time_boundary_ms == FIRST_MS + 2 * DAY_MS, "nobody wrote it"
    assert world.snapshot.time_boundary_ms == FIRST_MS + DAY_MS


def test_without_any_batch_all_is_the_stream_s() -> None:
    world = world_with_days(2)
    settle(world)
    world.take_back()
    world.take_back()
    world.route()
    world.check()
    assert world.snapshot is not None
    assert world.snapshot.time_boundary_ms == BEFORE_ALL


def test_a_row_of_a_wrong_time_in_a_batch_hides_nothing() -> None:
    world = world_with_days(3)
    expected = settle(world).time_boundary_ms
    wrong = world.batch("events_wrong", [])
    future_ms = NOW_MS + 400 * DAY_MS
    world.put(wrong.model_copy(update={"total_docs": 1, "start_time_ms": future_ms, "end_time_ms": future_ms}))
    assert settle(world).time_boundary_ms == expected


def test_a_table_that_becomes_hybrid_answers_both_parts_until_the_controller_has_a_boundary() -> None:
    world = world_with_days(3)
    world.view = TableView(
        TABLE, world.view.root.model_copy(update={"time_boundary_ms": None}), world.view.version, world.view.buckets
    )
    world.load_some(0)
    world.hear()
    world.route()
    assert world.snapshot is not None
    assert world.snapshot.time_boundary_ms is None
    assert settle(world).time_boundary_ms == FIRST_MS + 2 * DAY_MS


def test_a_table_that_is_no_longer_hybrid_loses_its_boundary() -> None:
    world = world_with_days(3)
    settle(world)
    ingestion = SPEC.ingestion.model_copy(update={"time_boundary": None})
    spec = SPEC.model_copy(update={"ingestion": ingestion})
    world.change(*boundary.decide(world.view, spec, None, NOW_MS))
    assert world.view.root.time_boundary_ms is None
    assert boundary.decide(world.view, spec, None, NOW_MS) == []
    assert not boundary.is_waiting(world.view, spec, NOW_MS)


def test_segments_of_both_parts_are_not_replaced_together() -> None:
    world = world_with_days(2)
    stream = next(one for one in world.view.stream_segments if not one.is_open)
    keys = (stream.key, SegmentKey(world.view.segments["events_0_0"].key.name, 1))
    start = StartReplacement(
        entry="mixed", segments_from={key.name: key.crc for key in keys}, segments_to=("x",), now_ms=NOW_MS
    )
    with pytest.raises(PreconditionError, match="cannot be replaced together"):
        world.change(start)


def test_what_takes_the_place_of_a_stream_s_segments_keeps_their_offsets() -> None:
    world = world_with_days(1)
    world.merge(0, of_stream=True)
    (merged,) = (one for one in world.view.visible.values() if one.name.startswith("sm"))
    assert merged.stream_offsets in {"0:0-7,1:0-7", "0:0-14", "1:0-14", "0:7-14,1:0-7"}
    settle(world)


def test_the_stream_s_segments_that_batches_took_over_go_at_their_age_and_no_others() -> None:
    world = world_with_days(4)
    settle(world)
    kept_for = SPEC.ingestion.model_copy(update={"time_boundary": TimeBoundarySpec(stream_retention="1d")})
    spec = SPEC.model_copy(update={"ingestion": kept_for})
    assert covered_by_batches(world.view, spec, world.now_ms) == (), "brokers may not have followed yet"
    gone = covered_by_batches(world.view, spec, world.now_ms + FOLLOWED_MS)
    assert gone
    world.change(RemoveSegments(gone))
    assert all(world.rows[f"{key.name}@{key.crc}"][-1][2] < FIRST_MS + 3 * DAY_MS for key in gone)
    assert settle(world).time_boundary_ms == FIRST_MS + 3 * DAY_MS
    assert covered_by_batches(world.view, SPEC, world.now_ms + FOLLOWED_MS) == (), (
        "a table without streamRetention keeps them"
    )
