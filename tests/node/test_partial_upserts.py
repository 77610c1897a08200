"""Rows that are merged into those before them, on a node: over commits and restarts, and in sealed files."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.node.nodes import OwnNode, apply

from merlot.testing.patience import PATIENCE_S

POLL_S = 0.02
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: carts}}
spec:
  schema:
    fields:
      - {{name: id, type: STRING}}
      - {{name: version, type: LONG}}
      - {{name: at, type: TIMESTAMP, role: dateTime}}
      - {{name: total, type: LONG, role: metric}}
      - {{name: price, type: DOUBLE, role: metric}}
      - {{name: largest, type: INT, role: metric}}
      - {{name: first, type: STRING}}
      - {{name: note, type: STRING}}
      - {{name: items, type: STRING, multiValue: true}}
      - {{name: kinds, type: INT, multiValue: true}}
      - {{name: paid, type: BOOLEAN}}
      - {{name: gone, type: BOOLEAN}}
    primaryKey: [id]
  timeColumn: at
  indexing: {{noDictionary: [note]}}
  partitioning: {{columns: {{id: {{functionName: Murmur, numPartitions: 1}}}}}}
  ingestion: {{stream: {{type: files, topic: {topic}, flush: {{rows: {rows}, age: 1h}}}}}}
  upsert:
    config:
      mode: PARTIAL
      comparisonColumns: [version]
      deleteRecordColumn: gone
      snapshot: {snapshot}
      partialUpsertStrategies:
        {{total: INCREMENT, largest: MAX, first: IGNORE, items: APPEND, kinds: UNION, note: FORCE_OVERWRITE}}
"""
NAMES = ("id", "version", "total", "price", "largest", "first", "note", "items", "kinds", "paid")
Row = dict[str, Any]


def merged(before: Row, new: Row) -> Row:
    """One row into another, as the strategies say."""
    found = {name: before[name] if new[name] is None else new[name] for name in new}
    for name, meet in {
        "total": int.__add__,
        "largest": max,
        "items": list.__add__,
        "first": lambda one, _: one,
    }.items():
        if before[name] is not None and new[name] is not None:
            found[name] = meet(before[name], new[name])
    if before["kinds"] is not None and new["kinds"] is not None:
        found["kinds"] = sorted({*before["kinds"], *new["kinds"]})
    return found | {"note": new["note"]}


class Carts(OwnNode):
    """A node with a table of carts, and what each of them is by now."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.topic = folder / "topic"
        self.known: dict[str, Row] = {}
        self.num_rows = 0
        (self.topic / "0").mkdir(parents=True)
        (self.topic / "0" / "rows.json").touch()

    async def create(self, rows: int, snapshot: str) -> None:
        await apply(self.node, MANIFEST.format(topic=self.topic, rows=rows, snapshot=snapshot))

    async def rows(self, sql: str) -> list[list[Any]] | None:
        """None while it is not answered."""
        answer = await self.call("POST", "/query/sql", json={"sql": f"SET enableNullHandling = true; {sql}"})
        return None if answer["exceptions"] else answer["resultTable"]["rows"]

    def write(self, rows: list[Row]) -> None:
        """Append rows, and note what they come to."""
        for given in rows:
            row = dict(given)
            before = self.known.get(row["id"])
            if before is None or (row["version"] >= before["version"] and (before["gone"] or row["gone"])):
                self.known[row["id"]] = row
            elif row["version"] >= before["version"]:
                self.known[row["id"]] = merged(before, row)
        with (self.topic / "0" / "rows.json").open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        self.num_rows += len(rows)

    def random_rows(self, draw: random.Random, number: int, keys: int = 60) -> list[Row]:
        """Of few keys; some out of order, a few that delete, a lot of nulls."""

        def some(value: Any) -> Any:
            return value if draw.random() < 0.6 else None

        return [
            {
                "id": f"cart-{draw.randrange(keys)}",
                "version": self.num_rows + row - draw.choice((0, 0, 0, 0, 30)),
                "at": 1_700_000_000_000 + self.num_rows + row,
                "total": some(draw.randrange(-5, 100)),
                "price": some(draw.randrange(100) / 8),
                "largest": some(draw.randrange(100)),
                "first": some(draw.choice("abc")),
                "note": some(draw.choice(("", "short", "x" * 40))),
                "items": some([f"item-{draw.randrange(9)}" for _ in range(draw.randrange(1, 3))]),
                "kinds": some([draw.randrange(5) for _ in range(draw.randrange(1, 4))]),
                "paid": some(draw.random() < 0.5),
                "gone": draw.random() < 0.05,
            }
            for row in range(number)
        ]

    async def num_sealed(self) -> int:
        found = await self.call("GET", "/segments/carts/metadata")
        return sum(one["crc"] != 0 for one in found.values())

    async def shows(self) -> None:
        """Wait until queries show every cart as it is."""
        wanted = [[row[name] for name in NAMES] for _, row in sorted(self.known.items()) if not row["gone"]]
        found = None
        async with asyncio.timeout(PATIENCE_S):
            while found != wanted:
                found = await self.rows(f"SELECT {', '.join(NAMES)} FROM carts ORDER BY id LIMIT 100000")
                await asyncio.sleep(POLL_S)


@pytest.fixture
async def carts(tmp_path: Path) -> Any:
    async with Carts(tmp_path) as started:
        yield started


@pytest.mark.parametrize("snapshot", ["DISABLE", "ENABLE"])
async def test_rows_are_merged_once_over_commits_and_restarts(carts: Carts, snapshot: str) -> None:
    draw = random.Random(5)
    await carts.create(rows=150, snapshot=snapshot)
    for number in (1, 40, 400):
        carts.write(carts.random_rows(draw, number))
        await carts.shows()
    await carts.restart()
    await carts.shows()
    for number in (300, 20):
        carts.write(carts.random_rows(draw, number))
        await carts.shows()
    assert await carts.rows("SET skipUpsert = true; SELECT COUNT(*) FROM carts") == [[carts.num_rows]]
    # Rows are answered before their segment is stored.
    async with asyncio.timeout(PATIENCE_S):
        while await carts.num_sealed() < 4:
            await asyncio.sleep(POLL_S)
