"""Small sealed segments become one, and no query sees anything of it: not while it happens, nor after."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.node.test_upserts import POLL_S, Board
from tests.node.watched_keys import WatchedKeys

from merlot.cluster.consuming import merges
from merlot.cluster.consuming.merged import MERGED
from merlot.cluster.consuming.partitions import stream_segment
from merlot.cluster.segments.mutations import Mutation, PutSegments, RemoveSegments
from merlot.cluster.segments.view import TableView
from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.server.realtime.files import NumberingFiles
from merlot.testing.patience import PATIENCE_S, until

EAGER = "compaction: {bufferTimePeriod: 0d, invalidRecordsThresholdCount: 1000000, merge: {maxNumSegmentsPerTask: 4}}"
NUM_KEYS = 2000
"""So many that segments keep valid rows: a merge of segments without any only removes them."""
MODES = {
    "whole rows": f"{{config: {{mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone, {EAGER}}}}}",
    "snapshots": f"{{config: {{mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone, snapshot: ENABLE, "
    f"{EAGER}}}}}",
}


class MergingBoard(Board):
    """Its server answers by files soon after a commit, so that these can be merged."""

    grace_s = 4.0

    def _made(self) -> EmbeddedNode:
        folders = (str(self._folder),)
        return EmbeddedNode(
            NodeConfig(
                data_dir=self._data, http_port=0, grace_s=self.grace_s, stream_folders=folders, tuning=self.tuning
            )
        )

    async def sealed(self) -> dict[str, Any]:
        found = await self.call("GET", "/segments/board/metadata")
        return {name: one for name, one in found.items() if one["crc"] != 0}

    async def num_merged(self) -> int:
        """Segments that others were merged into, and that are alone by now."""
        found = await self.sealed()
        keys = {f"{name}@{one['crc']}" for name, one in found.items()}
        merged = [one["customMap"][MERGED].split(",") for one in found.values() if MERGED in one["customMap"]]
        return sum(keys.isdisjoint(one) for one in merged)

    def files(self) -> set[str]:
        """Return the files of sealed segments that the server has on its disk, as `name@crc`."""
        return {path.stem for path in (self._data / "server" / "segments").rglob("*.mseg")}


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
                board.write(board.random_rows(80, NUM_KEYS))
            await board.shows_newest()
            await asyncio.sleep(5 * POLL_S)  # the other test looks without a pause
    before = await board.num_sealed()
    await board.restart()
    await board.shows_newest()
    board.write(board.random_rows(160, NUM_KEYS))
    await board.shows_newest()
    async with asyncio.timeout(PATIENCE_S):
        # What was being sealed when they were counted may be merged yet.
        while await board.num_sealed() >= before + 4:
            await asyncio.sleep(POLL_S)
    counts = {"keys": len(board.newest), "valid": len(board.newest)}
    await board.told(lambda told: {name: sum(one[name] for one in told) for name in counts} == counts)


@pytest.mark.slow("the next test watches the same keys while the index follows late")
async def test_no_answer_lacks_a_key_or_has_it_twice_while_segments_become_one(board: MergingBoard) -> None:
    await board.create(MODES["whole rows"], rows=100)
    keys = WatchedKeys(board, 1000)

    async def until_merged() -> None:
        while await board.num_merged() < 2:
            keys.write(40)
            await asyncio.sleep(2 * POLL_S)

    await keys.hold_while(until_merged)


@pytest.fixture
def may_follow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Keep indexes from following new files until this is set."""
    follow, may = NumberingFiles.renumbered, threading.Event()
    monkeypatch.setattr(NumberingFiles, "renumbered", lambda *arguments: follow(*arguments) if may.is_set() else None)
    return may


async def test_files_answer_until_the_index_follows_the_one_in_their_place(
    board: MergingBoard, may_follow: threading.Event
) -> None:
    """However late that is: on a busy machine it may be after their grace period."""
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


def at_once(view: TableView, merged: merges.Merged) -> list[Mutation]:
    """Make both swaps of a merge in one change of the table."""
    (put,) = ONE_SWAP(view, merged) or (None,)
    first = stream_segment(view, merged.keys[0].name)
    if put is None or first is None:
        return []
    assert isinstance(put, PutSegments)
    whole = put.records[0].model_copy(update={"start_offset": first.start_offset, "lost_from": first.lost_from})
    return [RemoveSegments(merged.keys[:-1]), PutSegments((whole,), put.expected)]


ONE_SWAP = merges.merge


@pytest.mark.slow("the test before it holds the index back too, over two looks at the table")
async def test_files_that_are_gone_from_the_table_stay_until_the_index_follows(
    board: MergingBoard, may_follow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has no grace period, and learns of both swaps in one look at the table."""
    board.grace_s = 0.0
    await board.restart()
    merged: list[merges.Merged] = []

    def swap(view: TableView, one: merges.Merged) -> list[Mutation]:
        merged.append(one)
        return at_once(view, one) if one is merged[0] else []

    monkeypatch.setattr(merges, "merge", swap)
    await board.create(MODES["whole rows"], rows=100)
    async with asyncio.timeout(PATIENCE_S):
        while not merged:
            if await board.num_sealed() < 30:
                board.write(board.random_rows(80, NUM_KEYS))
            await asyncio.sleep(2 * POLL_S)
    olds = set(map(str, merged[0].keys))
    new = f"{merged[0].keys[-1].name}@{merged[0].file.crc}"
    await until(lambda: new in board.files())
    await asyncio.sleep(3.0)  # longer than a file that leaves lingers
    assert olds <= board.files()
    may_follow.set()
    await board.shows_newest()
    await until(lambda: olds.isdisjoint(board.files()))
    await board.shows_newest()
