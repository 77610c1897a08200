"""Patience for what has no event to wait for. How long it takes says something about the machine, nothing about the
code: a test waits for what it claims, and gives up only when it will not come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""Enough for a process to start on a machine that does a lot of other work."""
POLL_S = 0.01
"""The least pause between two looks. A look that takes long is followed by three times as long a pause: it may cost the
process that is waited for as much."""


async def until(condition: Callable[[], T | Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """What the condition says once it says something true; TimeoutError, with its last word, if it never does.

    condition: may block, since it is called in a thread; may give something to await, which is awaited here."""
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
    """The same for tests without an event loop."""
    began_s = time.monotonic()
    deadline = began_s + patience_s
    while not (word := condition()):
        now_s = time.monotonic()
        if now_s > deadline:
            raise TimeoutError(f"still {word!r} after {patience_s:g} s")
        time.sleep(max(POLL_S, 3 * (now_s - began_s)))
        began_s = time.monotonic()
    return word
