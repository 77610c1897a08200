"""Loops on the event loop that block in a thread of their own and are woken from other threads, as by watches."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


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


class OwnThread:
    """One thread for the blocking calls of a loop: those of the event loop may all wait on behalf of clients."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=False)

    async def run(self, function: Callable[[], T]) -> T:
        """Return what the function returns, called in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)
