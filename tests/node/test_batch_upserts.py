"""A table of batches whose rows replace each other: what is shown follows from the segments that there are."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pytest
import yaml
from tests.node.nodes import OwnNode, apply

from merlot.catalog.publish import upload
from merlot.cli.main import run
from merlot.cluster.records import SegmentRecord
from merlot.ids import TableName
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec import manifest
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S

NUM_PARTITIONS = 2
BOARD = TableName("board_OFFLINE")
BY_VERSION = "{config: {mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone}}"
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: board}}
spec:
  schema:
    fields:
      - {{name: id, type: LONG}}
      - {{name: version, type: LONG}}
      - {{name: at, type: TIMESTAMP, role: dateTime}}
      - {{name: amount, type: LONG, role: metric}}
      - {{name: color, type: STRING}}
      - {{name: gone, type: BOOLEAN}}
    primaryKey: [id]
  timeColumn: at
  indexing: {{inverted: [color], noDictionary: [amount], sortedColumns: [at]}}
  routing: {{segmentPruners: [time, partition, range]}}
  partitioning: {{columns: {{id: {{functionName: Modulo, numPartitions: 2}}}}}}
  upsert: {upsert}
"""
CONFIG = """
apiVersion: merlot.dev/v1alpha1
kind: UpsertConfig
metadata: {name: latest}
spec: {mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone}
"""
SQL = "SELECT id, version, amount, color FROM board ORDER BY id LIMIT 100000"
START_MS = 1_700_000_000_000
Row = dict[str, Any]
Segments = Mapping[str, Sequence[Row]]


def newest(segments: Segments) -> list[list[Any]]:
    """What a table of these segments shows; they are in the order in which they were published."""
    found: dict[int, Row] = {}
    for rows in segments.values():
        for row in sorted(rows, key=lambda one: one["at"]):
            before = found.get(row["id"])
            if before is None or row["version"] >= before["version"]:
                found[row["id"]] = row
    shown = sorted((row for row in found.values() if not row["gone"]), key=lambda row: row["id"])
    return [[row["id"], row["version"], row["amount"], row["color"]] for row in shown]


def _of(partition: int, rows: Sequence[list[Any]]) -> list[list[Any]]:
    return [row for row in rows if row[0] % NUM_PARTITIONS == partition]


