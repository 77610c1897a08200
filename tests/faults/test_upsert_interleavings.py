"""What happens to an upsert table, in any order: rows, commits, another time to live, restarts, lost disks, pauses.

After each step every server that runs shows what a dict comes to: which rows are valid, which delete, what is stored,
and the values that rows were merged to. With more than 10 steps, rows that were replaced leave half of the tables all
the while. MERLOT_INTERLEAVINGS tables, of MERLOT_INTERLEAVED steps each.
"""

import asyncio
import math
import os
import random
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.budget import count, seed
from tests.faults.upsert_watch import (
    NUM_PARTITIONS,
    FileTopic,
    Ledger,
    Rows,
    board_manifest,
    every_replica_shows,
    rows_of,
    upsert_spec,
)
from tests.support.processes import ClusterProcesses
from tests.unit.upsert.oracle import Firsts, Oracle

from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.manifests.upserts import put_upsert
from merlot.cluster.segments.view import load
from merlot.ids import offline
from merlot.spec.upsert import UpsertConfig
from merlot.testing.patience import PATIENCE_S
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

NUM_TABLES = count("MERLOT_INTERLEAVINGS", quick=1, every=1, fuzz=20)
NUM_STEPS = count("MERLOT_INTERLEAVED", quick=3, every=10, fuzz=25)
NUM_SERVERS = 3
IS_COMPACTED = NUM_STEPS > 10
"""A minion more, and segments that are rewritten all the while: of longer runs only."""
TTLS = (None, 60, 300)
QUERIES = (
    "SELECT COUNT(*) FROM {table}",
    "SELECT COUNT(*), MIN(seq), MAX(seq) FROM {table} WHERE version >= 0",
    "SELECT COUNT(*) FROM {table} WHERE id = {key}",
    "SELECT part, seq FROM {table} WHERE id = {key} ORDER BY part, seq LIMIT 1000",
    "SELECT COUNT(*), COUNT(DISTINCT id) FROM {table} WHERE version BETWEEN {low} AND {high}",
    "SELECT part, seq FROM {table} LIMIT 7",
    "SELECT part, seq FROM {table} WHERE version >= {low} LIMIT 7",
    "SELECT part, seq FROM {table} ORDER BY seq DESC, part LIMIT 9",
    "SELECT part, seq FROM {table} ORDER BY seq, part LIMIT 9 OFFSET 30",
    "SELECT DISTINCT part FROM {table} ORDER BY part",
    "SELECT DISTINCT id FROM {table} ORDER BY id LIMIT 1000",
    "SELECT part, COUNT(*), SUM(amount), MAX(seq) FROM {table} GROUP BY part ORDER BY part",
    "SELECT id, COUNT(*) FROM {table} WHERE amount < 500 GROUP BY id ORDER BY COUNT(*) DESC, id LIMIT 10",
    "SELECT COUNT(*) FROM {table} WHERE NOT amount IN (1, 2, 3) AND seq >= 0",
    "SELECT COUNT(*) FILTER (WHERE part = 1), COUNT(*) FILTER (WHERE amount > 300) FROM {table}",
)
LONGEST_DOWN = 3
"""Steps after which a server that was stopped comes back."""


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory, shared_zookeeper: ZooKeeper) -> Iterator[ClusterProcesses]:
    folder = tmp_path_factory.mktemp("interleavings")
    zookeeper = f"{shared_zookeeper.hosts}/interleavings-{os.getpid()}"
    with ClusterProcesses(folder, zookeeper, num_servers=NUM_SERVERS, num_minions=int(IS_COMPACTED)) as cluster:
        yield cluster


