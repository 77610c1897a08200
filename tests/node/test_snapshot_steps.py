"""A server that dies or stands still at any step of keeping a checkpoint, or cannot take it: answers stay as they are,
before a restart and after it, and what is kept in the end is whole."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.node.test_upsert_snapshots import KEPT, NOT_KEPT, KeepingBoard, files, is_current
from tests.node.test_upserts import CONFIG, POLL_S

from merlot.cluster.consuming import checkpoints
from merlot.server.realtime.snapshot_files import LIST, SnapshotFolder
from merlot.store.deepstore import DeepStore
from merlot.store.retry import OutOfSpaceError
from merlot.testing.patience import PATIENCE_S


class Dying(BaseException):
    """The thread is gone, as with its process."""


class Steps:
    """Dies at one step of keeping snapshots, each time that it is reached, and tells whether it was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Callable[[], BaseException] = Dying) -> None:
        self._patch = monkeypatch
        self._error = error
        self.was_reached = False

    @contextmanager
    def at(self, step: str) -> Any:
        owner, name, is_after, is_meant = STEPS[step]
        before = getattr(owner, name)
        self.was_reached = False

        def dies(*arguments: Any, **named: Any) -> Any:
            if not is_meant(*arguments):
                return before(*arguments, **named)
            if is_after:
                before(*arguments, **named)
            self.was_reached = True
            raise self._error()

        with self._patch.context() as patched:
            patched.setattr(owner, name, dies)
            yield


def always(*_: Any) -> bool:
    return True


def is_snapshot(_: Any, *arguments: Any) -> bool:
    """Whether a file of the deep store is one."""
    return any(checkpoints.SNAPSHOT_FOLDER in str(one) for one in arguments)


def is_list(_: Any, path: Path, *__: Any) -> bool:
    return path.name == LIST


def is_bits(_: Any, path: Path, *__: Any) -> bool:
    return path.name != LIST


STEPS: dict[str, tuple[Any, str, bool, Callable[..., bool]]] = {
    "before a file is written": (SnapshotFolder, "_write", False, is_bits),
    "after a file is written": (SnapshotFolder, "_write", True, is_bits),
    "before the list is written": (SnapshotFolder, "_write", False, is_list),
    "after the list is written": (SnapshotFolder, "_write", True, is_list),
    "before a file is uploaded": (DeepStore, "put", False, is_snapshot),
    "after a file is uploaded": (DeepStore, "put", True, is_snapshot),
    "before it is recorded": (checkpoints, "write_checkpoint", False, always),
    "after it is recorded": (checkpoints, "write_checkpoint", True, always),
    "before an old one is deleted": (DeepStore, "delete", False, is_snapshot),
    "after an old one is deleted": (DeepStore, "delete", True, is_snapshot),
}


@pytest.fixture
async def board(tmp_path: Path) -> Any:
    async with KeepingBoard(tmp_path) as started:
        await started.create("{configRef: latest}", rows=100)
        await started.apply(CONFIG.format(spec=KEPT))
        started.write(started.random_rows(250))
        await started.shows_newest()
        await is_current(started)
        yield started


async def reached(steps: Steps, board: KeepingBoard) -> None:
    """Rows come until the step is reached, and are seen all the while."""
    async with asyncio.timeout(PATIENCE_S):
        while not steps.was_reached:
            board.write(board.random_rows(230))
            await board.shows_newest()
            await asyncio.sleep(POLL_S)


async def test_a_server_may_die_at_any_step_of_keeping_a_checkpoint(
    board: KeepingBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    for number, step in enumerate(STEPS):
        with steps.at(step):
            await reached(steps, board)
        if number % 3 == 2:
            await board.without_disk()
        else:
            await board.restart()
        await board.shows_newest()
    await is_current(board)
    await board.restart()
    await board.shows_newest()


@contextmanager
def standing_still(monkeypatch: pytest.MonkeyPatch, step: str) -> Iterator[threading.Event]:
    """Whoever keeps snapshots stands still at the step until the block ends; the event says that it was reached."""
    owner, name, is_after, is_meant = STEPS[step]
    before = getattr(owner, name)
    reached, goes_on = threading.Event(), threading.Event()

    def waits(*arguments: Any, **named: Any) -> Any:
        if is_meant(*arguments) and not is_after:
            reached.set()
            assert goes_on.wait(PATIENCE_S)
        found = before(*arguments, **named)
        if is_meant(*arguments) and is_after:
            reached.set()
            assert goes_on.wait(PATIENCE_S)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, waits)
        try:
            yield reached
        finally:
            goes_on.set()


async def named_snapshots(board: KeepingBoard) -> set[str]:
    """Files that segments say their snapshots are in."""
    told = await board.call("GET", "/segments/board/metadata")
    urls = (one.get("segment.upsert.snapshot.download.url") for one in told.values())
    return {Path(url).name for url in urls if url}


async def test_rows_come_and_segments_are_committed_while_a_checkpoint_is_not_finished(
    board: KeepingBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a deep store that hangs."""
    for step in (one for one in STEPS if "upload" in one or "record" in one or "list" in one):
        await rows_come_while_a_checkpoint_stands_still(board, monkeypatch, step)
    await board.without_disk()
    await board.shows_newest()


async def rows_come_while_a_checkpoint_stands_still(
    board: KeepingBoard, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with standing_still(monkeypatch, step) as is_reached:
        async with asyncio.timeout(PATIENCE_S):
            while not is_reached.is_set():
                board.write(board.random_rows(230))
                await board.shows_newest()
                await asyncio.sleep(POLL_S)
            before = await board.num_sealed()
            named = await named_snapshots(board)
            while await board.num_sealed() < before + 4:
                board.write(board.random_rows(230))
                await board.shows_newest()
                await asyncio.sleep(POLL_S)
        assert await named_snapshots(board) == named, f"told of what is not whole, {step}"
        assert named <= {file.name for file in files(board.deep)}
    await is_current(board)
    assert await named_snapshots(board) <= {file.name for file in files(board.deep)}


async def test_a_server_may_die_while_snapshots_are_deleted(
    board: KeepingBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    with steps.at("before an old one is deleted"):
        await board.apply(CONFIG.format(spec=NOT_KEPT))
        await reached(steps, board)
    assert files(board.deep)
    await board.restart()
    await board.shows_newest()
    async with asyncio.timeout(PATIENCE_S):
        while files(board.deep) or files(board.local):
            await asyncio.sleep(POLL_S)
    await board.shows_newest()


async def test_what_cannot_be_kept_is_told_and_kept_once_it_can(
    board: KeepingBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a deep store that does not answer, shared state that does not."""
    steps = Steps(monkeypatch, lambda: OutOfSpaceError("no room for it"))
    for step in ("before a file is written", "before a file is uploaded", "before it is recorded"):
        await what_cannot_be_kept_is_told_and_kept_once_it_can(board, steps, step)


async def what_cannot_be_kept_is_told_and_kept_once_it_can(board: KeepingBoard, steps: Steps, step: str) -> None:
    with steps.at(step):
        await reached(steps, board)
        told = await board.told(lambda told: any(one["snapshotError"] for one in told))
        assert {one["snapshotError"] for one in told} <= {"", "no room for it"}
        board.write(board.random_rows(230))
        await board.shows_newest()
    board.write(board.random_rows(230))
    await board.shows_newest()
    await board.told(lambda told: not any(one["snapshotError"] for one in told))
    await is_current(board)
