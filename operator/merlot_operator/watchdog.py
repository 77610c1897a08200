"""End the process when it makes no progress with its work or with its own shutdown.

It is a thread, so it runs on when the event loop is blocked. It writes the reason and the stacks of all threads to
stderr, since logging may be what hangs.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading

from merlot.clock import Clock
from merlot_operator.progress import OperatorProgress

LOOK_S = 0.5
END_S = 20.0
"""Seconds for an orderly shutdown: less than the 30 s after which kubelet kills."""


class Watchdog:
    """Thread that looks at the progress until the process ends."""

    def __init__(self, progress: OperatorProgress, clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._ends_at = float("inf")

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def expect_end(self) -> None:
        """Give the process END_S seconds to end by itself, from the first call on; then it is ended by force."""
        self._progress.is_ending = True
        self._ends_at = min(self._ends_at, self._clock.monotonic() + END_S)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            now = self._clock.monotonic()
            if now > self._ends_at:
                end_at_once("the operator does not end by itself")
            verdict = self._progress.verdict(now)
            if not verdict.is_alive:
                end_at_once(verdict.text)


def end_at_once(why: str) -> None:
    """Exit without any clean-up; kubelet starts the operator again."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"operator ends by force: {why}\n".encode())
    faulthandler.dump_traceback(all_threads=True)
    os._exit(1)
