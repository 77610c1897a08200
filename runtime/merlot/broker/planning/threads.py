"""Plan long texts in threads: off the event loop, a few at a time, and only while a client waits.

Each lane is one thread: planning is Python, and more threads would only take the interpreter's lock from running
queries. There are two, so that texts of a page need not wait for texts of a megabyte. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final, TypeVar

from merlot.errors import UnavailableError
from merlot.sql.budget import Budget, PlanningTimeoutError

T = TypeVar("T")

PAGE_CHARS: Final = 16_384
SWITCH_S: Final = 0.000_5
"""Time that a thread keeps the interpreter's lock once another wants it. Planning holds it from end to end, and a query
needs it several times: with Python's 5 ms, a point query beside a long text took 20 ms."""
MAX_WAITING: Final = 50
"""Most texts in a lane, the one being planned included."""


class PlanningBusyError(UnavailableError):
    """Raised if too many long texts wait to be planned (Pinot's TOO_MANY_REQUESTS)."""

    code: ClassVar[int] = 429


class PlanningThreads:
    """Two lanes of texts, from the first use to `close`."""

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        self._pages, self._long = _Lane("plan-pages"), _Lane("plan-long")

    async def run(self, num_chars: int, timeout_s: float, budget: Budget, work: Callable[[], T]) -> T:
        """Run `work` in the lane for a text of `num_chars`. Raise PlanningTimeoutError if its turn does not come in
        time, and PlanningBusyError at once if too many texts wait. If the caller is cancelled, the work ends too."""
        lane = self._pages if num_chars <= PAGE_CHARS else self._long
        return await lane.run(timeout_s, budget, work)

    def close(self) -> None:
        """Accept no more work. The budget of the running work ends it."""
        self._pages.close()
        self._long.close()


class _Lane:
    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._num_waiting = 0

    async def run(self, timeout_s: float, budget: Budget, work: Callable[[], T]) -> T:
        if self._num_waiting >= MAX_WAITING:
            raise PlanningBusyError(f"too many long queries wait to be planned limit={MAX_WAITING}")

        def planned() -> T:
            budget.look()
            return work()

        self._num_waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._executor, planned)
        except TimeoutError as error:
            raise PlanningTimeoutError("query passed its deadline before it was planned") from error
        finally:
            budget.withdraw()
            self._num_waiting -= 1

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
