"""A backfill of an upsert table: rows of keys that have expired are read again, and no key has two rows for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.node.test_upserts import CONFIG, POLL_S, Board, Row, at

from merlot.cli.main import run
from merlot.controller.realtime import backfill
from merlot.testing.patience import PATIENCE_S, until

TTL = "mode: FULL, comparisonColumns: [at], primaryKeyTtl: 2h"
STEPS = ["DISABLE_TTL", "SCALE", "RECOVER", "LOAD", "ENABLE_TTL", "PRUNE", "DONE"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is soon over, once servers tell what it waits for."""
    monkeypatch.setattr(backfill, "SETTLED_MS", 300)


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[Board]:
    """Three keys that have expired, and one that has not."""
    async with Board(tmp_path) as board:
        await board.create("{configRef: latest}")
        await board.apply(CONFIG.format(spec=TTL))
        board.write(at(0, 1, 2, 3))
        await shows(board, 1, 1, 1)
        await commit(board)
        board.write(at(4, 5))
        await shows(board, 1, 1, 1, 0, 1)
        await commit(board)
        await board.told(lambda told: sum(one["expired"] for one in told) == 3)
        yield board


async def shows(board: Board, *counts: int) -> None:
    """Wait for that many rows of each key."""
    wanted = [[key, count] for key, count in enumerate(counts, start=1) if count]
    async with asyncio.timeout(PATIENCE_S):
        while await board.rows("SELECT id / 2, COUNT(*) FROM board GROUP BY id / 2 ORDER BY id / 2") != wanted:
            await asyncio.sleep(POLL_S)


async def commit(board: Board) -> None:
    before = await board.num_sealed()
    await board.call("POST", "/tables/board/forceCommit")
    async with asyncio.timeout(PATIENCE_S):
        while await board.num_sealed() <= before:
            await asyncio.sleep(POLL_S)


async def is_at(board: Board, step: str) -> dict[str, Any]:
    """Wait for that step of a backfill, which the controller may not have begun yet."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: dict[str, Any] | None = (await status(board))["backfill"]
            if found is not None and found["step"] == step:
                return found
            await asyncio.sleep(POLL_S)


async def status(board: Board) -> dict[str, Any]:
    found: dict[str, Any] = (await board.call("GET", "/status"))["tables"]["board"]["upsert"]
    return found


async def test_what_is_read_again_without_a_backfill_makes_second_rows(board: Board) -> None:
    await board.call("POST", "/tables/board/consumeFrom?offsets=0:0")
    await shows(board, 2, 2, 2, 0, 1)


async def test_rows_that_are_read_again_replace_those_that_had_expired(board: Board) -> None:
    seen: set[str] = set()
    begun = await board.call("POST", "/tables/board/backfill?offsets=0:0")
    while begun["step"] != "DONE":
        counts = await board.rows("SELECT COUNT(*), COUNT(DISTINCT id) FROM board")
        assert counts == [[4, 4]], "queries are answered, and rightly, at every step"
        begun = await board.call("GET", "/tables/board/backfill")
        seen.add(begun["step"])
    assert seen <= set(STEPS)
    await shows(board, 1, 1, 1, 0, 1)
    assert await board.rows("SET skipUpsert = true; SELECT COUNT(*) FROM board") == [[8]]
    await board.restart()
    await shows(board, 1, 1, 1, 0, 1)
    board.write(at(4.5, 1))
    await shows(board, 2, 1, 1, 0, 1)


async def test_a_backfill_goes_on_after_a_restart_at_any_step(board: Board) -> None:
    begun = await board.call("POST", "/tables/board/backfill?offsets=0:0")
    while begun["step"] != "DONE":
        await board.restart()
        step = begun["step"]
        async with asyncio.timeout(PATIENCE_S):
            while begun["step"] == step:
                begun = await board.call("GET", "/tables/board/backfill")
                await asyncio.sleep(POLL_S)
    await shows(board, 1, 1, 1, 0, 1)


async def test_rows_that_are_produced_meanwhile_are_loaded_once_somebody_says_that_these_are_all(board: Board) -> None:
    spec = f"{TTL}, backfill: {{name: correction, table: board}}"
    await board.apply(CONFIG.format(spec=spec))
    waiting = await is_at(board, "LOAD")
    rows: list[Row] = [{**row, "color": "blue"} for row in at(0, 1, 2)]
    board.write(rows)
    async with asyncio.timeout(PATIENCE_S):
        while not waiting["message"]:
            waiting = await is_at(board, "LOAD")
    assert waiting["message"] == "somebody has to say when everything has been produced into the stream"
    assert (await status(board))["backfill"]["step"] == "LOAD"
    await board.apply(
        CONFIG.format(spec=spec.replace("}}", ", loaded: true}}").replace("board}", "board, loaded: true}"))
    )
    await is_at(board, "DONE")
    await shows(board, 1, 1, 1, 0, 1)
    assert await board.rows("SELECT COUNT(*) FROM board WHERE color = 'blue'") == [[2]]

    async def is_in_force() -> bool:
        told = await status(board)
        return (told["inForce"], told["behind"], told["waitsFor"]) == (2, [], "")

    await until(is_in_force)


async def test_a_backfill_that_is_cancelled_lets_keys_expire_again(board: Board) -> None:
    await board.call("POST", "/tables/board/backfill")
    await is_at(board, "LOAD")
    await board.call("DELETE", "/tables/board/backfill")
    assert (await is_at(board, "DONE"))["cancelled"]
    board.write(at(4.5, 1))
    await shows(board, 2, 1, 1, 0, 1)


async def test_what_cannot_be_read_again_is_refused(board: Board) -> None:
    refusals = {
        "?offsets=7:0": "there is no partition 7",
        "?offsets=0:4000000": "is not before",
        "?offsets=": "no partition",
    }
    async with aiohttp.ClientSession() as session:
        for query, reason in refusals.items():
            async with session.post(f"{board.node.url}/tables/board/backfill{query}") as answer:
                assert answer.status == 400
                assert reason in await answer.text()


async def test_one_command_backfills_and_says_how_far_it_is(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["upsert", "backfill", "board", f"--url={board.node.url}"]
    assert await asyncio.to_thread(run, [*arguments, "--from=0:0"]) == 0
    steps = [line.split()[1].rstrip(":") for line in capsys.readouterr().out.splitlines()]
    assert steps[0] == "DISABLE_TTL"
    assert steps[-1] == "DONE"
    assert steps == sorted(steps, key=STEPS.index)
    await shows(board, 1, 1, 1, 0, 1)
    assert await asyncio.to_thread(run, [*arguments, "--from=0:x"]) == 2
