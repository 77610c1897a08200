"""However views and reports reach a broker while segments replace each other, each row is routed exactly once."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import NEW_SEGMENT_MS, RoutingInputs, RoutingSnapshot, build
from merlot.cluster.records import LineageRecord, LineageState, RootRecord, SegmentRecord
from merlot.cluster.segments.transaction import (
    Assign,
    EndReplacement,
    ForgetReplacement,
    Mutation,
    PreconditionError,
    PutOutputs,
    PutSegments,
    RemoveSegments,
    RevertReplacement,
    StartReplacement,
    apply,
)
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import is_held
from merlot.ids import InstanceId, TableName

TABLE = TableName("flights_OFFLINE")
NOW_MS = 1_700_000_000_000
A, B = (InstanceId(f"Server_host_{port}") for port in (1, 2))
SERVERS = (A, B)


class Table:
    """Shared state as writers and servers make it: every epoch's view, and who has loaded what. Each segment version
    has rows, numbered for ever."""

    def __init__(self, *, is_whole: bool) -> None:
        self.is_whole = is_whole
        self.views = [TableView(TABLE, RootRecord(num_buckets=1), 0, {})]
        self.reports: list[dict[InstanceId, frozenset[str]]] = [dict.fromkeys(SERVERS, frozenset())]
        self.read_at = [0]
        """The view at the time of each report."""
        self.rows: dict[str, frozenset[int]] = {}
        self.entries: dict[str, LineageRecord] = {}
        self.outputs: dict[str, list[SegmentRecord]] = {}
        self.gone: set[int] = set()
        """Rows that somebody removed, or that a replacement may add: nobody has to see them."""
        self.now_ms = NOW_MS
        self._next = 0

    @property
    def view(self) -> TableView:
        return self.views[-1]

    def number(self) -> int:
        self._next += 1
        return self._next

    def new(self, rows: Iterable[int], name: str | None = None) -> SegmentRecord:
        """A version of a segment that holds these rows."""
        found = frozenset(rows)
        record = SegmentRecord(
            name=name or f"s{self.number()}",
            crc=self.number(),
            size_bytes=1,
            url="u",
            total_docs=len(found),
            push_time_ms=self.now_ms,
        )
        self.rows[str(record.key)] = found
        return record

    def rows_of(self, records: Iterable[SegmentRecord]) -> set[int]:
        return {row for record in records for row in self.rows[str(record.key)]}

    def write(self, *mutations: Mutation) -> bool:
        try:
            changed = apply(self.view, mutations)
        except PreconditionError:
            return False
        if changed is not None:
            root = self.view.root.model_copy(update={"epoch": self.view.epoch + 1, "lineage": dict(changed.lineage)})
            buckets = {
                **self.view.buckets,
                **{n: replace(b, content_id=str(root.epoch)) for n, b in changed.buckets.items()},
            }
            view = TableView(TABLE, root, root.epoch, buckets)
            self.views.append(view)
            unassigned = {name: SERVERS for name in view.segments if not view.servers_of(name)}
            if unassigned:
                self.write(Assign(unassigned))
        return True

    def load(self, server: InstanceId, pick: int) -> None:
        """The server loads some of what it should have and, once it has that, drops some of what it should not."""
        held = self.reports[-1][server]
        wanted = {str(record.key) for record in self.view.segments.values()}
        is_done = wanted <= held
        kept = {key for place, key in enumerate(sorted(held - wanted)) if pick >> place & 1 or not is_done}
        fresh = {key for place, key in enumerate(sorted(wanted - held)) if pick >> place & 1}
        self.read_at.append(len(self.views) - 1)
        self.reports.append({**self.reports[-1], server: frozenset(held & wanted | kept | fresh)})

    def step(self, kind: str, pick: int, pick2: int) -> None:
        self.now_ms += 1
        match kind:
            case "append":
                self.write(PutSegments((self.new([self.number() for _ in range(1 + pick % 3)]),)))
            case "refresh" | "publish" | "delete" | "start":
                self._change(kind, pick, pick2)
            case "put" | "end" | "revert" | "forget" | "again":
                live = sorted(self.view.lineage)
                if live:
                    self._go_on(kind, live[pick % len(live)])
            case "load":
                self.load(SERVERS[pick % 2], pick2)
            case "wait":
                self.now_ms += pick * NEW_SEGMENT_MS // 40

    def _change(self, kind: str, pick: int, pick2: int) -> None:
        visible = sorted(self.view.visible.values(), key=lambda one: one.name)
        free = [one for one in visible if not is_held(one, self.view.lineage)]
        old = free[pick % len(free)] if free else None
        if kind == "start":
            self._start(free, pick, pick2)
        elif kind == "publish":
            self._publish(free, pick, pick2)
        elif kind == "refresh" and old is not None:
            self.write(PutSegments((self.new(self.rows[str(old.key)], old.name),)))
        elif old is not None and self.write(RemoveSegments((old.key,))):
            self.gone |= self.rows_of([old])

    def _go_on(self, kind: str, entry: str) -> None:
        match kind:
            case "put":
                self.write(PutOutputs(entry, tuple(self.outputs[entry])))
            case "end":
                self.write(EndReplacement(entry=entry, details=self.entries[entry], now_ms=self.now_ms))
            case "revert":
                self.write(RevertReplacement(entry=entry, details=self.entries[entry], now_ms=self.now_ms))
            case "forget":
                self.write(ForgetReplacement(entry))
            case "again":
                self._start_again(entry)

    def _publish(self, free: list[SegmentRecord], pick: int, pick2: int) -> None:
        """Some segments go, in the same stroke as their rows come in others: new ones, or new versions of old ones."""
        old = some(free, pick)
        rows = sorted(self.rows_of(old))
        if not old:
            return
        half = pick2 % (len(rows) + 1)
        kept = old[0].name if pick2 % 2 else None
        new = [self.new(rows[:half], kept), self.new(rows[half:])]
        if not self.is_whole:
            kept = None  # rows move to a segment that stays only in tables that are pushed as a whole
        gone = [record.key for record in old if record.name != kept]
        self.write(PutSegments(tuple(new)), RemoveSegments(tuple(gone)))

    def _start(self, free: list[SegmentRecord], pick: int, pick2: int) -> None:
        old = some(free, pick)
        rows = sorted(self.rows_of(old))
        new = []
        if pick2 % 5 or not old:
            half = pick2 % (len(rows) + 1)
            extra = [self.number()] if pick2 % 3 == 0 or not old else []
            new = [self.new([*rows[:half], *extra]), self.new(rows[half:])]
            self.gone |= set(extra)
        entry = f"e{self.number()}"
        if self._begin(entry, old, new):
            if not new:
                self.gone |= set(rows)
            self.outputs[entry] = new

    def _begin(self, entry: str, old: Sequence[SegmentRecord], new: Sequence[SegmentRecord], *before: Mutation) -> bool:
        names = tuple(one.name for one in new)
        self.entries[entry] = LineageRecord(
            created_ms=self.now_ms, segments_from=tuple(one.name for one in old), segments_to=names
        )
        start = StartReplacement(
            entry=entry, segments_from={one.name: one.crc for one in old}, segments_to=names, now_ms=self.now_ms
        )
        return self.write(*before, start)

    def _start_again(self, entry: str) -> None:
        """A task that failed comes back under the same id, with outputs of the same names and other versions."""
        if self.view.lineage[entry].state is LineageState.REVERTED:
            old = [self.view.segments[name] for name in self.entries[entry].segments_from if name in self.view.segments]
            is_same = self.rows_of(old) - self.gone == self.rows_of(self.outputs[entry]) - self.gone
            if not is_same or len(old) < len(self.entries[entry].segments_from):
                return
            new = [self.new(self.rows[str(one.key)], one.name) for one in self.outputs[entry]]
            if self._begin(entry, old, new, ForgetReplacement(entry)):
                self.outputs[entry] = new


def some(records: Sequence[SegmentRecord], pick: int) -> list[SegmentRecord]:
    """Up to three of them, by a number."""
    return [record for place, record in enumerate(records) if pick >> place & 1][:3]


class Broker:
    """Sees views and reports as late as the steps make it, in the order in which it reads them."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.snapshot: RoutingSnapshot | None = None
        self._view = self._reports = 0

    def look(self, pick: int) -> None:
        """Read reports, then the view: each may be behind, never goes back, and the view is not older."""
        table = self.table
        self._reports += pick % (len(table.reports) - self._reports)
        self._view = max(self._view, table.read_at[self._reports])
        self._view += (pick // 7) % (len(table.views) - self._view)
        inputs = RoutingInputs(
            view=table.views[self._view],
            reports=table.reports[self._reports],
            standings=dict.fromkeys(SERVERS, ServerStanding.PREFERRED),
            now_ms=table.now_ms,
            is_whole=table.is_whole,
        )
        before = self.snapshot
        self.snapshot = build(inputs, before)
        self._check(self.snapshot, before, inputs)

    def restart(self) -> None:
        """A new process reads what is there now."""
        self.snapshot = None
        self._view, self._reports = len(self.table.views) - 1, len(self.table.reports) - 1

    def _check(self, snapshot: RoutingSnapshot, before: RoutingSnapshot | None, inputs: RoutingInputs) -> None:
        rows = self._routed(snapshot)
        twice = [row for row, count in rows.items() if count > 1]
        assert not twice, f"rows are routed twice rows={twice}"
        due = set(self._routed(before)) if before is not None else self._due(inputs)
        lost = due - self.table.gone - rows.keys()
        assert not lost, f"rows are routed no more rows={lost}"
        settled = {one for one, mark in inputs.view.lineage.items() if mark.state is LineageState.COMPLETED}
        if not snapshot.swaps and not snapshot.pending and snapshot.completed == settled:
            assert set(snapshot.segments) == set(inputs.view.visible)

    def _routed(self, snapshot: RoutingSnapshot) -> Counter[int]:
        return Counter(row for one in snapshot.segments.values() for row in self.table.rows[one.key])

    def _due(self, inputs: RoutingInputs) -> set[int]:
        """What a broker that starts must route, or miss aloud: all but segments that may be new."""
        reported = set().union(*inputs.reports.values())
        old_enough = inputs.now_ms - NEW_SEGMENT_MS
        due = [
            one
            for one in inputs.view.visible.values()
            if str(one.key) in reported or max(one.push_time_ms, one.refresh_time_ms) <= old_enough
        ]
        return self.table.rows_of(due)


KINDS = ["append", "append", "refresh", "publish", "delete", "start", "start", "put", "put", "end", "end", "revert"]
KINDS += ["forget", "again", "load", "load", "load", "load", "wait", "look", "look", "look", "look", "restart"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 63), st.integers(0, 255)), min_size=10, max_size=80)


def play(steps: Iterable[tuple[str, int, int]], *, is_whole: bool) -> int:
    """How many replacements of the lineage the broker switched on the way."""
    table = Table(is_whole=is_whole)
    broker = Broker(table)
    num_switched = 0
    for kind, pick, pick2 in steps:
        before = broker.snapshot
        if kind == "look":
            broker.look(pick * 256 + pick2)
        elif kind == "restart":
            broker.restart()
        else:
            table.step(kind, pick, pick2)
        if before is not None and broker.snapshot is not None:
            num_switched += len(before.completed ^ broker.snapshot.completed)
    return num_switched


@given(STEPS, st.booleans())
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
def test_each_row_is_routed_exactly_once_whatever_arrives_when(
    steps: list[tuple[str, int, int]], is_whole: bool
) -> None:
    play(steps, is_whole=is_whole)


def test_each_row_is_routed_exactly_once_in_long_random_histories() -> None:
    choice = random.Random(20_211_101)
    num_switched = 0
    for _ in range(400):
        length = choice.randint(20, 150)
        steps = [(choice.choice(KINDS), choice.randrange(64), choice.randrange(256)) for _ in range(length)]
        num_switched += play(steps, is_whole=choice.random() < 0.5)
    assert num_switched > 100
