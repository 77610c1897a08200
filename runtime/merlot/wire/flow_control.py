"""A protocol with flow control: writers of many bytes can wait until the peer has read some.

Used on one event loop.
"""

from __future__ import annotations

import asyncio


class FlowControlledProtocol(asyncio.Protocol):
    """Base of protocols; a subclass calls `resume_writing` when its connection is lost."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._resumed: asyncio.Future[None] | None = None

    @property
    def can_write(self) -> bool:
        """True if the transport's buffer is below its limit."""
        return self._resumed is None

    async def wait_until_writable(self) -> None:
        """Wait until there is room, or the connection is lost."""
        while self._resumed is not None:
            await asyncio.shield(self._resumed)

    def pause_writing(self) -> None:
        self._resumed = self._loop.create_future()

    def resume_writing(self) -> None:
        room, self._resumed = self._resumed, None
        if room is not None and not room.done():
            room.set_result(None)
