"""Small sealed segments become one, and no query sees anything of it: not while it happens, nor after."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.embedded.test_upserts import POLL_S, Board
from tests.unit.embedded.watched_keys import WatchedKeys

from merlot.cluster.consuming.merged import MERGED
from merlot.embedded.node import Node, NodeConfig
from merlot.server.realtime.files import Files
from merlot.testing.patience import PATIENCE_S

EAGER = "compaction: {bufferTimePeriod: 0d, invalidRecordsThresholdCount: 1000000, merge: {maxNumSegmentsPerTask: 4}}"
MODES = {
    "whole rows": f"{{config: {{mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone, {EAGER}}}}}",
    "snapshots": f"{{config: {{mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone, snapshot: ENABLE, "
    f"{EAGER}}}}}",
}


class MergingBoard(Board):
    """Its server answers by files soon after a commit, so that these can be merged."""

    grace_s = 4.0

    def _made(self) -> Node:
        folders = (str(self._folder),)
        return Node(NodeConfig(data_dir=self._data, http_port=0, grace_s=self.grace_s, stream_folders=folders))

    async def sealed(self) -> dict[str, Any]:
        found = await self.call("GET", "/segments/board/metadata")
        return {name: one for name, one in found.items() if one["crc"] != 0}

    async def num_merged(self) -> int:
        """Segments that others were merged into, and that are alone by now."""
        found = await self.sealed()
        keys = {f"{name}@{one['crc']}" for name, one in found.items()}
        merged = [one["customMap"][MERGED].split(",") for one in found.values() if MERGED in one["customMap"]]
        return sum(keys.isdisjoint(one) for one in merged)


@pytest.fixture
async def board(tmp_path: Path) -> Any:
    async with MergingBoard(tmp_path) as started:
        yield started


@pytest.mark.parametrize(
    "mode",
    ["snapshots", pytest.param("whole rows", marks=pytest.mark.slow("the next tests merge whole rows"))],
)
async def test_small_segments_become_one_while_rows_come_and_over_a_restart(board: MergingBoard, mode: str) -> None:
    await board.create(MODES[mode], rows=100)
    async with asyncio.timeout(PATIENCE_S):
        while await board.num_merged() < 2:
            if await board.num_sealed() < 30:
                board.write(board.random_rows(80))
            await board.shows_newest()
            await asyncio.sleep(5 * POLL_S)  # the other test looks without a pause
    before = await board.num_sealed()
    await board.restart()
    await board.shows_newest()
    board.write(board.random_rows(160))
    await board.shows_newest()
    async with asyncio.timeout(PATIENCE_S):
        # What was being sealed when they were counted may be merged yet.
        while await board.num_sealed() >= before + 4:
            await asyncio.sleep(POLL_S)
    counts = {"keys": len(board.newest), "valid": len(board.newest)}
    await board.told(lambda told: {name: sum(one[name] for one in told) for name in counts} == counts)


async def test_no_answer_lacks_a_key_or_has_it_twice_while_segments_become_one(board: MergingBoard) -> None:
    await board.create(MODES["whole rows"], rows=100)
    keys = WatchedKeys(board, 1000)

    async def until_merged() -> None:
        while await board.num_merged() < 2:
            keys.write(40)
            await asyncio.sleep(2 * POLL_S)

    await keys.hold_while(until_merged)


async def test_files_answer_until_the_index_follows_the_one_in_their_place(
    board: MergingBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late that is: on a busy machine it may be after their grace period."""
    follow, may_follow = Files.renumbered, threading.Event()
    monkeypatch.setattr(Files, "renumbered", lambda *arguments: follow(*arguments) if may_follow.is_set() else None)
    board.grace_s = 1.0
    await board.restart()
    await board.create(MODES["whole rows"], rows=100)
    keys = WatchedKeys(board, 400)

    async def until_merged() -> None:
        while not any(MERGED in one["customMap"] for one in (await board.sealed()).values()):
            keys.write(40)
            await asyncio.sleep(2 * POLL_S)
        await asyncio.sleep(4 * board.grace_s)
        may_follow.set()
        while not await board.num_merged():
            await asyncio.sleep(POLL_S)

    await keys.hold_while(until_merged)
