"""What happens to an upsert table of batches, in any order: pushes, others in their place, deletions, lost servers.

Queries go on all the while: what is shown of a partition is what some set of its segments came to. After each step
every server that runs shows what a dict does. MERLOT_INTERLEAVINGS tables, of MERLOT_INTERLEAVED steps each.
"""

import asyncio
import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.budget import count, seed
from tests.support.processes import ClusterProcesses, RoleProcess

from merlot.catalog.publish import upload
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.editions import editions_of
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import RemoveSegments, mutate
from merlot.cluster.segments.view import TableView, load
from merlot.errors import MerlotError
from merlot.ids import TableName, offline
from merlot.query.plan.binding import bind
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.table import Table
from merlot.sql.parse import parse
from merlot.testing.patience import PATIENCE_S
from merlot.tree.tree_json import to_json
from merlot.wire.client import TcpChannel
from merlot.wire.messages import ServerRequest
from merlot_spark.zookeeper import ZooKeeper

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow("test_upsert_interleavings has the same replicas; test_batch_index pushes to one in this process"),
]

NUM_TABLES = count("MERLOT_INTERLEAVINGS", quick=1, every=1, fuzz=20)
NUM_STEPS = count("MERLOT_INTERLEAVED", quick=3, every=8, fuzz=25)
NUM_SERVERS = 2
NUM_PARTITIONS = 2
NUM_KEYS = 50
SHOWN = "SELECT part, seq FROM {table} LIMIT 1000000"
WITH_DELETED = f"SET skipUpsertDelete = true; {SHOWN}"
CHANGES = ("push", "push again", "delete", "put in the place of two")
ACTIONS = (*CHANGES, "stop", "kill", "lose the disk of", "kill the broker")
Row = dict[str, Any]
Shown = set[tuple[int, int]]


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory, shared_zookeeper: ZooKeeper) -> Iterator[ClusterProcesses]:
    folder = tmp_path_factory.mktemp("batch-interleavings")
    zookeeper = f"{shared_zookeeper.hosts}/batch-interleavings-{os.getpid()}"
    with ClusterProcesses(folder, zookeeper, num_servers=NUM_SERVERS) as cluster:
        yield cluster


def table_of(name: str) -> Table:
    fields = [{"name": one, "type": "LONG"} for one in ("part", "seq", "id", "version")]
    modulo = {"functionName": "Modulo", "numPartitions": NUM_PARTITIONS}
    upsert = {"mode": "FULL", "comparisonColumns": ["version"], "deleteRecordColumn": "gone"}
    return Table.model_validate(
        {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "Table",
            "metadata": {"name": name},
            "spec": {
                "schema": {"fields": [*fields, {"name": "gone", "type": "BOOLEAN"}], "primaryKey": ["id"]},
                "indexing": {"sortedColumns": ["seq"]},
                "partitioning": {"columns": {"id": modulo}},
                "routing": {"segmentPruners": ["partition", "range"]},
                "replication": NUM_SERVERS,
                "upsert": {"config": upsert},
            },
        }
    )


