"""A table whose rows replace each other while something is broken, and a dict that says which of them are there.

Rows know their partition and their place in it. What an answer shows of a partition has to be what the dict had after
some row: never a key twice, never one that is missing (Pinot's #7971), never one that came back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tests.contracts.streams.kafka_brokers import KafkaBrokers
from tests.e2e.pods.lasting_producer import LastingProducer
from tests.faults.stream_watch import reasons_of
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.unit.upsert.oracle import Newest, Oracle

from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot, build
from merlot.clock import SystemClock
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.segments.view import load
from merlot.errors import MerlotError
from merlot.ids import InstanceId, offline
from merlot.metastore.protocol import Metastore
from merlot.query.plan.binding import bind
from merlot.spec.table import Table
from merlot.sql.parse import parse
from merlot.testing.patience import PATIENCE_S
from merlot.tree.tree_json import to_json
from merlot.wire.client import TcpChannel
from merlot.wire.messages import ServerRequest

NUM_PARTITIONS = 4
NUM_KEYS = 40
"""Of a partition. Some are drawn so rarely that they are dead when they come again."""
TTL = 1500
BOARD = "board"
SHOWN = "SELECT part, seq, amount FROM {table} LIMIT 1000000"
SUMS = "SELECT part, COUNT(*), SUM(seq), MIN(seq), MAX(seq) FROM {table} GROUP BY part LIMIT 100"
WITH_DELETED = f"SET skipUpsertDelete = true; {SHOWN}"
STORED = f"SET skipUpsert = true; {SHOWN}"
TOLD = ("numServersResponded", "numSegmentsQueried", "numConsumingSegmentsQueried", "totalDocs")
ALIVE = np.iinfo(np.int64).max
Seqs = NDArray[np.int64]


@dataclass(frozen=True)
class Event:
    """A row: what it is of, when it happened, and whether it deletes its key."""

    key: int
    version: int
    is_deleted: bool
    amount: int


class Ledger:
    """What the rows of a partition come to, one after the other: from where until where each of them is shown."""

    def __init__(self, oracle: Oracle, *, adds: bool = False) -> None:
        """adds: mode PARTIAL, where a row's amount is added to that of the row that it replaces."""
        self._oracle = oracle
        self._adds = adds
        self._amounts: list[int] = []
        self._died: list[int] = []
        """The row that took each one's place, or itself if it was never valid."""
        self._deletes: list[bool] = []
        self._is_stored: list[bool] = []

    def change_ttl(self, ttl: float) -> None:
        self._oracle.change(ttl)

    def add(self, event: Event) -> None:
        seq = len(self._died)
        before = self._before(event)
        is_stored = self._oracle.add(event.key, event.version, event.is_deleted, (0, seq))
        if before is not None and before.place not in self._oracle.valid and self._died[before.place[1]] == ALIVE:
            self._died[before.place[1]] = seq
            is_merged = self._adds and not before.is_deleted and not event.is_deleted
            self._amounts.append(event.amount + (self._amounts[before.place[1]] if is_merged else 0))
        else:
            self._amounts.append(event.amount)
        self._died.append(ALIVE if (0, seq) in self._oracle.valid else seq)
        self._deletes.append(self._oracle.valid.get((0, seq), event.is_deleted))
        self._is_stored.append(is_stored)

    def _before(self, event: Event) -> Newest | None:
        """The row of its key, dead or alive."""
        return self._oracle.newest.get(event.key)

    def amounts(self) -> list[int]:
        """As each row is stored."""
        return self._amounts

    def shown(self, num_rows: int | None = None, *, with_deleted: bool = False) -> Seqs:
        """The rows that are there after so many; after all if none are said."""
        stop = len(self._died) if num_rows is None else num_rows
        is_there = np.array(self._died[:stop], np.int64) >= stop
        if not with_deleted:
            is_there &= ~np.array(self._deletes[:stop], np.bool_)
        return np.flatnonzero(is_there)

    def stored(self) -> Seqs:
        """All that were not dropped."""
        return np.flatnonzero(np.array(self._is_stored, np.bool_))

    def shows(self, matches: Any, newest: int) -> bool:
        """Whether what was shown is what was there at some moment, of which the newest row shown is known."""
        for stop in range(newest + 1, len(self._died) + 1):
            if matches(self.shown(stop)):
                return True
            if newest >= 0 and self._died[newest] < stop:
                return False
            if stop > newest + 200:
                return False
        return newest < 0 and matches(np.zeros(0, np.int64))


class Topic(Protocol):
    """Where rows are written to."""

    def append(self, partition: int, lines: Sequence[str]) -> None: ...

    def settle(self) -> None:
        """Until all of it is there."""
        ...


