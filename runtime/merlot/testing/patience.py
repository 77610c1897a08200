"""Wait for conditions that no event announces. How long that takes says something about the machine, nothing about the
code. So a test waits for what it claims, and gives up only if it will certainly not come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""Seconds in which a process can start on a machine that is busy with other work."""
POLL_S = 0.01
"""Least pause between two checks. A check that takes long is followed by a pause three times as long: it may cost the
observed process as much."""


async def until(condition: Callable[[], T | Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """Return the condition's first true result. Raise TimeoutError, with its last result, if there is none in time.

    condition: may block, since it is called in a thread; it may return an awaitable, which is awaited here."""
    began_s = time.monotonic()
    deadline = began_s + patience_s
    while not (word := await _ask(condition)):
        now_s = time.monotonic()
        if now_s > deadline:
            raise TimeoutError(f"still {word!r} after {patience_s:g} s")
        await asyncio.sleep(max(POLL_S, 3 * (now_s - began_s)))
        began_s = time.monotonic()
    return word


async def _ask(condition: Callable[[], T | Awaitable[T]]) -> T:
    word = await asyncio.to_thread(condition)
    return await word if isinstance(word, Awaitable) else word


def wait_until(condition: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Do the same as `until` for tests without an event loop."""
    began_s = time.monotonic()
    deadline = began_s + patience_s
    while not (word := condition()):
        now_s = time.monotonic()
        if now_s > deadline:
            raise TimeoutError(f"still {word!r} after {patience_s:g} s")
        time.sleep(max(POLL_S, 3 * (now_s - began_s)))
        began_s = time.monotonic()
    return word
