"""Rows that were replaced leave their segments, and no query sees anything of it: not while it happens, nor after."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.node.test_upserts import POLL_S, Board
from tests.node.watched_keys import WatchedKeys

from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.testing.patience import PATIENCE_S

COMPACTED = "UpsertCompactionTask.time"
EAGER = "compaction: {bufferTimePeriod: 0d, invalidRecordsThresholdPercent: 5}"
BY_VERSION = f"{{config: {{mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone, {EAGER}}}}}"


class HastyBoard(Board):
    """Its node soon answers by files, and soon lets go of versions of segments that were replaced. Until then their
    records stay as they are, and their rows are not gone."""

    def _made(self) -> EmbeddedNode:
        folders = (str(self._folder),)
        return EmbeddedNode(
            NodeConfig(data_dir=self._data, http_port=0, grace_s=4, stream_folders=folders, tuning=self.tuning)
        )


@pytest.fixture
async def board(tmp_path: Path) -> Any:
    async with HastyBoard(tmp_path) as started:
        yield started


async def stored(board: Board) -> int:
    """Rows in sealed segments."""
    found = await board.call("GET", "/segments/board/metadata")
    return sum(one["totalDocs"] for one in found.values() if one["crc"] != 0)


async def num_compacted(board: Board) -> int:
    found = await board.call("GET", "/segments/board/metadata")
    return sum(COMPACTED in one["customMap"] for one in found.values())


@pytest.mark.slow("the next test watches the same without a restart, test_expiring_compaction over restarts")
async def test_replaced_rows_leave_sealed_segments_while_others_replace_more_and_queries_run(board: Board) -> None:
    await board.create(BY_VERSION, rows=200)
    for number in range(100):
        async with asyncio.timeout(PATIENCE_S):
            board.write(board.random_rows(160))
            await board.shows_newest()
            if number > 4 and await num_compacted(board) >= 2:
                break
    assert await stored(board) < board.num_rows - 200
    await board.restart()
    await board.shows_newest()
    board.write(board.random_rows(160))
    await board.shows_newest()


async def test_no_answer_lacks_a_key_or_has_it_twice_while_files_take_the_place_of_others(board: Board) -> None:
    await board.create(BY_VERSION, rows=150)
    keys = WatchedKeys(board, 100)

    async def until_compacted() -> None:
        for _ in range(40):
            keys.write(50)
            await asyncio.sleep(POLL_S)
        while await num_compacted(board) < 2 or await stored(board) > board.num_rows // 2:
            keys.write(1)
            await asyncio.sleep(POLL_S)

    await keys.hold_while(until_compacted)


async def num_committed(board: Board) -> int:
    """Sealed segments, those included that are gone: the last of each partition stays."""
    found = await board.call("GET", "/segments/board/metadata")
    sealed = [name.split("__") for name, one in found.items() if one["crc"] != 0]
    newest = {partition: int(sequence) for _, partition, sequence, _ in sorted(sealed, key=lambda one: int(one[2]))}
    return sum(sequence + 1 for sequence in newest.values())


async def test_segments_without_a_valid_row_are_removed(board: Board) -> None:
    await board.create(BY_VERSION, rows=200)
    while await num_committed(board) < 12:
        rows = board.random_rows(100, keys=20)
        board.write([{**row, "version": board.num_rows + place} for place, row in enumerate(rows)])
        async with asyncio.timeout(PATIENCE_S):
            await board.shows_newest()
    async with asyncio.timeout(PATIENCE_S):
        # A server lets go of a segment's rows a little after its record is gone.
        while await board.num_sealed() > 6 or await stored(board) > 1000:
            await board.shows_newest()
            await asyncio.sleep(POLL_S)
    await board.shows_newest()
    await board.restart()
    await board.shows_newest()
