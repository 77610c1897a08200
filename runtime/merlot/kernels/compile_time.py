"""Seconds that this process has spent on getting machine code: a query's clock stands still meanwhile.

Any thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_S = 60.0
"""What one wait counts for at most: queries end although a compiler never does."""

_lock = threading.Lock()
_total_s = 0.0
_running = 0
_since = 0.0


@contextmanager
def counted() -> Iterator[None]:
    """Count the time of the block, once for all threads that are in one."""
    global _running, _since, _total_s
    with _lock:
        if _running == 0:
            _since = time.monotonic()
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if _running == 0:
                _total_s += _so_far()


def seconds() -> float:
    """Counted so far; never goes back."""
    if _running == 0:  # nearly always: no lock on the way of a query
        return _total_s
    with _lock:
        return _total_s + (_so_far() if _running else 0.0)


def _so_far() -> float:
    return min(time.monotonic() - _since, LONGEST_S)
