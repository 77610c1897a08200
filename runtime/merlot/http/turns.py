"""Slots that clients wait for in turn: who asks often waits for itself alone. Used on one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """So many slots. A free one goes to the next of the clients that wait, and to the first request of that client."""

    def __init__(self, num_slots: int) -> None:
        self._num_free = num_slots
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By client; the first of them is next."""

    @asynccontextmanager
    async def slot(self, client: str) -> AsyncIterator[None]:
        """Hold a slot while the block runs."""
        if self._num_free:
            self._num_free -= 1
        else:
            await self._turn(client)
        try:
            yield
        finally:
            self._pass_on()

    async def _turn(self, client: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give a slot to who is next, or keep it."""
        while self._waiting:
            client = next(iter(self._waiting))
            requests = self._waiting.pop(client)
            turn = requests.popleft()
            if requests:
                self._waiting[client] = requests
            if not turn.done():
                turn.set_result(None)
                return
        self._num_free += 1
