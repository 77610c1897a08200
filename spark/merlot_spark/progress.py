"""Progress of a Spark job on stderr: one line that is rewritten, or, without a terminal, a line now and then.

Owns one thread, which only reads Spark's status tracker and stops with the job.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from pyspark import SparkContext

INTERVAL_S = 0.2
PLAIN_INTERVAL_S = 5.0


class StatusLine:
    """A line of text about the current step. Without a terminal, it is repeated at most every PLAIN_INTERVAL_S."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._is_terminal = self._stream.isatty()
        self._last_plain = time.monotonic()
        self._shown = ""

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._is_terminal:
            padding = " " * max(0, len(self._shown) - len(text))
            self._stream.write(f"\r{text}{padding}")
        elif text != self._shown and time.monotonic() - self._last_plain >= PLAIN_INTERVAL_S:
            self._last_plain = time.monotonic()
            self._stream.write(text + "\n")
        else:
            return
        self._shown = text
        self._stream.flush()

    def clear(self) -> None:
        """Erase the line on a terminal."""
        if self._is_terminal and self._shown:
            self._stream.write("\r" + " " * len(self._shown) + "\r")
            self._stream.flush()
        self._shown = ""


class JobProgress:
    """Display of a job group's built segments and finished tasks, until the block ends."""

    def __init__(self, context: SparkContext, group: str, segments: Callable[[], int]) -> None:
        self._tracker = context.statusTracker()
        self._group = group
        self._segments = segments
        self._line = StatusLine()
        self._done = threading.Event()
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="merlot-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self._line.clear()

    def _run(self) -> None:
        while not self._done.wait(INTERVAL_S):
            done, total = self._tasks()
            elapsed = time.monotonic() - self._started
            self._line.show(f"  {self._segments():,} segments built, {done} of {total} tasks, {elapsed:.0f} s")

    def _tasks(self) -> tuple[int, int]:
        done = total = 0
        for job in self._tracker.getJobIdsForGroup(self._group):
            info = self._tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                stage_info = self._tracker.getStageInfo(stage)
                if stage_info is not None:
                    done += stage_info.numCompletedTasks
                    total += stage_info.numTasks
        return done, total
