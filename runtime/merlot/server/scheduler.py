"""Schedule queries: a bounded number runs at once, the others wait in queues, and tables take turns.

A running query has a thread of its own (*caller*), and borrows threads of a shared pool (*helpers*) for its other
segments; kernels release the GIL, so the operating system shares the cores fairly among callers. Short queries are
mostly Python, and more of them at once than there are cores only fight for the GIL: eight callers answered 1,900 calls
of 100 us per second, two answered 3,200. So there are at most as many *young* queries as cores; a query that has run
for `SHORT_S` is old and makes room for a young query. A short query thus never waits for a long query, and a table that
floods the server only lengthens its own queue. The scheduler is used on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

from merlot import telemetry
from merlot.codes import QueryErrorCode
from merlot.errors import UnavailableError
from merlot.server.settings import ServerSettings

T = TypeVar("T")

SHORT_S = 0.01
"""Seconds within which most point queries end."""


class OutOfCapacityError(UnavailableError):
    """Raised when the queue is full: another replica may have capacity."""

    code: ClassVar[int] = QueryErrorCode.SERVER_OUT_OF_CAPACITY


class SchedulingTimeoutError(UnavailableError):
    """Raised when a query times out before its turn comes."""

    code: ClassVar[int] = QueryErrorCode.QUERY_SCHEDULING_TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Bounds of a server's queries."""

    max_young: int
    max_running: int
    """Most queries that run at once, young and old."""
    max_waiting: int
    num_helpers: int

    @classmethod
    def of(cls, settings: ServerSettings) -> Self:
        """Return bounds that admit old queries besides the young queries."""
        threads = settings.query_threads
        return cls(
            max_young=threads, max_running=max(8, 4 * threads), max_waiting=settings.max_waiting, num_helpers=threads
        )


@dataclass(slots=True)
class _QuerySlot:
    is_young: bool = True


class Scheduler:
    """Scheduler of queries; owns the threads that they run on."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._callers = ThreadPoolExecutor(config.max_running, thread_name_prefix="query")
        self.helpers: Executor = ThreadPoolExecutor(config.num_helpers, thread_name_prefix="segments")
        self.coalescer: Executor = ThreadPoolExecutor(1, thread_name_prefix="join")
        """Executor with one thread, which coalesces columns of segments for later queries while other queries run."""
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._num_waiting = 0
        self._num_running = 0
        self._num_young = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, queue: str, work: Callable[[], T], timeout_s: float, on_done: Callable[[], None]) -> T:
        """Run `work` in a thread when its turn in the table's `queue` comes.

        `on_done` is called on the loop when the work has ended or never starts. Cancelling this call does not stop the
        thread; a CancelToken does. Raise OutOfCapacityError or SchedulingTimeoutError.
        """
        try:
            await self._enter(queue, timeout_s)
        except BaseException:
            on_done()
            raise
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._callers, work)
        slot = _QuerySlot()
        ageing = loop.call_later(SHORT_S, self._grow_old, slot)

        def finished(done: asyncio.Future[T]) -> None:
            if not done.cancelled():
                done.exception()  # otherwise asyncio logs it as never retrieved if the caller is gone
            ageing.cancel()
            self._leave(slot)
            on_done()

        future.add_done_callback(finished)
        return await asyncio.shield(future)

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no query runs or waits; return False if that takes longer."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Refuse more work. Each thread ends after the work that it runs."""
        self._callers.shutdown(wait=False, cancel_futures=True)
        self.helpers.shutdown(wait=False, cancel_futures=True)
        self.coalescer.shutdown(wait=False, cancel_futures=True)

    async def _enter(self, queue: str, timeout_s: float) -> None:
        if self._has_room():
            return self._start()
        if self._num_waiting >= self._config.max_waiting:
            self._make_place(queue)
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(queue, deque()).append(turn)
        self._count_waiting(1)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave(_QuerySlot())  # the turn came just as we gave up: pass it on
            if isinstance(error, TimeoutError):
                raise SchedulingTimeoutError(f"query waited too long for a thread waited_s={timeout_s:.3f}") from None
            raise
        finally:
            self._count_waiting(-1)

    def _make_place(self, queue: str) -> None:
        """Refuse the last query of the longest queue in favour of this one; raise OutOfCapacityError if this queue is
        about as long."""
        waiting = {name: [turn for turn in turns if not turn.done()] for name, turns in self._queues.items()}
        longest = max(waiting.values(), key=len, default=[])
        refusal = OutOfCapacityError(f"too many queries wait limit={self._config.max_waiting}")
        if len(longest) <= len(waiting.get(queue, ())) + 1:
            raise refusal
        longest[-1].set_exception(refusal)

    def _has_room(self) -> bool:
        return self._num_young < self._config.max_young and self._num_running < self._config.max_running

    def _start(self) -> None:
        self._num_young += 1
        self._num_running += 1
        self._idle.clear()
        telemetry.SERVER_RUNNING.set(self._num_running)

    def _grow_old(self, slot: _QuerySlot) -> None:
        slot.is_young = False
        self._num_young -= 1
        self._admit_next()

    def _leave(self, slot: _QuerySlot) -> None:
        self._num_young -= slot.is_young
        self._num_running -= 1
        telemetry.SERVER_RUNNING.set(self._num_running)
        self._admit_next()
        if not self._num_running:
            self._idle.set()

    def _admit_next(self) -> None:
        while self._queues and self._has_room():
            queue, turns = self._queues.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._queues[queue] = turns  # to the end: tables take turns
            if not turn.done():
                self._start()
                turn.set_result(None)

    def _count_waiting(self, change: int) -> None:
        self._num_waiting += change
        telemetry.SERVER_WAITING.set(self._num_waiting)