class Board:
    """A table, how its rows replace each other, and what they come to."""

    def __init__(self, cluster: ClusterProcesses, folder: Path, number: int, draw: random.Random) -> None:
        self.cluster = cluster
        self.name = f"board{number}"
        self._draw = draw
        self._topic = FileTopic(folder)
        self._rows = Rows(self._topic, draw)
        self._options = self._drawn()
        self.ttl: int | None = draw.choice(TTLS)
        self.ledgers = [self._ledger() for _ in range(NUM_PARTITIONS)]
        self._put_config()
        upsert = {"configRef": self.name}
        manifest = board_manifest(folder, flush_rows=150, replication=NUM_SERVERS, upsert=upsert, name=self.name)
        with cluster.metastore() as metastore:
            put_table(metastore, manifest)

    def _drawn(self) -> dict[str, Any]:
        draw = self._draw
        options: dict[str, Any] = {"pruning": draw.choice(("COMMIT", "SCAN", "ROTATION"))}
        if options["pruning"] == "SCAN":
            options["pruningInterval"] = "1s"
        options["skipLateEvents"] = draw.random() < 0.3
        if draw.random() < 0.2:
            return options | {"mode": "DEDUP", "deleteRecordColumn": None}
        options["dropOutOfOrderRecord"] = draw.random() < 0.3
        if draw.random() < 0.4:
            options["deletedKeysTtl"] = "40"
        if draw.random() < 0.4:
            options |= {"mode": "PARTIAL", "partialUpsertStrategies": {"amount": "INCREMENT"}}
        if draw.random() < 0.7:
            options |= {"snapshot": "ENABLE", "snapshotStore": draw.choice(("LOCAL", "DEEP_STORE"))}
        if IS_COMPACTED and draw.random() < 0.5:
            options["compaction"] = {"bufferTimePeriod": "0d", "invalidRecordsThresholdPercent": 1}
        return options

    @property
    def is_of_firsts(self) -> bool:
        """Whether the first row of a key is kept, and no other stored."""
        return self._options.get("mode") == "DEDUP"

    def _ledger(self) -> Ledger:
        options = self._options
        to_live = math.inf if self.ttl is None else self.ttl
        if self.is_of_firsts:
            return Ledger(Firsts(to_live, skips_late=options["skipLateEvents"]))
        oracle = Oracle(
            to_live,
            float(options.get("deletedKeysTtl", math.inf)),
            skips_late=options["skipLateEvents"],
            drops=options["dropOutOfOrderRecord"],
        )
        return Ledger(oracle, adds=options.get("mode") == "PARTIAL")

    def _put_config(self) -> None:
        fields = {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "UpsertConfig",
            "metadata": {"name": self.name},
            "spec": upsert_spec(self.ttl, **self._options),
        }
        with self.cluster.metastore() as metastore:
            put_upsert(metastore, UpsertConfig.model_validate(fields))

    def ingest(self) -> None:
        for partition in range(NUM_PARTITIONS):
            events = self._rows.events[partition]
            before = len(events)
            self._rows.append(partition, self._draw.choice((1, 7, 60, 200)))
            for event in events[before:]:
                self.ledgers[partition].add(event)

    async def shows(self) -> None:
        running = [one for one in self.cluster.servers if one.is_running]
        is_compacted = "compaction" in self._options
        await every_replica_shows(self.cluster, running, self.ledgers, self.name, is_compacted=is_compacted)

    async def answers(self) -> None:
        """Some queries, by every way of answering, as DuckDB answers them over the dicts' rows."""
        shown = [one.shown() for one in self.ledgers]
        rows = rows_of(self.ledgers, shown)
        events = [self._rows.events[part][seq] for part, seq, _ in rows]
        columns = {name: [row[place] for row in rows] for place, name in enumerate(("part", "seq", "amount"))}
        columns |= {"id": [one.key for one in events], "version": [one.version for one in events]}
        key = self._draw.choice(events).key if events else 0
        low = self._draw.randrange(1 + max(columns["version"], default=0))
        for text in self._draw.sample(QUERIES, 5):
            sql = text.format(table=self.name, key=key, low=low, high=low + 100)
            with duckdb.connect() as connection:
                connection.register(self.name, pa.table(columns))
                right = [list(row) for row in connection.execute(sql).fetchall()]
            async with asyncio.timeout(PATIENCE_S):
                found = None
                while found is None:
                    answer = await asyncio.to_thread(self.cluster.query, sql)
                    found = answer["resultTable"]["rows"] if not answer["exceptions"] else None
            assert len(found) == len(right), sql
            if "LIMIT 7" not in sql:
                assert [[*map(float, row)] for row in found] == [[*map(float, row)] for row in right], sql
            else:
                assert {tuple(row) for row in found} <= {row[:2] for row in rows}, sql

    async def change_ttl(self) -> None:
        """The next segments go by another one; each begins where the one before ended, with all rows there are. One
        that is followed by another before a row has come leaves no trace."""
        others = [one for one in TTLS if one != self.ttl]
        if self._draw.random() < 0.3:
            self.ttl = self._draw.choice(others)
            self._put_config()
            await asyncio.sleep(self._draw.choice((0.1, 1.0)))
        self.ttl = self._draw.choice([one for one in others if one != self.ttl])
        self._put_config()
        wanted = None if self.ttl is None else str(self.ttl)
        with self.cluster.metastore() as metastore:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    view = await asyncio.to_thread(load, metastore, offline(self.name))
                    opened = [one for one in view.stream_segments if one.is_open]
                    if len(opened) == NUM_PARTITIONS and all(ttl_of(one.upsert) == wanted for one in opened):
                        break
                    await asyncio.sleep(0.05)
        for ledger in self.ledgers:
            ledger.change_ttl(math.inf if self.ttl is None else self.ttl)

    async def change_snapshots(self) -> None:
        """Keep snapshots elsewhere, or none."""
        if self.is_of_firsts:
            return  # such tables have none
        kept = self._draw.choice(({"snapshot": "DISABLE"}, {"snapshot": "ENABLE", "snapshotStore": "DEEP_STORE"}))
        self._options |= kept
        self._put_config()

    async def post(self, action: str) -> None:
        url = f"{self.cluster.controller.url}/tables/{self.name}/{action}"
        request = urllib.request.Request(url, b"", method="POST")
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=PATIENCE_S).read())


