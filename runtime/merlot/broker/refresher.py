"""Read a piece of state again whenever somebody signals that it may have changed.

Signals are coalesced: however many arrive during a read, one more read follows. If a read fails because the metastore
is silent or holds nonsense, the state stays as it was and the read is retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from merlot.errors import MerlotError
from merlot.wakeups import WakeUp

_LOG = logging.getLogger(__name__)

REST_SHARE = 2.0
"""Rest after a read, as a multiple of its time, up to LONGEST_REST_S: reads take a third of the time at most, unless
a read takes longer than half a second."""
LONGEST_REST_S = 1.0


class Refresher:
    """Owns the task that reads. All methods but `poke` belong to the event loop's thread."""

    def __init__(self, name: str, read: Callable[[], Awaitable[None]], *, retry_s: float) -> None:
        self._name = name
        self._retry_s = retry_s
        self._read = read
        self._stale = WakeUp()
        self._was_read = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to follow; the first read waits for a poke."""
        self._task = asyncio.create_task(self._run(), name=f"refresh-{self._name}")

    async def read_once(self) -> None:
        """Request a read, and wait until the first read was tried; return at once after that."""
        self._stale.call()
        await self._was_read.wait()

    def poke(self) -> None:
        """Request a read; any thread."""
        self._stale.call()

    def poke_in(self, delay_s: float) -> None:
        """Request a read after a delay. The earliest of several such requests counts."""
        at_s = self._loop.time() + max(0.0, delay_s)
        if self._timer is not None and self._timer.when() <= at_s:
            return
        self._cancel_timer()
        self._timer = self._loop.call_at(at_s, self._timer_ended)

    async def stop(self) -> None:
        """End the task; a read that is under way is abandoned."""
        self._cancel_timer()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _timer_ended(self) -> None:
        self._timer = None
        self._stale.call()

    async def _run(self) -> None:
        while True:
            await self._stale.wait()
            started = self._loop.time()
            try:
                await self._read()
            except MerlotError as error:
                _LOG.warning("state not refreshed, the last one stays what=%s cause=%s", self._name, error)
                self.poke_in(self._retry_s)
            except Exception:  # noqa: BLE001 - the task's outermost loop
                _LOG.exception("state not refreshed, the last one stays what=%s", self._name)
                self.poke_in(self._retry_s)
            self._was_read.set()
            await asyncio.sleep(min(LONGEST_REST_S, (self._loop.time() - started) * REST_SHARE))
