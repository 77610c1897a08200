"""A table whose rows replace each other: queries show one row of each key, at every moment, and after a restart."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.node.nodes import OwnNode, apply

from merlot.server.realtime.upserts import UpsertListener
from merlot.testing.patience import PATIENCE_S, until

POLL_S = 0.02
NUM_PARTITIONS = 2
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
  indexing: {{inverted: [color], noDictionary: [amount]}}
  partitioning: {{columns: {{id: {{functionName: Modulo, numPartitions: 2}}}}}}
  ingestion: {{stream: {{type: files, topic: {topic}, flush: {{rows: {rows}, age: 1h}}}}}}
  upsert: {upsert}
"""
CONFIG = """
apiVersion: merlot.dev/v1alpha1
kind: UpsertConfig
metadata: {{name: latest}}
spec: {{{spec}}}
"""
BY_VERSION = "{config: {mode: FULL, comparisonColumns: [version]}}"
Row = dict[str, Any]


class Board(OwnNode):
    """A node with a table of things that change, and what each of them is by now."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.topic = folder / "topic"
        self.newest: dict[int, Row] = {}
        self.num_rows = 0
        self._random = random.Random(7)
        for number in range(NUM_PARTITIONS):
            (self.topic / str(number)).mkdir(parents=True)
            (self.topic / str(number) / "rows.json").touch()

    async def apply(self, text: str) -> Any:
        return await apply(self.node, text)

    async def create(
        self, upsert: str = "{config: {mode: FULL, comparisonColumns: [version]}}", rows: int = 200
    ) -> None:
        await self.apply(MANIFEST.format(topic=self.topic, rows=rows, upsert=upsert))

    async def rows(self, sql: str) -> list[list[Any]] | None:
        """None while it is not answered."""
        answer = await self.call("POST", "/query/sql", json={"sql": sql})
        if answer["exceptions"]:
            return None
        found: list[list[Any]] = answer["resultTable"]["rows"]
        return found

    def write(self, rows: list[Row]) -> None:
        """Append rows to their partitions, and note which is the newest of each key."""
        lines: list[list[str]] = [[] for _ in range(NUM_PARTITIONS)]
        for row in rows:
            lines[row["id"] % NUM_PARTITIONS].append(json.dumps(row) + "\n")
            before = self.newest.get(row["id"])
            if before is None or row["version"] >= before["version"]:
                self.newest[row["id"]] = row
        for number, texts in enumerate(lines):
            with (self.topic / str(number) / "rows.json").open("a") as file:
                file.write("".join(texts))
        self.num_rows += len(rows)

    def random_rows(self, number: int, keys: int = 150) -> list[Row]:
        """Of few keys, some out of order, some tied, a few that delete."""
        draw = self._random
        return [
            {
                "id": draw.randrange(keys),
                "version": self.num_rows + row - draw.choice((0, 0, 0, 0, 40, 400)),
                "at": 1_700_000_000_000 + self.num_rows + row,
                "amount": draw.randrange(1000),
                "color": draw.choice(("red", "green", "blue")),
                "gone": draw.random() < 0.03,
            }
            for row in range(number)
        ]

    @property
    def expected(self) -> list[list[Any]]:
        rows = sorted(self.newest.values(), key=lambda row: row["id"])
        return [[row["id"], row["version"], row["amount"], row["color"]] for row in rows if not row["gone"]]

    async def shows_newest(self) -> None:
        """Wait for the newest row of each key; every answer on the way has one row of each of its keys."""
        sql = "SELECT id, version, amount, color FROM board ORDER BY id LIMIT 100000"
        found = None
        async with asyncio.timeout(PATIENCE_S):
            while found != self.expected:
                found = await self.rows(sql)
                ids = [row[0] for row in found or ()]
                assert len(ids) == len(set(ids)), "a key has two rows"
                await asyncio.sleep(POLL_S)

    async def told(self, is_enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """What the partitions tell of their keys, once all have told enough."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self.call("GET", "/tables/board/stream")
                told = [replica.get("upsert") for one in found["partitions"] for replica in one["replicas"].values()]
                if len(told) == NUM_PARTITIONS and all(told) and is_enough(told):
                    return told
                await asyncio.sleep(POLL_S)

    async def num_sealed(self) -> int:
        found = await self.call("GET", "/segments/board/metadata")
        return sum(one["crc"] != 0 for one in found.values())