def ttl_of(upsert: str) -> str | None:
    """In the settings of a segment."""
    return unpin_upsert(upsert).primary_key_ttl if upsert else "?"


class Servers:
    """Stops one at a time, with or without its disk; it comes back some steps later."""

    def __init__(self, cluster: ClusterProcesses, draw: random.Random) -> None:
        self._cluster = cluster
        self._draw = draw
        self._down: int | None = None
        self._steps_down = 0
        self.num_hurt = 0

    async def hurt(self, how: str) -> None:
        await self.mend()
        number = self._draw.randrange(NUM_SERVERS)
        server = self._cluster.servers[number]
        await asyncio.to_thread(server.stop if how == "stop" else server.kill)
        if how == "lose the disk of":
            shutil.rmtree(self._cluster.server_dir(number))
        self._down, self._steps_down = number, 0
        self.num_hurt += 1

    async def tick(self) -> None:
        self._steps_down += 1
        if self._down is not None and self._draw.randrange(LONGEST_DOWN) < self._steps_down:
            await self.mend()

    async def mend(self) -> None:
        if self._down is not None:
            server = self._cluster.servers[self._down]
            self._down = None
            server.start()
            await asyncio.to_thread(server.wait_ready)


async def step(board: Board, servers: Servers, action: str) -> None:
    match action:
        case "ingest":
            board.ingest()
        case "commit":
            await board.post("forceCommit")
        case "ingest amid a commit":
            board.ingest()
            await board.post("forceCommit")
            board.ingest()
        case "ttl":
            await board.shows()
            await board.change_ttl()
        case "snapshots":
            await board.change_snapshots()
            board.ingest()
        case "pause":
            await board.post("pauseConsumption")
            board.ingest()
            await board.post("resumeConsumption")
        case _:
            await servers.hurt(action)
            board.ingest()


ACTIONS = ("ingest", "commit", "ingest amid a commit", "ttl", "snapshots", "pause", "stop", "kill", "lose the disk of")


@pytest.mark.timeout(600 + 20 * NUM_STEPS)
@pytest.mark.parametrize("number", range(NUM_TABLES))
async def test_replicas_and_a_dict_agree_whatever_happens(
    replicated: ClusterProcesses, tmp_path: Path, number: int, met_faults: Callable[[int], None]
) -> None:
    draw = random.Random(seed() + number)
    board = Board(replicated, tmp_path / "topic", number, draw)
    servers = Servers(replicated, draw)
    print(f"seed={seed()} (MERLOT_SEED) table={number} {board._options}")
    actions = [one for _ in range(-(-NUM_STEPS // len(ACTIONS))) for one in draw.sample(ACTIONS, len(ACTIONS))]
    board.ingest()
    await board.shows()
    for place, action in enumerate(actions[:NUM_STEPS]):
        print(f"{place} {action} ttl={board.ttl}", flush=True)
        await servers.tick()
        await step(board, servers, action)
        await board.shows()
        await board.answers()
    await servers.mend()
    await board.shows()
    met_faults(servers.num_hurt)
