"""A protocol with flow control: writers of many bytes can wait until the peer has read some.

Used on one event loop.
"""

from __future__ import annotations

import asyncio


class FlowControlledProtocol(asyncio.Protocol):
    """Base of protocols; a subclass calls `resume_writing` when its connection is lost."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._room: asyncio.Future[None] | None = None

    @property
    def has_room(self) -> bool:
        """True if the transport's buffer is below its limit."""
        return self._room is None

    async def room(self) -> None:
        """Wait until there is room, or the connection is lost."""
        while self._room is not None:
            await asyncio.shield(self._room)

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