class Board(OwnNode):
    """A node with the table, and what it should consist of."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.segments: dict[str, list[Row]] = {}
        self.states: list[list[list[Any]]] = [[]]
        self._store = DeepStore(str(folder / "data" / "deepstore"))
        self._random = random.Random(11)
        self._table: Table | None = None

    async def create(self, upsert: str = BY_VERSION) -> None:
        text = MANIFEST.format(upsert=upsert)
        found = manifest.load(text)[0]
        assert isinstance(found, Table)
        self._table = found
        await apply(self.node, text)

    def random_rows(self, partition: int, number: int, keys: int = 60) -> list[Row]:
        """Of few keys, many that tie, a few that delete; times differ, so that rows have one order."""
        draw = self._random
        return [
            {
                "id": draw.randrange(keys) * NUM_PARTITIONS + partition,
                "version": draw.randrange(40),
                "at": START_MS + row * 1000 + draw.randrange(1000),
                "amount": draw.randrange(1000),
                "color": draw.choice(("red", "green", "blue")),
                "gone": draw.random() < 0.05,
            }
            for row in range(number)
        ]

    def record(self, name: str, rows: Sequence[Row]) -> SegmentRecord:
        """A segment of these rows in the deep store."""
        assert self._table is not None
        spec = self._table.spec
        request = BuildRequest(
            name=name,
            table="board",
            schema=spec.table_schema,
            indexing=spec.indexing,
            time_column=spec.time_column,
            partitioning=spec.partitioning,
        )
        with tempfile.TemporaryDirectory() as folder:
            built = build_segment(request, pa.Table.from_pylist(list(rows)), Path(folder))
            return upload(self._store, built, BOARD)

    async def publish(self, segments: Segments, replace: Sequence[str] = ()) -> None:
        """New segments, and new versions of others, in place of some."""
        records = [await asyncio.to_thread(self.record, name, rows) for name, rows in segments.items()]
        body = {
            "records": [one.model_dump(mode="json", by_alias=True) for one in records],
            "replace": list(replace),
            "replaceRows": True,
        }
        for name in replace:
            self.segments.pop(name)
        self.segments |= {name: list(rows) for name, rows in segments.items()}
        self.states.append(newest(self.segments))
        await self.call("POST", "/segments/board/publish", json=body)

    async def delete(self, name: str) -> None:
        self.segments.pop(name)
        self.states.append(newest(self.segments))
        await self.call("DELETE", f"/segments/board/{name}")

    async def rows(self, sql: str = SQL) -> list[list[Any]] | None:
        """None while it is not answered."""
        answer = await self.call("POST", "/query/sql", json={"sql": sql})
        if answer["exceptions"]:
            return None
        found: list[list[Any]] = answer["resultTable"]["rows"]
        return found

    async def shows_newest(self) -> None:
        """Wait for what the segments come to; every answer on the way is what they came to at some moment."""
        found = None
        async with asyncio.timeout(PATIENCE_S):
            while found != self.states[-1]:
                found = await self.rows()
                self.check(found)

    def check(self, found: list[list[Any]] | None) -> None:
        """Each partition is as some of its editions are."""
        if found is None:
            return
        for part in range(NUM_PARTITIONS):
            assert _of(part, found) in [_of(part, state) for state in self.states]

    async def keys(self) -> dict[str, Any]:
        told: dict[str, Any] = (await self.call("GET", "/status"))["tables"]["board"]["upsert"]
        return told

    async def replica(self, partition: int) -> dict[str, Any]:
        """What the only replica of a partition tells."""
        told = (await self.call("GET", "/tables/board/upsert"))["partitions"]
        replicas = next((one["replicas"] for one in told if one["partition"] == partition), {})
        return next(iter(replicas.values()), {})


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[Board]:
    async with Board(tmp_path) as board:
        yield board


async def test_the_newest_row_of_each_key_is_shown_whatever_segment_has_it(board: Board) -> None:
    await board.create()
    for number in range(4):
        rows = {f"day{number}_{part}": board.random_rows(part, 50) for part in range(NUM_PARTITIONS)}
        await board.publish(rows)
        await board.shows_newest()
    count = [[len(board.states[-1])]]
    assert await board.rows("SELECT COUNT(*) FROM board") == count
    assert (
        await board.rows("SELECT COUNT(*) FROM board WHERE version >= 0 AND color IN ('red','green','blue')") == count
    )
    total = sum(map(len, board.segments.values()))
    assert await board.rows("SET skipUpsert = true; SELECT COUNT(*) FROM board") == [[total]]
    narrow = [row for row in board.states[-1] if row[0] == 6]
    assert await board.rows("SELECT id, version, amount, color FROM board WHERE id = 6") == narrow


async def test_rows_come_back_when_what_replaced_them_goes(board: Board) -> None:
    await board.create()
    for number in range(3):
        await board.publish({f"day{number}_{part}": board.random_rows(part, 60) for part in range(NUM_PARTITIONS)})
    await board.shows_newest()
    await board.delete("day1_0")
    await board.shows_newest()
    await board.publish({"day2_0": board.random_rows(0, 30)})
    await board.shows_newest()
    await board.publish({"day9_1": board.random_rows(1, 30)}, replace=["day0_1", "day2_1"])
    await board.shows_newest()
    await board.restart()
    await board.shows_newest()


async def test_answers_are_of_one_set_of_segments_while_others_come_and_go(board: Board) -> None:
    await board.create()
    draw = random.Random(5)

    async def change() -> None:
        for number in range(25):
            if draw.random() < 0.25 and len(board.segments) > 2:
                await board.delete(draw.choice(sorted(board.segments)))
            elif draw.random() < 0.3 and board.segments:
                name = draw.choice(sorted(board.segments))
                await board.publish({name: board.random_rows(int(name[-1]), draw.randrange(1, 60))})
            else:
                rows = {f"s{number:03}_{part}": board.random_rows(part, 40) for part in range(NUM_PARTITIONS)}
                await board.publish(rows)

    changing = asyncio.create_task(change())
    while not changing.done():
        found = await board.rows()
        board.check(found)
        await asyncio.sleep(0.005)
    await changing
    await board.shows_newest()


async def test_nothing_is_shown_before_the_upsert_config_is_there(board: Board) -> None:
    await board.create("{configRef: latest}")
    await board.publish({"day0_0": board.random_rows(0, 20)})
    while (found := await board.rows()) is None:
        await asyncio.sleep(0.01)  # the broker has not heard of the table yet
    assert found == []
    await apply(board.node, CONFIG)
    await board.shows_newest()


async def test_a_segment_without_one_declared_partition_is_refused(board: Board) -> None:
    await board.create()
    mixed = board.random_rows(0, 5) + board.random_rows(1, 5)
    with pytest.raises(AssertionError, match=r"must hold one partition segment=mixed .* holds=id:Modulo/2:\[0, 1\]"):
        await board.publish({"mixed": mixed})
    record = (await asyncio.to_thread(board.record, "none", board.random_rows(0, 5))).model_dump(by_alias=True)
    body = {"records": [{**record, "partitions": {}}]}
    with pytest.raises(AssertionError, match="holds=nothing that is known"):
        await board.call("POST", "/segments/board/publish", json=body)


async def test_rows_of_another_partition_than_the_record_says_are_counted(board: Board) -> None:
    """Nobody would look for them where they are: whoever forged the record has to mend it."""
    await board.create()
    record = await asyncio.to_thread(board.record, "forged", board.random_rows(1, 30))
    text = record.model_dump(mode="json", by_alias=True)
    text["partitions"]["id"]["partitions"] = [0]
    await board.call("POST", "/segments/board/publish", json={"records": [text]})
    async with asyncio.timeout(PATIENCE_S):
        while not (told := await board.replica(0)).get("keys"):
            await asyncio.sleep(0.05)
    assert (told["misplaced"], told["state"]) == (30, "CURRENT")


async def test_status_tells_keys_and_what_was_replaced(board: Board) -> None:
    await board.create()
    for number in range(2):
        await board.publish({f"day{number}_{part}": board.random_rows(part, 40) for part in range(NUM_PARTITIONS)})
    await board.shows_newest()
    keys = len({row["id"] for rows in board.segments.values() for row in rows})
    async with asyncio.timeout(PATIENCE_S):
        while (told := await board.keys())["inForce"] < NUM_PARTITIONS or told["keys"] < keys:
            await asyncio.sleep(0.05)
    assert (told["keys"], told["valid"], told["invalid"]) == (keys, keys, 160 - keys)
    assert told["replicas"] == NUM_PARTITIONS
    assert told["behind"] == []


async def test_keys_are_listed_from_the_command_line(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    await board.create()
    command = ["upsert", "keys", "board", "--url", board.node.url]
    assert await asyncio.to_thread(run, command) == 0
    assert "has no partitions yet" in capsys.readouterr().err
    await board.publish({"day0_0": board.random_rows(0, 40)})
    keys = len({row["id"] for row in board.segments["day0_0"]})
    async with asyncio.timeout(PATIENCE_S):
        while (await board.replica(0)).get("keys") != keys:
            await asyncio.sleep(0.05)
    assert await asyncio.to_thread(run, [*command, "-o", "wide"]) == 0
    assert "MISPLACED" in capsys.readouterr().out
    assert await asyncio.to_thread(run, [*command, "-o", "json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    shown = {name: told[name] for name in ("partition", "state", "keys", "valid", "invalid", "misplaced")}
    wanted = {"partition": 0, "state": "CURRENT", "keys": keys, "valid": keys, "invalid": 40 - keys, "misplaced": 0}
    assert shown == wanted


async def test_a_replacement_in_the_lineage_is_refused(board: Board) -> None:
    await board.create()
    await board.publish({"day0_0": board.random_rows(0, 10)})
    body = {"segmentsFrom": ["day0_0"], "segmentsTo": ["merged"]}
    with pytest.raises(AssertionError, match="replaced by publishing others in their place"):
        await board.call("POST", "/segments/board/startReplaceSegments?type=OFFLINE", json=body)


async def test_what_batches_cannot_do_is_refused(board: Board) -> None:
    document = yaml.safe_load(MANIFEST.format(upsert=BY_VERSION))
    document["spec"]["upsert"]["config"] |= {"mode": "PARTIAL"}
    text, url = yaml.safe_dump(document), f"{board.node.url}/apply"
    async with aiohttp.ClientSession() as session, session.post(url, data=text) as answer:
        assert answer.status == 400
        problems = (await answer.json())["problems"]
    assert "spec.upsert.config.mode" in [one["path"] for one in problems]


async def test_a_backfill_of_batches_is_refused(board: Board) -> None:
    """There is no stream that could be read again: it would never begin."""
    await apply(board.node, CONFIG)
    await board.create("{configRef: latest}")
    with pytest.raises(AssertionError, match="table has no stream table=board"):
        await board.call("POST", "/tables/board/backfill")
    with pytest.raises(AssertionError, match="has no stream that could be read again"):
        await apply(board.node, CONFIG.replace("gone}", "gone, backfill: {name: again, table: board}}"))


async def test_what_would_part_rows_of_a_key_cannot_be_changed(board: Board) -> None:
    await board.create()
    text = MANIFEST.format(upsert=BY_VERSION)
    with pytest.raises(AssertionError, match=r"spec\.partitioning\.columns.*cannot change"):
        await apply(board.node, text.replace("numPartitions: 2", "numPartitions: 4"))
    stream = "ingestion: {stream: {type: files, topic: /t}}\n  partitioning"
    with pytest.raises(AssertionError, match="cannot be added to an upsert table of batches"):
        await apply(board.node, text.replace("partitioning", stream).replace(", sortedColumns: [at]", ""))
