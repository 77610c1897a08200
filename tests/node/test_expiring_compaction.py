"""Rows leave segments of a table whose keys expire, and nobody decides otherwise, over restarts and lost disks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.node.nodes import with_checkpoint_rest
from tests.node.test_upsert_snapshots import KeepingBoard
from tests.node.test_upserts import NUM_PARTITIONS, POLL_S, Row
from tests.unit.upsert.oracle import Oracle

from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.testing.patience import PATIENCE_S

TTL = 150
EAGER = "snapshot: ENABLE, compaction: {bufferTimePeriod: 0d, invalidRecordsThresholdPercent: 5}"
BY_VERSION = f"{{config: {{mode: MODE, comparisonColumns: [version], primaryKeyTtl: '{TTL}', {EAGER}}}}}"
SHOWN = "SELECT amount FROM board ORDER BY amount LIMIT 1000000"


class ExpiringBoard(KeepingBoard):
    """Each row's amount is its number: which rows are shown is told by them.

    Its server answers by files soon after a commit: once a segment that it answers for by rows is rewritten, no other
    checkpoint is kept until it does, and without one nothing more is rewritten."""

    tuning = with_checkpoint_rest(100)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.oracles = [Oracle(TTL) for _ in range(NUM_PARTITIONS)]

    def _made(self) -> EmbeddedNode:
        folders = (str(self._folder),)
        return EmbeddedNode(
            NodeConfig(data_dir=self._data, http_port=0, grace_s=1, stream_folders=folders, tuning=self.tuning)
        )

    def write(self, rows: list[Row]) -> None:
        numbered = [{**row, "amount": self.num_rows + place, "gone": False} for place, row in enumerate(rows)]
        for row in numbered:
            self.oracles[row["id"] % NUM_PARTITIONS].add(row["id"], row["version"], False, (0, row["amount"]))
        super().write(numbered)

    @property
    def expected(self) -> list[list[Any]]:
        return sorted([number] for oracle in self.oracles for _, number in oracle.valid)

    async def shows_expected(self) -> None:
        found = None
        async with asyncio.timeout(PATIENCE_S):
            while found != self.expected:
                found = await self.rows(SHOWN)
                await asyncio.sleep(POLL_S)

    async def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.call("GET", "/segments/board/metadata")
        return {name: one for name, one in found.items() if one["crc"] != 0}

    async def num_compacted(self) -> int:
        return sum("UpsertCompactionTask.decidedUntil" in one["customMap"] for one in (await self.stored()).values())


@pytest.fixture
async def board(tmp_path: Path) -> Any:
    async with ExpiringBoard(tmp_path) as started:
        yield started


@pytest.mark.parametrize("mode", ["FULL", "PARTIAL"])
async def test_rows_that_decided_others_leave_and_restarts_decide_the_same(board: ExpiringBoard, mode: str) -> None:
    await board.create(BY_VERSION.replace("MODE", mode), rows=200)
    async with asyncio.timeout(PATIENCE_S):
        for number in range(200):
            board.write(board.random_rows(160))
            await board.shows_expected()
            if number > 6 and await board.num_compacted() >= 4:
                break
    assert sum(one["totalDocs"] for one in (await board.stored()).values()) < board.num_rows - 200
    assert len(board.expected) > len({row["id"] for row in board.newest.values()}), "no key has expired"
    [said] = [one for one in (await board.call("GET", "/status"))["tables"].values() if one["name"] == "board"]
    assert said["upsert"]["compaction"]["rewritten"] >= 2
    assert said["upsert"]["compaction"]["rowsRemoved"] > 0
    await board.restart()
    await board.shows_expected()
    board.write(board.random_rows(320))
    await board.shows_expected()
    await board.without_disk()
    await board.shows_expected()
    board.write(board.random_rows(160))
    await board.shows_expected()