class FileTopic:
    """Files of a folder; knows where each line begins."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / str(number) / "rows.json" for number in range(NUM_PARTITIONS)]
        self._starts: list[list[int]] = [[] for _ in self._files]
        self._ends = [0] * NUM_PARTITIONS
        for file in self._files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    def append(self, partition: int, lines: Sequence[str]) -> None:
        for line in lines:
            self._starts[partition].append(self._ends[partition])
            self._ends[partition] += len(line) + 1
        with self._files[partition].open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def row_at(self, partition: int, offset: int) -> int:
        """The first row that begins there or behind it."""
        return bisect_left(self._starts[partition], offset)

    def settle(self) -> None:
        """All of it is there already."""


class KafkaTopic:
    """A topic of Kafka; its producer is idempotent and never gives up."""

    def __init__(self, brokers: KafkaBrokers, topic: str) -> None:
        brokers.create_topic(topic, NUM_PARTITIONS)
        self._producer = LastingProducer({"bootstrap.servers": brokers.servers, "log_level": 0}, topic, NUM_PARTITIONS)

    def append(self, partition: int, lines: Sequence[str]) -> None:
        self._producer.send_all(partition, lines)

    def settle(self) -> None:
        assert self._producer.flush(PATIENCE_S)


def board_manifest(
    topic: Path | str,
    *,
    flush_rows: int,
    replication: int,
    upsert: dict[str, Any],
    properties: Any = None,
    name: str = BOARD,
) -> Table:
    """The table of a folder's rows, or of those of a topic of Kafka."""
    stream: dict[str, Any] = {"type": "files", "topic": str(topic), "flush": {"rows": flush_rows, "age": "1h"}}
    if properties is not None:
        stream |= {"type": "kafka", "properties": properties}
    fields = [{"name": name, "type": "LONG"} for name in ("part", "seq", "id", "version", "amount")]
    modulo = {"functionName": "Modulo", "numPartitions": NUM_PARTITIONS}
    return Table.model_validate(
        {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "Table",
            "metadata": {"name": name},
            "spec": {
                "schema": {"fields": [*fields, {"name": "gone", "type": "BOOLEAN"}], "primaryKey": ["id"]},
                "indexing": {"bloom": ["id"], "inverted": ["amount"], "noDictionary": ["seq"]},
                "partitioning": {"columns": {"id": modulo}},
                "ingestion": {"stream": stream},
                "replication": replication,
                "upsert": upsert,
            },
        }
    )


def upsert_spec(ttl: int | None = TTL, **spec: Any) -> dict[str, Any]:
    """How rows replace each other."""
    found = {"mode": "FULL", "comparisonColumns": ["version"], "deleteRecordColumn": "gone", **spec}
    return found if ttl is None else found | {"primaryKeyTtl": str(ttl)}


class Rows:
    """Random rows of few keys: out of order, tied, twice, deleting, dead when they come again."""

    def __init__(self, topic: Topic, draw: random.Random) -> None:
        self._topic = topic
        self._draw = draw
        self.events: list[list[Event]] = [[] for _ in range(NUM_PARTITIONS)]

    @property
    def num_rows(self) -> int:
        return sum(map(len, self.events))

    def append(self, partition: int, count: int) -> None:
        """So many more of a partition."""
        events, draw = self.events[partition], self._draw
        lines = []
        for seq in range(len(events), len(events) + count):
            if events and draw.random() < 0.05:
                event = draw.choice(events[-20:])
            else:
                number = min(int(draw.expovariate(0.15)), NUM_KEYS - 1)
                version = max(0, seq - draw.choice((0, 0, 0, 0, 0, 1, 30, 2 * TTL)))
                key = number * NUM_PARTITIONS + partition
                event = Event(key, version, draw.random() < 0.04, draw.randrange(1000))
            events.append(event)
            row = {"part": partition, "seq": seq, "id": event.key, "version": event.version, "amount": event.amount}
            row["gone"] = event.is_deleted
            lines.append(json.dumps(row))
        self._topic.append(partition, lines)


