"""A cluster in one thread and in virtual time: a stream, servers, a metastore, a deep store, and what befalls them.

The decisions are the product's own: the transactions, the replicas' state machine, the controller's decisions. Around
them everything is made up: messages come late, twice or not at all, servers freeze, die and are cut off, the stream
loses messages. One seed is one history. `Invariants` looks at every write and at every step of a replica.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.invariants import Invariants
from tests.simulation.rows import Row, content_crc, is_row, max_rows_of, pinned_of

from merlot.cluster.consuming import machine, transactions
from merlot.cluster.consuming.machine import Limits, Replica
from merlot.cluster.consuming.partitions import chains, open_segments, segment_after, stream_segment
from merlot.cluster.consuming.steps import (
    Action,
    Build,
    Commit,
    Download,
    Downloaded,
    Event,
    Failed,
    FileBuilt,
    HeldRows,
    Leave,
    MessageLost,
    Peers,
    Propose,
    Publish,
    Read,
    RowEnd,
    SegmentLookedUp,
    SegmentSwitched,
    Switch,
    TakeOver,
    Tick,
    Upload,
    Uploaded,
)
from merlot.cluster.consuming.transactions import SealedSegment
from merlot.cluster.records import AskedEnd, PositionRecord, RootRecord, SegmentRecord
from merlot.cluster.segments.draft import apply
from merlot.cluster.segments.mutations import Mutation, PreconditionError
from merlot.cluster.segments.view import TableView
from merlot.controller.placement.assignment import Servers
from merlot.controller.placement.moves import Situation
from merlot.controller.realtime.decisions import StreamSituation
from merlot.controller.realtime.decisions import decide as decide_stream
from merlot.ids import InstanceId, TableName
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

TABLE = TableName("t_OFFLINE")
SESSION_MS = 2_000
"""After this long in silence a server is taken for dead."""
GONE_MS = 8_000
"""After this long it loses its segments."""
BYTES_OF_ROW = 10
Decide = Callable[[TableView], Sequence[Mutation]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a history is made of; drawn from its seed."""

    num_servers: int
    replication: int
    num_partitions: int
    max_rows: int
    limits: Limits
    fault_rate: float
    """Share of requests and answers that are lost."""
    trouble_ms: int
    """How long there are faults; then everything heals."""

    @staticmethod
    def draw(dice: random.Random) -> Settings:
        num_servers = dice.choice((1, 2, 2, 3, 3))
        limits = Limits(
            max_bytes=dice.choice((60, 150, 10_000)),
            max_age_ms=dice.choice((2_000, 6_000, 1_000_000)),
            hold_ms=1_000,
            lost_hold_ms=30_000,
            seal_ms=dice.choice((1_000, 6_000)),
            max_retry_ms=2_000,
        )
        return Settings(
            num_servers=num_servers,
            replication=dice.randint(1, num_servers),
            num_partitions=dice.choice((1, 1, 2)),
            max_rows=dice.choice((4, 9, 20, 1000)),
            limits=limits,
            fault_rate=dice.choice((0.0, 0.1, 0.25)),
            trouble_ms=dice.choice((8_000, 20_000)),
        )


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Bugs, to see whether the simulation finds them."""

    commit: Callable[[TableView, SealedSegment], list[Mutation]] = transactions.commit
    drops_tail: bool = False


@dataclass
class Part:
    """A replica of a partition: its state, and the rows that the state counts."""

    replica: Replica
    target: int
    """What the stream had when it began."""
    rows: list[Row] = field(default_factory=list)


@dataclass
class Server:
    """A process, and how it is."""

    name: InstanceId
    parts: dict[int, Part] = field(default_factory=dict)
    sealed: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    """Files it has loaded, by segment."""
    life: int = 0
    """Grows when it starts anew: what an earlier life has begun has no effect."""
    is_up: bool = True
    frozen_until: int = 0
    cut_until: int = 0
    """Until then the metastore does not hear it."""
    silent_since: int = 0


class World:
    """One history. `run` plays it to its end; raises AssertionError where something is wrong."""

    def __init__(self, seed: int, planted: Planted | None = None) -> None:
        self.dice = random.Random(seed)
        self.settings = Settings.draw(self.dice)
        self.planted = planted or Planted()
        self.now = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.view = TableView(TABLE, RootRecord(epoch=1, num_buckets=1), 1, {})
        self.positions: dict[str, dict[InstanceId, PositionRecord]] = {}
        self.files: dict[str, tuple[Row, ...]] = {}
        self.is_store_away = False
        self.servers = {
            name: Server(name) for name in (InstanceId(f"s{number}") for number in range(self.settings.num_servers))
        }
        self.produced = dict.fromkeys(range(self.settings.num_partitions), 0)
        self.earliest = dict.fromkeys(range(self.settings.num_partitions), 0)
        self.spec = SPEC.model_copy(update={"replication": self.settings.replication})
        self.pinned = pinned_of(0, self.settings.max_rows)
        self.is_paused = False
        self.is_troubled = True
        self.invariants = Invariants(self.settings.num_partitions)

    # Time

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + delay_ms, next(self.numbers), act))

    def run_until(self, end_ms: int, is_done: Callable[[], bool] = lambda: False) -> None:
        look_at = 0
        while self.events and self.events[0][0] <= end_ms:
            self.now, _, act = heapq.heappop(self.events)
            act()
            if self.now >= look_at:
                look_at = self.now + 200
                if is_done():
                    return
        self.now = max(self.now, end_ms)

    def run(self) -> None:
        """Trouble, then healing; at the end all that was produced must be committed, once."""
        for server in self.servers.values():
            self.after(self.dice.randrange(200), partial(self.pump, server, server.life))
        self.after(0, self.control)
        self.after(0, self.produce)
        self.after(500, self.trouble)
        self.run_until(self.settings.trouble_ms)
        self.heal()
        self.run_until(self.now + 2_000)
        behind = sum(self.produced.values()) / self.settings.max_rows
        self.run_until(self.now + RECOVERY_MS + round(behind * PER_SEGMENT_MS), self.is_settled)
        assert self.is_settled(), f"not settled: {self.describe()}"
        self.invariants.check_end(self.view, self.files, self.produced, self.servers.values())

    def produce(self) -> None:
        for partition in self.produced:
            self.produced[partition] += self.dice.randrange(4)
        if self.is_troubled:
            self.after(500, self.produce)

    # What befalls it

    def chance(self, share: float) -> bool:
        return self.is_troubled and self.dice.random() < share

    def trouble(self) -> None:
        if not self.is_troubled:
            return
        server = self.dice.choice(list(self.servers.values()))
        until = self.now + self.dice.choice((300, 1_500, 3_000, 5_000))
        match self.dice.randrange(12):
            case 0 | 1:
                server.frozen_until = until
            case 2 | 3:
                server.cut_until = until
            case 4 | 5:
                self.kill(server)
                self.after(until - self.now, lambda: self.start(server))
            case 6:
                self.is_store_away = True
                self.after(until - self.now, self.bring_back_store)
            case 7:
                self.pinned = pinned_of(self.dice.randrange(3), self.settings.max_rows)
            case 8:
                self.is_paused = not self.is_paused
            case 9:
                self.ask_to_end()
            case 10:
                partition = self.dice.choice(list(self.produced))
                lost = self.dice.randrange(self.earliest[partition], self.produced[partition] + 1)
                self.earliest[partition] = lost if self.dice.random() < 0.3 else self.earliest[partition]
            case _:
                pass
        self.after(self.dice.randrange(100, 1_000), self.trouble)

    def heal(self) -> None:
        self.is_troubled = self.is_paused = self.is_store_away = False
        for server in self.servers.values():
            server.frozen_until = server.cut_until = 0
            if not server.is_up:
                self.start(server)

    def kill(self, server: Server) -> None:
        """Its memory is gone; files that it had loaded stay on its disk."""
        server.is_up = False
        server.life += 1
        server.parts = {}
        server.silent_since = self.now
        self.invariants.forget(server.name)

    def start(self, server: Server) -> None:
        if not server.is_up:
            server.is_up = True
            self.pump(server, server.life)

    def bring_back_store(self) -> None:
        self.is_store_away = False

    def is_live(self, server: Server) -> bool:
        """Whether the metastore has its pulse."""
        silent_ms = 0
        if not server.is_up:
            silent_ms = self.now - server.silent_since
        hidden_until = max(server.frozen_until, server.cut_until)
        return silent_ms < SESSION_MS and hidden_until - self.now < SESSION_MS

    # The metastore

    def transact(self, decide: Decide) -> None:
        """Apply what is decided on the view as it is: a compare-and-set that is repeated until it holds."""
        changed = apply(self.view, decide(self.view))
        if changed is None:
            return
        before = self.view
        root = before.root.model_copy(update={"epoch": before.epoch + 1})
        self.view = TableView(TABLE, root, before.version + 1, {**before.buckets, **changed.buckets})
        self.invariants.check_write(before, self.view, self.files, self.earliest)
        self.wake()

    def wake(self) -> None:
        for server in self.servers.values():
            if not self.chance(0.1):  # else it learns of it when it looks by itself
                self.after(self.dice.randrange(1, 400), partial(self.look, server))
            if self.chance(0.1):
                self.after(self.dice.randrange(1, 3_000), partial(self.look, server))

    def ask_to_end(self) -> None:
        self.transact(lambda view: transactions.ask_to_end(view, None, AskedEnd.FORCE, self.now))

    def control(self) -> None:
        """The controller's loop: one decision a round."""
        self.after(400, self.control)
        if self.chance(0.3):
            return
        live = frozenset(server.name for server in self.servers.values() if self.is_live(server))
        gone = frozenset(
            server.name
            for server in self.servers.values()
            if not server.is_up and self.now - server.silent_since >= GONE_MS
        )
        situation = StreamSituation(
            table=Situation(
                spec=self.spec,
                servers=Servers(live=live, gone=gone),
                now_ms=self.now,
                loaded={server.name: self.reported(server) for server in self.servers.values()},
            ),
            pinned=self.pinned,
            starts=dict.fromkeys(self.produced, 0),
            is_paused=self.is_paused,
            positions=self.positions,
        )
        self.transact(lambda view: decide_stream(view, situation))
        opened = {record.name for record in open_segments(self.view).values()}
        self.positions = {name: found for name, found in self.positions.items() if name in opened}

    def reported(self, server: Server) -> frozenset[str]:
        return frozenset({part.replica.record.key_text for part in server.parts.values()})

    # A server

    def pump(self, server: Server, life: int) -> None:
        """Its threads: look, read, tick, again and again."""
        if server.life != life or not server.is_up:
            return
        if server.frozen_until > self.now:
            self.after(server.frozen_until - self.now, lambda: self.pump(server, life))
            return
        if self.dice.random() < 0.2 or not server.parts:
            self.look(server)
        for part in list(server.parts.values()):
            self.give(server, part, self.read(part) if machine.may_read(part.replica) else Tick())
        self.after(self.dice.randrange(100, 700), lambda: self.pump(server, life))

    def hears(self, server: Server) -> bool:
        return server.is_up and max(server.frozen_until, server.cut_until) <= self.now

    def look(self, server: Server) -> None:
        """Read the tree, the positions and who lives."""
        if not self.hears(server):
            return
        view = self.view
        for number, record in open_segments(view).items():
            if number not in server.parts and server.name in view.servers_of(record.name):
                replica = machine.start(server.name, record, self.settings.limits, self.now)
                server.parts[number] = Part(replica, target=self.produced[number])
        busy = {part.replica.record.name for part in server.parts.values()}
        for record in view.stream_segments:
            is_mine = not record.is_open and server.name in view.servers_of(record.name)
            if is_mine and record.name not in server.sealed and record.name not in busy and not self.is_store_away:
                server.sealed[record.name] = self.files[record.url]
        for part in list(server.parts.values()):
            self.give(server, part, self.seen(server, part, view))
            self.give(server, part, self.peers(part))

    def seen(self, server: Server, part: Part, view: TableView) -> SegmentLookedUp:
        at = part.replica.record
        chain = chains(view.stream_segments).get(at.partition, {})
        is_assigned = bool(chain) and server.name in view.servers_of(chain[max(chain)].name)
        return SegmentLookedUp(
            segment=at.name,
            epoch=view.epoch,
            record=stream_segment(view, at.name),
            following=segment_after(chain, at.sequence),
            is_assigned=is_assigned,
        )

    def peers(self, part: Part) -> Peers:
        name = part.replica.record.name
        assigned = frozenset(self.view.servers_of(name))
        live = frozenset(one for one in assigned if self.is_live(self.servers[one]))
        return Peers(name, dict(self.positions.get(name, {})), assigned, live)

    def read(self, part: Part) -> Event:
        """Poll a few messages and append those that are rows."""
        held, record = part.replica.held, part.replica.record
        if held.offset < self.earliest[record.partition]:
            return MessageLost(record.name, self.earliest[record.partition])
        stop = min(self.produced[record.partition], held.offset + self.dice.randrange(1, 9))
        settings = part.replica.settings
        part.rows += [(offset, settings) for offset in range(held.offset, stop) if is_row(settings, offset)]
        return Read(record.name, held_of(part, stop, settings), has_caught_up=stop >= part.target)

    def give(self, server: Server, part: Part, event: Event) -> None:
        """Step the replica, and carry out what it asks for, sooner or later."""
        number = part.replica.record.partition
        if server.parts.get(number) is not part:
            return
        part.replica, actions = machine.step(part.replica, event, self.now)
        self.invariants.check_answer(server.name, part.replica, part.rows, server.sealed, self.view)
        for action in actions:
            delay_ms = self.dice.randrange(1, 300) if self.dice.random() < 0.9 else self.dice.randrange(1, 5_000)
            self.after(delay_ms, partial(self.carry_out, server, server.life, part, action))

    def carry_out(self, server: Server, life: int, part: Part, action: Action) -> None:
        """One action, of which the request or the answer may be lost; the server may freeze or die before or after."""
        if server.life != life:
            return
        if self.chance(0.03):
            server.frozen_until = max(server.frozen_until, self.now + self.dice.choice((1_000, 4_000, 8_000)))
        if server.frozen_until > self.now:
            self.after(server.frozen_until - self.now, lambda: self.carry_out(server, life, part, action))
            return
        if not machine.is_wanted(part.replica, action):
            return
        if self.chance(self.settings.fault_rate):
            if self.chance(0.5):  # it gives up waiting, but the request is on its way
                self.after(self.dice.randrange(500, 6_000), partial(self.arrive_late, server, part, action))
            self.give(server, part, Failed(action))
            return
        dies_before, dies_after = self.chance(0.01), self.chance(0.01)
        answer = None if dies_before else self.answer(server, part, action)
        if dies_before or dies_after:
            self.kill(server)
            self.after(self.dice.randrange(100, 4_000), partial(self.start, server))
            return
        if self.chance(self.settings.fault_rate / 2) and not isinstance(action, Switch):
            self.give(server, part, Failed(action))
            return
        if answer is not None:
            self.give(server, part, answer)
        if answer is not None and self.chance(0.05) and not isinstance(action, Switch):
            late = answer
            self.after(self.dice.randrange(1, 3_000), lambda: self.give(server, part, late))

    def arrive_late(self, server: Server, part: Part, action: Action) -> None:
        """A write whose sender has long given up on it, if it lives at all."""
        if isinstance(action, Propose | TakeOver | Commit):
            with suppress(PreconditionError):
                self.apply(server, action)

    def answer(self, server: Server, part: Part, action: Action) -> Event | None:
        """What comes of an action."""
        match action:
            case Build():
                rows = head_of(part, action.end_offset)
                return FileBuilt(action.segment, content_crc(rows), len(rows))
            case Switch():
                return self.switch(server, part, action)
            case Leave():
                server.parts.pop(part.replica.record.partition, None)
                self.invariants.forget(server.name)
                return None
            case Upload():
                if self.is_store_away:
                    return Failed(action)
                url = f"{action.segment}.{next(self.numbers)}"
                end = part.replica.record.end_offset
                assert end is not None
                self.files[url] = head_of(part, end)
                return Uploaded(action.segment, url)
            case Download():
                if self.is_store_away:
                    return Failed(action)
                server.sealed[action.record.name] = self.files[action.record.url]
                return Downloaded(action.record.name)
            case _:
                return self.write(server, part, action)

    def write(self, server: Server, part: Part, action: Action) -> Event:
        """What goes to the metastore; the answer tells the truth after it."""
        if not self.hears(server):
            return Failed(action)
        try:
            if isinstance(action, Publish):
                self.positions.setdefault(action.position.segment, {})[server.name] = action.position
                self.wake()
                return self.peers(part)
            self.apply(server, action)
        except PreconditionError:
            return Failed(action)
        return self.seen(server, part, self.view)

    def apply(self, server: Server, action: Action) -> None:
        """A transaction that has reached the metastore."""
        match action:
            case Propose(end=end):
                self.transact(lambda view: transactions.propose_end(view, end))
            case TakeOver(segment=segment, old=old):
                new, now = server.name, self.now
                self.transact(lambda view: transactions.replace_sealer(view, segment, old=old, new=new, now_ms=now))
            case Commit():
                sealed = self.sealed_by(server, action)
                self.transact(lambda view: self.planted.commit(view, sealed))

    def sealed_by(self, server: Server, action: Commit) -> SealedSegment:
        file = None
        if action.url is not None:
            rows = self.files[action.url]
            file = SegmentRecord(
                name=action.segment, crc=action.crc, size_bytes=1, url=action.url, total_docs=len(rows)
            )
        return SealedSegment(
            segment=action.segment,
            start_offset=action.start_offset,
            end_offset=action.end_offset,
            file=file,
            sealer=server.name,
            now_ms=self.now,
        )

    def switch(self, server: Server, part: Part, action: Switch) -> SegmentSwitched:
        old, new = part.replica.record, action.record
        if action.keep:
            assert old.end_offset is not None
            server.sealed[old.name] = head_of(part, old.end_offset)
        settings = part.replica.settings
        offset = part.replica.held.offset if action.carry else new.start_offset
        tail = [row for row in part.rows if row[0] >= new.start_offset] if action.carry else []
        part.rows = [] if self.planted.drops_tail else tail
        return SegmentSwitched(new, held_of(part, offset, new.pinned or settings))

    # The end

    def is_settled(self) -> bool:
        """All that was produced is committed. Asks for it, where it is not."""
        opened = open_segments(self.view)
        if opened.keys() != self.produced.keys():
            return False
        behind = {number for number, one in opened.items() if one.start_offset < self.produced[number]}
        readers = [part for server in self.servers.values() for part in server.parts.values()]
        has_read = all(part.replica.held.offset >= self.produced[part.replica.record.partition] for part in readers)
        asking = {number for number in behind if not opened[number].asked_end}
        if asking and has_read and readers:
            self.transact(lambda view: transactions.ask_to_end(view, asking, AskedEnd.FORCE, self.now))
        if behind:
            return False
        held = {(server.name, number) for server in self.servers.values() for number in server.parts}
        wanted = {(server, number) for number, one in opened.items() for server in self.view.servers_of(one.name)}
        is_following = all(part.replica.record.name == opened[part.replica.record.partition].name for part in readers)
        return held == wanted and is_following and self.has_loaded()

    def has_loaded(self) -> bool:
        return all(
            record.name in self.servers[name].sealed
            for record in self.view.stream_segments
            if not record.is_open
            for name in self.view.servers_of(record.name)
        )

    def describe(self) -> str:
        """Where everybody is."""
        lines = [
            f"{one.name}:{one.status}[{one.start_offset},{one.end_offset}) {one.sealer} {one.asked_end}"
            for one in self.view.stream_segments[-3:]
        ]
        for server in self.servers.values():
            for number, part in server.parts.items():
                replica = part.replica
                place = f"{server.name}/{number}:{replica.phase}@{replica.held.offset} of {replica.record.sequence}"
                lines.append(f"{place} doing={replica.doing}")
        return f"{lines} produced={self.produced} earliest={self.earliest}"


RECOVERY_MS = 60_000
"""So long after the last fault all that was produced must be committed: leases, holds and retries, some of each."""
PER_SEGMENT_MS = 3_000
"""Longer, if so much is left to commit: segments of a partition are committed one after another."""
SPEC = TableSpec(table_schema=TableSchema(fields=(FieldSpec(name="a", type=TypeName.INT),)))


def head_of(part: Part, end_offset: int) -> tuple[Row, ...]:
    return tuple(row for row in part.rows if row[0] < end_offset)


def held_of(part: Part, offset: int, settings: str) -> HeldRows:
    limit = max_rows_of(settings)
    row_end = RowEnd(part.rows[limit - 1][0] + 1, limit) if limit and len(part.rows) >= limit else None
    return HeldRows(offset=offset, docs=len(part.rows), num_bytes=len(part.rows) * BYTES_OF_ROW, row_end=row_end)
