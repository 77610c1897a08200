"""Virtual time: what happens when, and event loops of processes that live in it.

One thread plays everything. While a process is inside a call that blocks, others may act (`meanwhile`): so a call that
is slow, or a process that is frozen in the middle of its work, meets whatever has changed in between.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Final

START_MS: Final = 1_700_000_000_000
MOST_NESTED: Final = 2
"""Processes that are inside a blocking call at the same time, at most."""

Act = Callable[[], None]


class Timeline:
    """Acts in the order of their times. An act may name its process: then it waits while that process is busy."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.busy: set[object] = set()
        """Processes inside a blocking call."""
        self.is_in_loop = False
        self._events: list[tuple[int, int, object, bool, Act]] = []
        self._numbers = itertools.count()
        self._depth = 0

    def after(self, delay_ms: int, act: Act, process: object = None, *, is_loop: bool = False) -> None:
        heapq.heappush(self._events, (self.now_ms + max(0, delay_ms), next(self._numbers), process, is_loop, act))

    def run_until(self, end_ms: int, check: Act) -> None:
        """Play what is due; `check` is called after each act."""
        while self._events and self._events[0][0] <= end_ms:
            self._play_next(end_ms)
            check()
        self.now_ms = max(self.now_ms, end_ms)

    def meanwhile(self, process: object, duration_ms: int) -> None:
        """Let others act while a process is inside a call."""
        if self._depth >= MOST_NESTED:
            return
        self._depth += 1
        was_busy = process in self.busy
        self.busy.add(process)
        end_ms = self.now_ms + duration_ms
        try:
            while self._events and self._events[0][0] <= end_ms:
                self._play_next(end_ms)
            self.now_ms = max(self.now_ms, end_ms)
        finally:
            self._depth -= 1
            if not was_busy:
                self.busy.discard(process)

    def _play_next(self, end_ms: int) -> None:
        at_ms, number, process, is_loop, act = heapq.heappop(self._events)
        self.now_ms = max(self.now_ms, at_ms)
        if (process is not None and process in self.busy) or (is_loop and self.is_in_loop):
            heapq.heappush(self._events, (end_ms + 1, number, process, is_loop, act))
        else:
            act()


class VirtualClock:
    """A process's clocks: its wall clock may be off, its monotonic one began anywhere."""

    def __init__(self, timeline: Timeline, first_s: float = 0.0) -> None:
        self._timeline = timeline
        self._first_s = first_s
        self.off_ms = 0

    def now_ms(self) -> int:
        return self._timeline.now_ms + self.off_ms

    def monotonic(self) -> float:
        return (self._timeline.now_ms - START_MS) / 1000 + self._first_s


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one process. Work that its tasks hand to threads is done at once."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._is_due = self._is_stopped = False
        self.problems: list[str] = []

    def time(self) -> float:
        return (self._timeline.now_ms - START_MS) / 1000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_stopped

    def is_closed(self) -> bool:
        return self._is_stopped

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._be_due()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        delay_ms = round((when - self.time()) * 1000)
        self._timeline.after(delay_ms, lambda: self._take(handle), self, is_loop=True)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = asyncio.Task(coro, loop=self, name=options.get("name"))
        self._tasks.add(task)
        return task

    def run_in_executor(self, executor: Executor | None, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever awaits the future gets it
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_stopped:
            self.problems.append(repr(context.get("exception") or context.get("message")))

    def stop(self) -> None:
        """End the process: its tasks are cancelled, and nothing of it runs any more."""
        for task in list(self._tasks):
            task.cancel()
        self._pump()
        self._is_stopped = True
        self._ready.clear()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The act that holds the handle finds out."""

    def _take(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled() and not self._is_stopped:
            self._ready.append(handle)
            self._pump()

    def _be_due(self) -> None:
        if not self._is_due and not self._is_stopped:
            self._is_due = True
            self._timeline.after(0, self._pump, self, is_loop=True)

    def _pump(self) -> None:
        self._is_due = False
        if self._is_stopped:
            return
        self._timeline.is_in_loop = True
        asyncio._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)
            self._timeline.is_in_loop = False