@dataclass
class UpsertWatcher:
    """Asks while things happen. An answer with an exception says of itself that it is not whole."""

    cluster: ClusterProcesses
    rows: Rows
    ledgers: list[Ledger]
    draw: random.Random
    rows_per_s: int = 400
    num_answers: int = 0
    num_flagged: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    num_late: int = 0
    wrong: list[str] = field(default_factory=list)
    is_stopping: bool = False
    _told: dict[str, Any] = field(default_factory=dict)
    """Of the last answer."""

    async def append(self) -> None:
        """Rows at a constant rate, over all partitions in turn; the ledger has them first."""
        partition = 0
        while not self.is_stopping:
            self.add(partition, self.rows_per_s // 20)
            partition = (partition + 1) % NUM_PARTITIONS
            await asyncio.sleep(0.05)

    def add(self, partition: int, count: int) -> None:
        events = self.rows.events[partition]
        before = len(events)
        self.rows.append(partition, count)
        for event in events[before:]:
            self.ledgers[partition].add(event)

    async def ask(self) -> None:
        """What is shown was there at some moment, in each partition."""
        while not self.is_stopping:
            for sql in (SHOWN, SUMS):
                found = await self.answer(sql)
                if found is not None and (wrong := self.check(sql, found)):
                    self.wrong += [f"answer {self.num_answers}: {one} {self._told}" for one in wrong]
                    print(self.wrong[-1], flush=True)
            await asyncio.sleep(0.02)

    async def ask_late(self) -> None:
        """As brokers ask that stood still: servers as they are now, by any route that was ever to be taken."""
        snapshot: RoutingSnapshot | None = None
        routes: dict[tuple[InstanceId, tuple[str, ...]], None] = {}
        with self.cluster.metastore() as metastore:
            while not self.is_stopping:
                await asyncio.sleep(0.1)
                with contextlib.suppress(MerlotError):  # ZooKeeper may be gone: the old ones can be asked still
                    snapshot = await asyncio.to_thread(_routed, metastore, snapshot)
                    if not snapshot.unavailable:  # what lacks a segment is told so by the broker, not by servers
                        routes |= {(one.instance, one.segments): None for turn in snapshot.turns for one in turn}
                if routes:
                    await self._ask_by(*self.draw.choice(list(routes)))

    async def _ask_by(self, instance: InstanceId, keys: tuple[str, ...]) -> None:
        channel = TcpChannel("127.0.0.1", int(instance.rpartition("_")[2]))
        try:
            found = await asked(channel, BOARD, keys, SHOWN.format(table=BOARD))
        finally:
            await channel.close()
        if found is not None:
            self.num_late += 1
            self.wrong += [f"late answer of {instance} by {keys}: {one}" for one in self.check(SHOWN, found)]

    def check(self, sql: str, found: Sequence[Sequence[int]]) -> list[str]:
        """What is wrong with an answer."""
        if sql == SUMS:
            by_part = {int(part): tuple(map(int, sums)) for part, *sums in found}
            return [
                f"partition {part} of {len(self.rows.events[part])}: count, sum, min, max are {by_part[part]}"
                for part in by_part
                if not self.ledgers[part].shows(
                    lambda seqs, part=part: sums_of(seqs) == by_part[part], by_part[part][3]
                )
            ]
        shown: dict[int, list[int]] = {}
        for part, seq, _ in found:
            shown.setdefault(part, []).append(seq)
        wrong = []
        for part, seqs in shown.items():
            wanted = np.array(sorted(seqs))
            if not self.ledgers[part].shows(lambda one, wanted=wanted: np.array_equal(one, wanted), max(seqs)):
                wrong.append(f"partition {part} of {len(self.rows.events[part])} shows {wanted.tolist()}")
        return wrong

    async def answer(self, sql: str) -> list[list[int]] | None:
        try:
            answer = await asyncio.to_thread(self.cluster.query, sql.format(table=BOARD))
        except OSError:
            return None
        self.num_answers += 1
        if answer["exceptions"] or not answer.get("resultTable"):
            self.num_flagged += 1
            self.reasons.update(reasons_of(answer))
            return None
        self._told = {name: answer.get(name) for name in TOLD}
        rows: list[list[int]] = answer["resultTable"]["rows"]
        return rows

    async def shows_all(self) -> None:
        """What the dicts have in the end."""
        wanted = rows_of(self.ledgers, [one.shown() for one in self.ledgers])
        rows: list[tuple[int, ...]] | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while rows != wanted:
                    rows = sorted(tuple(map(int, row)) for row in await self.answer(SHOWN) or ())
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(_difference(wanted, rows or [])) from None


def _difference(wanted: Sequence[tuple[int, ...]], shown: Sequence[tuple[int, ...]]) -> str:
    """Rows wanted and shown by partition, and a few that differ."""
    counts = [Counter(row[0] for row in rows) for rows in (wanted, shown)]
    by_partition = "; ".join(f"{part}: wanted {counts[0][part]}, shown {counts[1][part]}" for part in sorted(counts[0]))
    missing, surplus = sorted(set(wanted) - set(shown)), sorted(set(shown) - set(wanted))
    return f"{by_partition}; missing={missing[:5]} surplus={surplus[:5]}"


def sums_of(seqs: Seqs) -> tuple[int, ...]:
    """As SUMS has them."""
    return (len(seqs), int(seqs.sum()), int(seqs.min()), int(seqs.max())) if len(seqs) else ()


def rows_of(ledgers: Sequence[Ledger], seqs: Sequence[Seqs]) -> list[tuple[int, ...]]:
    """Partition, place and amount of rows of all partitions."""
    return sorted(
        (part, seq, ledger.amounts()[seq])
        for part, (ledger, found) in enumerate(zip(ledgers, seqs, strict=True))
        for seq in found.tolist()
    )


@asynccontextmanager
async def upserts_watched(cluster: ClusterProcesses, topic: Topic, draw: random.Random) -> AsyncIterator[UpsertWatcher]:
    """Rows come, and answers are looked at, until the block ends."""
    ledgers = [Ledger(Oracle(TTL)) for _ in range(NUM_PARTITIONS)]
    watcher = UpsertWatcher(cluster, Rows(topic, draw), ledgers, random.Random(draw.random()))
    tasks = [asyncio.create_task(one) for one in (watcher.append(), watcher.ask(), watcher.ask_late())]
    try:
        yield watcher
    finally:
        watcher.is_stopping = True
        await asyncio.gather(*tasks)


async def every_replica_shows(
    cluster: ClusterProcesses,
    servers: Sequence[RoleProcess],
    ledgers: Sequence[Ledger],
    table: str = BOARD,
    *,
    is_compacted: bool = False,
) -> None:
    """Each of the servers shows what the dicts have: valid rows, deletions, and all that is stored, unless some of that
    is taken out."""
    wanted = {
        SHOWN: [one.shown() for one in ledgers],
        WITH_DELETED: [one.shown(with_deleted=True) for one in ledgers],
    }
    if not is_compacted:
        wanted[STORED] = [one.stored() for one in ledgers]
    with cluster.metastore() as metastore:
        for server in servers:
            channel = TcpChannel("127.0.0.1", server.port("--query-port"))
            try:
                for sql, seqs in wanted.items():
                    replica = _Replica(server, channel, metastore, table)
                    await replica.shows(sql.format(table=table), rows_of(ledgers, seqs))
            finally:
                await channel.close()


@dataclass(frozen=True)
class _Replica:
    """A server, asked past the broker."""

    server: RoleProcess
    channel: TcpChannel
    metastore: Metastore
    table: str

    async def shows(self, sql: str, wanted: list[tuple[int, ...]]) -> None:
        found: list[tuple[int, ...]] | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while found != wanted:
                    if (found := await self._rows(sql)) != wanted:
                        await asyncio.sleep(0.1)  # a look takes milliseconds of the server that is to catch up
        except TimeoutError:
            has, lacks = sorted(set(found or ()) - set(wanted)), sorted(set(wanted) - set(found or ()))
            num_rows = None if found is None else len(found)
            text = f"{self.server.name}: {sql}: rows={num_rows} of {len(wanted)} has {has[:9]} lacks {lacks[:9]}"
            raise AssertionError(text) from None

    def _held(self) -> Iterator[str]:
        """Each segment as the server reports it: one that was rewritten may be answered by its old file for a while."""
        view = load(self.metastore, offline(self.table))
        port = self.server.port("--query-port")
        reports = ReportReader(self.metastore, offline(self.table)).read()
        loaded = {key for name, one in reports.items() if name.endswith(f"_{port}") for key in one.loaded}
        of_name = {key.rpartition("@")[0]: key for key in loaded}
        for record in view.segments.values():
            yield record.key_text if record.key_text in loaded else of_name.get(record.name, record.key_text)

    async def _rows(self, sql: str) -> list[tuple[int, ...]] | None:
        """None while it, or ZooKeeper, does not answer."""
        try:
            keys = await asyncio.to_thread(lambda: tuple(self._held()))
        except MerlotError:
            return None
        return await asked(self.channel, self.table, keys, sql)


def _routed(metastore: Metastore, previous: RoutingSnapshot | None) -> RoutingSnapshot:
    """What a broker would ask now."""
    table = offline(BOARD)
    reports = {one: frozenset(report.loaded) for one, report in ReportReader(metastore, table).read().items()}
    view = load(metastore, table)
    standings = dict.fromkeys(reports, ServerStanding.PREFERRED)
    now_ms = SystemClock().now_ms()
    return build(
        RoutingInputs(view=view, reports=reports, standings=standings, now_ms=now_ms, is_strict=True), previous
    )


async def asked(channel: TcpChannel, table: str, keys: Sequence[str], sql: str) -> list[tuple[int, ...]] | None:
    """What a server answers by these keys; None if it does not, or lacks some."""
    schema = board_manifest("-", flush_rows=1, replication=1, upsert={"config": upsert_spec()}).spec.table_schema
    query = to_json(bind(parse(sql), schema, {}))
    request = ServerRequest(request_id="look", table=offline(table), query=query, segments=tuple(keys), timeout_ms=5000)
    try:
        answer = await channel.execute(request, 5.0)
    except MerlotError:
        return None
    if answer.missing or answer.error or answer.partial is None:
        return None
    columns = [column.to_pylist() for column in answer.partial.data.columns]
    return sorted(zip(*columns, strict=True))
