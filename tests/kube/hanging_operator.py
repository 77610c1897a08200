"""The operator, of which a part hangs: its argument names it. What it notices in minutes, it notices in seconds."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import Any, NoReturn

import kopf
from tests.kube import quick_operator

from merlot_operator import health, progress, served, watchdog, workqueue
from merlot_operator.kube import client
from merlot_operator.reconcilers import loop
from merlot_operator.workqueue import Subject


def main() -> int:
    """Run it; returns the exit code."""
    progress.UNREADY_S, progress.DEAD_S, loop.PASS_S, watchdog.END_S = 3.0, 9.0, 4.0, 4.0
    served.LOOK_S, served.LOOK_TIMEOUT_S = 1.0, 2.0
    loop.TURN_S = 0.2
    PARTS[sys.argv[1]]()
    return quick_operator.main()


async def _hang(*_: Any, **__: Any) -> NoReturn:
    """Not even a cancellation ends it."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


def _after_ready(act: Any) -> None:
    """Do something a second after `/readyz` was asked by somebody who has seen that it is ready."""
    answer = health.Health._ready

    async def ready(self: Any, request: Any) -> Any:
        answered = await answer(self, request)
        if answered.status == 200 and "seen" in request.query:
            asyncio.get_running_loop().call_later(1.0, act)
        return answered

    health.Health._ready = ready  # type: ignore[method-assign]


def _event_loop() -> None:
    _after_ready(lambda: time.sleep(3600))


def _passes() -> None:
    loop.RECONCILES = dict.fromkeys(Subject, _hang)  # type: ignore[assignment]


def _passes_in_threads() -> None:
    """They can be cut off, and hang again."""

    async def wait(*_: Any) -> float | None:
        return await asyncio.to_thread(time.sleep, 3600)

    loop.RECONCILES = dict.fromkeys(Subject, wait)  # type: ignore[assignment]


def _api_requests() -> None:
    _after_ready(lambda: setattr(client.Kube, "_request", _hang))


def _queue() -> None:
    def stop() -> None:
        workqueue.WorkQueue._next = lambda *_: (None, 3600.0)  # type: ignore[method-assign]

    _after_ready(stop)


def _end_of_kopf() -> None:
    """Kopf ends for a reason of its own, and never comes to the end of it."""
    spawn, is_seen = kopf.spawn_tasks, asyncio.Event()

    async def fail() -> None:
        await is_seen.wait()
        raise RuntimeError("a watch failed")

    async def spawned(**options: Any) -> Any:
        tasks = await spawn(**options)
        tasks.append(asyncio.create_task(fail()))  # type: ignore[attr-defined]
        return tasks

    kopf.spawn_tasks = spawned  # type: ignore[assignment]
    _after_ready(is_seen.set)
    _cleanup()


def _cleanup() -> None:
    client.Kube.close = _hang  # type: ignore[method-assign]
    program: Any = quick_operator.program
    program._stop = _hang


def _cleanup_after_sigterm() -> None:
    _cleanup()
    _after_ready(lambda: os.kill(os.getpid(), signal.SIGTERM))


PARTS = {
    "event loop": _event_loop,
    "passes": _passes,
    "passes in threads": _passes_in_threads,
    "API requests": _api_requests,
    "queue": _queue,
    "end of Kopf": _end_of_kopf,
    "cleanup after SIGTERM": _cleanup_after_sigterm,
}