@pytest.fixture
async def board(tmp_path: Path) -> Any:
    async with Board(tmp_path) as started:
        yield started


async def test_queries_show_the_newest_row_of_each_key_over_commits_and_restarts(board: Board) -> None:
    await board.create("{config: {mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone}}")
    for _ in range(3):
        board.write(board.random_rows(320))
        await board.shows_newest()
    async with asyncio.timeout(PATIENCE_S):
        while await board.num_sealed() < 4:
            await asyncio.sleep(POLL_S)
    await board.shows_newest()
    await board.restart()
    await board.shows_newest()
    board.write(board.random_rows(500))
    await board.shows_newest()
    amounts = [row["amount"] for row in board.newest.values() if not row["gone"]]
    assert await board.rows("SELECT COUNT(*), SUM(amount), MAX(amount) FROM board") == [
        [len(amounts), sum(amounts), max(amounts)]
    ]
    by_color = await board.rows("SELECT color, COUNT(*) FROM board GROUP BY color ORDER BY color")
    colors = [row["color"] for row in board.newest.values() if not row["gone"]]
    assert by_color == [[color, colors.count(color)] for color in ("blue", "green", "red")]
    assert await board.rows("SELECT COUNT(*) FROM board WHERE color = 'red'") == [[colors.count("red")]]
    assert await board.rows("SET skipUpsert = true; SELECT COUNT(*) FROM board") == [[board.num_rows]]
    assert await board.rows("SET skipUpsertDelete = true; SELECT COUNT(*) FROM board") == [[len(board.newest)]]
    counts = {"keys": len(board.newest), "valid": len(board.newest), "invalid": board.num_rows - len(board.newest)}
    told = await board.told(lambda told: {name: sum(one[name] for one in told) for name in counts} == counts)
    assert all(one["memoryBytes"] > 0 and one["isBuilt"] for one in told)


async def test_a_key_is_never_seen_twice_nor_missed_while_its_rows_move(board: Board) -> None:
    """Pinot's #7971: a row is invalid in one segment before it is valid in the other."""
    await board.create()
    keys = list(range(100))
    version = 0

    def all_keys() -> list[Row]:
        nonlocal version
        version += 1
        at = 1_700_000_000_000 + version
        return [{"id": key, "version": version, "at": at, "amount": 1, "color": "red", "gone": False} for key in keys]

    board.write(all_keys())
    await board.shows_newest()
    is_over = False

    async def write() -> None:
        nonlocal is_over
        for _ in range(60):
            board.write(all_keys())
            await asyncio.sleep(POLL_S)
        is_over = True

    async def look() -> int:
        number = 0
        while not is_over:
            rows = await board.rows("SELECT COUNT(*), SUM(amount), COUNT(DISTINCT id) FROM board")
            assert rows == [[100, 100, 100]]
            number += 1
        return number

    _, first, second = await asyncio.gather(write(), look(), look())
    assert first + second > 20
    await board.shows_newest()
    async with asyncio.timeout(PATIENCE_S):
        while await board.num_sealed() <= 4:
            await asyncio.sleep(POLL_S)