class Board:
    """A table, the rows of its segments, and what they have come to."""

    def __init__(self, cluster: ClusterProcesses, folder: Path, number: int, draw: random.Random) -> None:
        self.cluster = cluster
        self.manifest = table_of(f"batches{number}")
        self.name: TableName = offline(self.manifest.raw_name)
        self._folder = folder
        self._draw = draw
        self._rows: dict[str, list[Row]] = {}
        """By `name@crc`."""
        self._num_rows = self._num_segments = 0
        self.states: list[list[Shown]] = [[set()] for _ in range(NUM_PARTITIONS)]
        """All that each partition may be shown as."""
        with cluster.metastore() as metastore:
            put_table(metastore, self.manifest)

    def build(self, partition: int, name: str | None = None) -> SegmentRecord:
        """A new segment, or other rows of one."""
        draw, spec = self._draw, self.manifest.spec
        rows = []
        for _ in range(draw.choice((3, 40, 120))):
            key = draw.randrange(NUM_KEYS) * NUM_PARTITIONS + partition
            row = {"part": partition, "seq": self._num_rows, "id": key, "version": draw.randrange(30)}
            rows.append(row | {"gone": draw.random() < 0.06})
            self._num_rows += 1
        self._num_segments += 1
        request = BuildRequest(
            name=name or f"s{self._num_segments:04}_{partition}",
            table=self.manifest.raw_name,
            schema=spec.table_schema,
            indexing=spec.indexing,
            time_column=None,
            partitioning=spec.partitioning,
        )
        record = upload(
            self.cluster.deep_store, build_segment(request, pa.Table.from_pylist(rows), self._folder), self.name
        )
        self._rows[record.key_text] = rows
        return record

    def change(self, records: Sequence[SegmentRecord], removed: Sequence[SegmentRecord] = ()) -> None:
        """In one swap; what it comes to may be shown from before it on."""
        with self.cluster.metastore() as metastore:
            before = load(metastore, self.name).segments
            names = {one.name for one in removed}
            after = {name: one for name, one in before.items() if name not in names}
            for record in records:
                known = before.get(record.name)
                pushed_ms = 1 << 60 if known is None else known.push_time_ms
                after[record.name] = record.model_copy(update={"push_time_ms": pushed_ms})
            for part, seqs in enumerate(self.shown(after)):
                self.states[part].append(seqs)
            if records:
                publish(metastore, self.name, records, replace=sorted(names))
            else:
                mutate(metastore, self.name, lambda _: [RemoveSegments(tuple(one.key for one in removed))])

    def view(self) -> TableView:
        with self.cluster.metastore() as metastore:
            return load(metastore, self.name)

    def shown(self, segments: Mapping[str, SegmentRecord], *, with_deleted: bool = False) -> list[Shown]:
        """What these segments come to, by partition."""
        newest: dict[int, Row] = {}
        for record in sorted(segments.values(), key=lambda one: (one.push_time_ms, one.name)):
            for row in self._rows[record.key_text]:
                before = newest.get(row["id"])
                if before is None or row["version"] >= before["version"]:
                    newest[row["id"]] = row
        found: list[Shown] = [set() for _ in range(NUM_PARTITIONS)]
        for row in newest.values():
            if with_deleted or not row["gone"]:
                found[row["part"]].add((row["part"], row["seq"]))
        return found

    async def step(self, action: str) -> None:
        segments = list(self.view().segments.values())
        match action:
            case "push again" if segments:
                chosen = self._draw.choice(segments)
                self.change([self.build(int(chosen.name[-1]), chosen.name)])
            case "delete" if len(segments) > 2:
                self.change([], [self._draw.choice(segments)])
            case "put in the place of two" if len(segments) > 2:
                self.change([self.build(self._draw.randrange(NUM_PARTITIONS))], self._draw.sample(segments, 2))
            case _:
                self.change([self.build(part) for part in range(NUM_PARTITIONS)])

    async def replicas_show(self) -> None:
        """Each server that runs has the bits that the dict has."""
        for server in self.cluster.servers:
            if server.is_running:
                channel = TcpChannel("127.0.0.1", server.port("--query-port"))
                try:
                    for sql, with_deleted in ((SHOWN, False), (WITH_DELETED, True)):
                        await self._replica_shows(server, channel, sql, with_deleted=with_deleted)
                finally:
                    await channel.close()

    async def _replica_shows(self, server: RoleProcess, channel: TcpChannel, sql: str, *, with_deleted: bool) -> None:
        view = self.view()
        wanted = set().union(*self.shown(view.segments, with_deleted=with_deleted))
        spec = self.manifest.spec
        assert spec.partitioning is not None
        query = to_json(bind(parse(sql.format(table=self.manifest.raw_name)), spec.table_schema, {}))
        editions = editions_of(view.segments.values(), spec.partitioning).values()
        keys = tuple(key for one in editions for key in (one.key, *one.keys))
        request = ServerRequest(request_id="look", table=self.name, query=query, segments=keys, timeout_ms=5000)
        found: Shown | None = None
        async with asyncio.timeout(PATIENCE_S):
            while found is None:
                try:
                    answer = await channel.execute(request, 5.0)
                except MerlotError:
                    continue
                if not answer.missing and answer.partial is not None:
                    columns = [column.to_pylist() for column in answer.partial.data.columns]
                    found = set(zip(*columns, strict=True))
                await asyncio.sleep(0.02)
        assert found == wanted, f"{server.name}: {sql}"

    async def answer(self) -> list[Shown] | None:
        """By partition; None while there is none that is whole."""
        try:
            answer = await asyncio.to_thread(self.cluster.query, SHOWN.format(table=self.manifest.raw_name))
        except OSError:
            return None
        if answer["exceptions"] or not answer.get("resultTable"):
            return None
        rows = [tuple(map(int, row)) for row in answer["resultTable"]["rows"]]
        assert len(rows) == len(set(rows))
        return [{(part, seq) for part, seq in rows if part == number} for number in range(NUM_PARTITIONS)]

    async def watch(self, wrong: list[str]) -> None:
        """Every answer is of one set of segments, partition by partition."""
        while True:
            for part, found in enumerate(await self.answer() or ()):
                if found not in self.states[part]:
                    nearest = min(self.states[part], key=lambda state, found=found: len(state ^ found))
                    wrong.append(f"partition {part}: more {found - nearest} less {nearest - found}")
            await asyncio.sleep(0.01)

    async def shows(self) -> None:
        wanted = self.shown(self.view().segments)
        async with asyncio.timeout(PATIENCE_S):
            while await self.answer() != wanted:
                await asyncio.sleep(0.02)


async def hurt(cluster: ClusterProcesses, board: Board, action: str, draw: random.Random) -> None:
    """Take a server, or the broker, away in the middle of a push, and bring it back after another one."""
    number = draw.randrange(NUM_SERVERS)
    server = cluster.broker if action == "kill the broker" else cluster.servers[number]
    pushed = asyncio.create_task(board.step("push"))
    await asyncio.sleep(draw.choice((0.0, 0.05, 0.3)))
    await asyncio.to_thread(server.stop if action == "stop" else server.kill)
    await pushed
    if action == "lose the disk of":
        shutil.rmtree(cluster.server_dir(number))
    await board.step(draw.choice(CHANGES))
    if server is not cluster.broker:
        await board.shows()
    server.start()
    await asyncio.to_thread(server.wait_ready)


@pytest.mark.timeout(600 + 20 * NUM_STEPS)
@pytest.mark.parametrize("number", range(NUM_TABLES))
async def test_replicas_and_a_dict_agree_whatever_is_pushed(
    replicated: ClusterProcesses, tmp_path: Path, number: int
) -> None:
    draw = random.Random(seed() + number)
    board = Board(replicated, tmp_path, number, draw)
    print(f"seed={seed()} (MERLOT_SEED) table={number}")
    wrong: list[str] = []
    watching = asyncio.create_task(board.watch(wrong))
    await board.step("push")
    await board.shows()
    actions = [one for _ in range(-(-NUM_STEPS // len(ACTIONS))) for one in draw.sample(ACTIONS, len(ACTIONS))]
    for place, action in enumerate(actions[:NUM_STEPS]):
        print(f"{place} {action}", flush=True)
        if action in CHANGES:
            await board.step(action)
        else:
            await hurt(replicated, board, action, draw)
        await board.shows()
        await board.replicas_show()
        assert not wrong, wrong[:3]
    watching.cancel()
