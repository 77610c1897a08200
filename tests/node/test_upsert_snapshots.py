"""A node whose upsert tables keep snapshots: restarts, lost disks, and snapshots turned on and off while it runs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.node.nodes import with_checkpoint_rest
from tests.node.test_upserts import CONFIG, POLL_S, Board

from merlot.testing.patience import PATIENCE_S
from merlot.upsert.partition import PartitionUpserts

KEPT = "mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone, snapshot: ENABLE"
NOT_KEPT = "mode: FULL, comparisonColumns: [version], deleteRecordColumn: gone"


class KeepingBoard(Board):
    """With a look at what it keeps."""

    tuning = with_checkpoint_rest(50)

    @property
    def deep(self) -> Path:
        return self._data / "deepstore"

    @property
    def local(self) -> Path:
        return self._data / "server" / "snapshots"

    async def without_disk(self) -> None:
        """Begin anew without the snapshots on it."""
        await self.node.stop()
        shutil.rmtree(self.local)
        self.node = self._made()
        await self.node.start()


@pytest.fixture
async def board(tmp_path: Path) -> Any:
    async with KeepingBoard(tmp_path) as started:
        yield started


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.valid"))


async def is_current(board: KeepingBoard) -> None:
    """Wait until every sealed segment is in a checkpoint of its partition."""
    await board.told(lambda told: all(one["snapshot"] and one["snapshotMs"] for one in told) and not missing(told))


def missing(told: list[dict[str, Any]]) -> int:
    return sum(one["snapshotsMissing"] for one in told)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Stored rows that are compared again."""
    replayed: list[int] = []
    replay = PartitionUpserts.replay

    def noted(self: PartitionUpserts, rows: Any, segment: int, first_doc: int) -> Any:
        replayed.append(rows.num_rows)
        return replay(self, rows, segment, first_doc)

    with monkeypatch.context() as patched:
        patched.setattr(PartitionUpserts, "replay", noted)
        yield replayed


async def test_a_restart_compares_no_row_again_and_a_lost_disk_neither(
    board: KeepingBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await board.create(f"{{config: {{{KEPT}}}}}")
    for _ in range(3):
        board.write(board.random_rows(450))
        await board.shows_newest()
    await is_current(board)
    assert files(board.deep)
    assert files(board.local)
    told = await board.call("GET", "/segments/board/metadata")
    named = {one["segment.upsert.snapshot.download.url"] for one in told.values() if one.get("snapshotUrl")}
    assert {Path(url).name for url in named} <= {file.name for file in files(board.deep)}
    assert named
    with counted(monkeypatch) as replayed:
        await board.restart()
        await board.shows_newest()
    assert sum(replayed) < board.num_rows // 2, "but for what was committed since"
    with counted(monkeypatch) as replayed:
        await board.without_disk()
        await board.shows_newest()
    assert sum(replayed) < board.num_rows // 2, "but for what was committed since"
    for file in files(board.deep):
        file.write_bytes(file.read_bytes()[:-1])
    with counted(monkeypatch) as replayed:
        await board.without_disk()
        await board.shows_newest()
    assert sum(replayed) > board.num_rows // 2, "what is damaged is replaced by what is stored"


async def test_snapshots_come_and_go_with_the_settings(board: KeepingBoard) -> None:
    await board.create("{configRef: latest}")
    await board.apply(CONFIG.format(spec=NOT_KEPT))
    board.write(board.random_rows(450))
    await board.shows_newest()
    assert not files(board.deep)
    await board.apply(CONFIG.format(spec=KEPT))
    await is_current(board)
    assert files(board.deep)
    board.write(board.random_rows(450))
    await board.shows_newest()
    await board.apply(CONFIG.format(spec=NOT_KEPT))
    async with asyncio.timeout(PATIENCE_S):
        while files(board.deep) or files(board.local):
            await asyncio.sleep(POLL_S)
    await board.told(lambda told: all(one["snapshot"] == "" and one["snapshotMs"] is None for one in told))
    await board.shows_newest()
    await board.restart()
    await board.shows_newest()
