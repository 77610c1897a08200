"""Keys that are written over and over while two watchers see each of them once, whatever becomes of their segments."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.node.test_upserts import Board, Row

from merlot.testing.patience import PATIENCE_S

COUNTS = "SELECT COUNT(*), SUM(amount), COUNT(DISTINCT id) FROM board"
FEWEST_LOOKS = 20


class WatchedKeys:
    """Each row is newer than those before, and has the amount 1: all counts are the number of keys."""

    def __init__(self, board: Board, num_keys: int) -> None:
        self._board = board
        self._keys = range(num_keys)
        self._draw = random.Random(3)
        self._version = 0
        self._is_over = False

    def write(self, number: int) -> None:
        """New rows of so many keys."""
        self._version += 1
        at = 1_700_000_000_000 + self._version
        rows: list[Row] = [
            {"id": key, "version": self._version, "at": at, "amount": 1, "color": "red", "gone": False}
            for key in self._draw.sample(self._keys, number)
        ]
        self._board.write(rows)

    async def hold_while(self, writing: Callable[[], Awaitable[None]]) -> None:
        """Write every key once; then look, while this writes, and at its end."""
        self.write(len(self._keys))
        await self._board.shows_newest()
        _, first, second = await asyncio.gather(self._write(writing), self._look(), self._look())
        assert first + second > FEWEST_LOOKS
        await self._board.shows_newest()

    async def _write(self, writing: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await writing()
        finally:
            self._is_over = True

    async def _told(self, exceptions: object) -> str:
        """Say which versions of segments there are, and which the broker asks for, beside the errors of a query."""
        found = await self._board.call("GET", "/segments/board/metadata")
        versions = {name: (one["crc"], one["customMap"]) for name, one in found.items()}
        routes = await self._board.call("GET", "/debug/routingTable/board")
        return f"{exceptions}\nin the table: {versions}\nasked for: {routes}"

    async def _look(self) -> int:
        number, right = 0, [[len(self._keys)] * 3]
        while not self._is_over:
            answer = await self._board.call("POST", "/query/sql", json={"sql": COUNTS})
            assert not answer["exceptions"], await self._told(answer["exceptions"])
            assert answer["resultTable"]["rows"] == right
            number += 1
        return number
