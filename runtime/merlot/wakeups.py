"""How other threads wake a task that waits on the event loop, such as a metastore's watches a loop that reads anew."""

import asyncio
import contextlib
from collections.abc import Callable


def run_on(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Have the event loop run it soon; any thread. Once the loop is closed nobody needs it."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


class WakeUp:
    """Calls for one task; however many come until it waits again, they are one. Made on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()

    def call(self) -> None:
        """Any thread."""
        run_on(self._loop, self._called.set)

    async def wait(self, timeout_s: float | None = None, *, settle_s: float = 0.0) -> None:
        """Until somebody calls, or has since the last wait, or so long; then `settle_s` more, for calls that come
        together."""
        with contextlib.suppress(TimeoutError):
            # Not wait_for: in Python 3.11 it swallows a cancellation that meets a wake-up.
            async with asyncio.timeout(timeout_s):
                await self._called.wait()
                await asyncio.sleep(settle_s)
        self._called.clear()