async def test_nothing_is_consumed_before_the_upsert_config_is_there(board: Board) -> None:
    [applied] = await board.call(
        "POST",
        "/apply",
        data=MANIFEST.format(topic=board.topic, rows=200, upsert="{configRef: latest}"),
        headers={"Content-Type": "application/yaml"},
    )
    assert applied["warnings"] == [
        'spec.upsert.configRef: there is no UpsertConfig "latest" yet; nothing is consumed before it is there'
    ]
    board.write(board.random_rows(100))
    why = 'nothing is consumed: there is no UpsertConfig "latest" yet'

    async def is_told() -> bool:
        told = await board.call("GET", "/tables/board/stream")
        return bool(told.get("error") == why)

    await until(is_told)
    assert await board.call("GET", "/segments/board/metadata") == {}
    await board.apply(CONFIG.format(spec="mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone"))
    await board.shows_newest()


async def test_a_batch_is_refused(board: Board) -> None:
    """No server would ever answer for it."""
    await board.create()
    body = {"records": [{"name": "batch", "crc": 1, "size_bytes": 1, "url": "file:///x", "total_docs": 5}]}
    with pytest.raises(AssertionError, match="takes rows of its stream only"):
        await board.call("POST", "/segments/board/publish", json=body)


async def test_what_a_table_says_against_its_upsert_config_refuses_either(board: Board) -> None:
    await board.create("{configRef: latest}")
    async with aiohttp.ClientSession() as session:
        text = CONFIG.format(spec="mode: FULL, comparisonColumns: [color]")
        async with session.post(f"{board.node.url}/apply", data=text) as answer:
            assert answer.status == 400
            problems = (await answer.json())["problems"]
    assert [one["path"] for one in problems] == ["spec.comparisonColumns[0]"]
    assert "rows are compared by a number or a time" in problems[0]["message"]


HOUR_MS = 3_600_000
T0_MS = 1_700_000_000_000


def at(hours: float, *keys: int) -> list[Row]:
    """Rows of some keys, so many hours after the first."""
    at_ms = T0_MS + round(hours * HOUR_MS)
    return [
        {"id": 2 * key, "version": at_ms, "at": at_ms, "amount": key, "color": "red", "gone": False} for key in keys
    ]


@pytest.mark.parametrize(("pruning", "num_expired"), [("COMMIT", 3), ("SCAN, pruningInterval: 1s", 3), ("ROTATION", 0)])
async def test_a_key_past_its_time_to_live_is_a_new_one_whether_or_not_it_has_left_memory(
    board: Board, pruning: str, num_expired: int
) -> None:
    """S0 (pk1, pk2, pk3), S1 (pk2, pk4), S2 (pk5), and S3 (pk4) when pk4 is past its time to live."""
    await board.create(f"{{config: {{mode: FULL, TtlUnit: HOURS, TtlValue: '2', pruning: {pruning}}}}}")
    seen = "SELECT amount, COUNT(*) FROM board GROUP BY amount ORDER BY amount"

    async def shows(*counts: int) -> None:
        wanted = [[key, count] for key, count in enumerate(counts, start=1)]
        async with asyncio.timeout(PATIENCE_S):
            while await board.rows(seen) != wanted:
                await asyncio.sleep(POLL_S)

    async def commit(number: int) -> None:
        await board.call("POST", "/tables/board/forceCommit")
        async with asyncio.timeout(PATIENCE_S):
            while await board.num_sealed() < number:
                await asyncio.sleep(POLL_S)

    board.write(at(0, 1, 2, 3))
    await shows(1, 1, 1)
    await commit(1)
    board.write(at(1, 2, 4))
    await shows(1, 1, 1, 1)
    await commit(2)
    board.write(at(4, 5))
    await shows(1, 1, 1, 1, 1)
    await commit(3)
    board.write(at(4.5, 4))
    await shows(1, 1, 1, 2, 1)
    assert await board.rows("SELECT COUNT(*) FROM board WHERE amount = 2") == [[1]]
    await board.told(lambda told: sum(one["expired"] for one in told) >= num_expired)
    await board.restart()
    await shows(1, 1, 1, 2, 1)


