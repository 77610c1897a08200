"""Wake a task on the event loop from other threads, as a metastore's watches do for a loop that reads again."""

import asyncio
import contextlib
from collections.abc import Callable


def run_on(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Let the event loop run `function` soon; any thread. Nothing happens once the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


class WakeUp:
    """Signal that wakes one task. Calls are coalesced until the task waits again. Created on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()

    def call(self) -> None:
        """Wake the task; any thread."""
        run_on(self._loop, self._called.set)

    async def wait(self, timeout_s: float | None = None, *, settle_s: float = 0.0) -> None:
        """Wait until somebody calls, or return at once if somebody has since the last wait; at most `timeout_s`. After
        a call wait `settle_s` more, for calls that come together."""
        with contextlib.suppress(TimeoutError):
            # Not wait_for: in Python 3.11 it swallows a cancellation that meets a wake-up.
            async with asyncio.timeout(timeout_s):
                await self._called.wait()
                await asyncio.sleep(settle_s)
        self._called.clear()
