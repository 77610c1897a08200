"""Slots that clients wait for in turn: a client with many requests delays only itself. Used on one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairSlots:
    """A fixed number of slots. A free slot goes to the first request of the client that is next."""

    def __init__(self, num_slots: int) -> None:
        self._num_free = num_slots
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting requests by client; the first client is next."""

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
        """Give the slot to the next waiting request, or free it."""
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