async def test_a_time_to_live_that_changes_holds_from_the_next_segment_on(board: Board) -> None:
    await board.create("{configRef: latest}")
    await board.apply(CONFIG.format(spec="mode: FULL, comparisonColumns: [at], primaryKeyTtl: 2h"))
    count = "SELECT COUNT(*) FROM board"

    async def shows(number: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await board.rows(count) != [[number]]:
                await asyncio.sleep(POLL_S)

    board.write(at(0, 1))
    await shows(1)
    board.write([*at(4, 2), *at(4, 1)])
    await shows(3)
    await board.apply(CONFIG.format(spec="mode: FULL, comparisonColumns: [at]"))
    async with asyncio.timeout(PATIENCE_S):
        while await board.num_sealed() < 1:
            await asyncio.sleep(POLL_S)
    board.write([*at(40, 3), *at(40, 1)])
    await shows(4)
    await board.restart()
    await shows(4)


async def test_the_first_row_of_a_key_stays_and_rows_in_a_wrong_partition_are_counted(board: Board) -> None:
    await board.create("{config: {mode: DEDUP, comparisonColumns: [at]}}", rows=100)
    rows = [row for row in board.random_rows(700, keys=300) if row["id"] % NUM_PARTITIONS == 0]
    for start in range(0, len(rows), 150):
        board.write(rows[start : start + 150])
    with (board.topic / "1" / "rows.json").open("a") as file:
        file.write("".join(json.dumps(row | {"id": row["id"] + 1000}) + "\n" for row in rows[:5]))
    first: dict[int, int] = {}
    for row in [*rows, *(row | {"id": row["id"] + 1000} for row in rows[:5])]:
        first.setdefault(row["id"], row["amount"])
    wanted = [[key, first[key]] for key in sorted(first)]

    async def shows() -> None:
        for option in ("", "SET skipUpsert = true; "):
            async with asyncio.timeout(PATIENCE_S):
                while await board.rows(f"{option}SELECT id, amount FROM board ORDER BY id LIMIT 100000") != wanted:
                    await asyncio.sleep(POLL_S)

    await shows()
    # Each partition is told of in its own time.
    counts = {"misplaced": 5, "dropped": len(rows) + 5 - len(first)}
    await board.told(lambda told: {name: sum(one[name] for one in told) for name in counts} == counts)
    await board.restart()
    await shows()
    board.write(rows[:100])
    await board.told(lambda told: sum(one["dropped"] for one in told) >= 100)
    await shows()


@pytest.mark.parametrize("keeps_its_port", [True, False])
async def test_a_node_that_restarts_soon_after_a_commit_answers_in_full_or_says_that_it_does_not(
    board: Board, keeps_its_port: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server has no key of the table before the index is built, which is held up here."""
    await board.create("{config: {mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone}}", rows=100)
    async with asyncio.timeout(PATIENCE_S):
        while await board.num_sealed() < 4:
            board.write(board.random_rows(80))
            await board.shows_newest()
    [[total]] = await board.rows("SELECT COUNT(*) FROM board") or [[0]]
    is_held = threading.Event()
    settle = UpsertListener.settle

    def held(listener: UpsertListener) -> None:
        is_held.wait(PATIENCE_S)
        settle(listener)

    port = board.node.port if keeps_its_port else 0
    # Only then: the threads of the node that stops settle too, and it waits for them.
    await board.node.stop()
    monkeypatch.setattr(UpsertListener, "settle", held)
    answers: list[dict[str, Any]] = []
    await board.start_again(port)
    for number in range(60):
        answers.append(await board.call("POST", "/query/sql", json={"sql": "SELECT COUNT(*) FROM board"}))
        if number == 20:
            is_held.set()
        await asyncio.sleep(POLL_S)
    is_held.set()
    for answer in answers:
        assert answer["exceptions"] or answer["resultTable"]["rows"] == [[total]], answer
    await board.shows_newest()
