"""Count of the seconds that this process spends on compiling and loading machine code. They do not count towards a
query's deadline.

Any thread.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

LONGEST_S = 60.0
"""Longest time that a single wait counts: queries end even if a compiler does not."""

_lock = threading.Lock()
_total_s = 0.0
_running = 0
_since = 0.0


@contextmanager
def counted() -> Iterator[None]:
    """Count the time of the block; blocks that threads run at the same time count once."""
    global _running, _since, _total_s
    with _lock:
        if _running == 0:
            _since = time.monotonic()
        _running += 1
    try:
        yield
    finally:
        with _lock:
            if _running == 1:  # before `_running` becomes 0, because `seconds` then takes no lock
                _total_s += _so_far()
            _running -= 1


def seconds() -> float:
    """Return the seconds counted so far; they never decrease."""
    if _running == 0:  # nearly always, so a query takes no lock
        return _total_s
    with _lock:
        return _total_s + (_so_far() if _running else 0.0)


def _so_far() -> float:
    return min(time.monotonic() - _since, LONGEST_S)


@asynccontextmanager
async def timeout(timeout_s: float) -> AsyncIterator[None]:
    """Act as asyncio.timeout, extended by the seconds that this process spends on machine code in the block."""
    loop, counted_s = asyncio.get_running_loop(), seconds()
    async with asyncio.timeout(None) as limit:
        alarm: asyncio.TimerHandle

        def end_or_wait() -> None:
            nonlocal alarm, counted_s
            now_s = seconds()
            more_s, counted_s = now_s - counted_s, now_s
            if more_s > 0:
                alarm = loop.call_later(more_s, end_or_wait)
            else:
                limit.reschedule(loop.time())

        alarm = loop.call_later(timeout_s, end_or_wait)
        try:
            yield
        finally:
            alarm.cancel()
