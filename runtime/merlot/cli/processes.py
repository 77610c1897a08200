"""Run a role until a signal: SIGTERM and Ctrl-C stop it gracefully, a second signal stops it at once."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib.abc import MetaPathFinder
from typing import TypeVar

from merlot.memory import keep_few_heaps

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

SIGNAL_BASE = 128
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def run_until_signal(
    start: Callable[[], Awaitable[str]],
    stop: Callable[[], Awaitable[None]],
    until: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Start, print the line that `start` returns, wait for a signal or for `until`, and stop."""
    keep_few_heaps()
    keep_pandas_out()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stopping.is_set():
            _LOG.warning("stopped at once signal=%s", number.name)
            os._exit(SIGNAL_BASE + number)
        _LOG.info("stopping signal=%s", number.name)
        stopping.set()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        line = await _or_signal(start(), stopping)
        if line is not None:
            # Some 150,000 objects of modules live as long as the process: a full collection that visits them pauses
            # queries for 0.1 s and more.
            gc.freeze()
            print(line, flush=True)
            if until is None:
                await stopping.wait()
            else:
                await _or_signal(until(), stopping)
    finally:
        await stop()


class _NoPandas(MetaPathFinder):
    """Finder of modules that says that pandas is not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not looked for", name=fullname)


def keep_pandas_out() -> None:
    """Have pyarrow take pandas for missing. Where it is installed, pyarrow imports it for its first array: the first
    query would take half a second of CPU time more, and the process 50 MB. No role uses it."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])  # pyarrow looks once
    finally:
        sys.meta_path.remove(finder)


async def _or_signal(starting: Awaitable[T], stopping: asyncio.Event) -> T | None:
    """Return the result of `starting`; None if a signal came first."""
    start = asyncio.ensure_future(starting)
    signalled = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((start, signalled), return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if start.done():
        return start.result()
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    return None
