"""How long the planning of one query may go on: asked at every token and every expression.

Planning is Python from end to end: a thread that plans a megabyte keeps the interpreter's lock from all others.
A budget that gives way rests a moment every millisecond: whoever waits for the lock has it then, not 5 ms later.
"""

from __future__ import annotations

import time
from typing import ClassVar, Final

from merlot.clock import Clock, SystemClock
from merlot.errors import UnavailableError

STEPS_A_LOOK: Final = 32
"""Tokens or expressions between two looks at the clock: some 300 us."""
WORK_S: Final = 0.001
REST_S: Final = 0.000_05


class PlanningTimeoutError(UnavailableError):
    """The query's deadline passed before it had a plan (Pinot's BROKER_TIMEOUT)."""

    code: ClassVar[int] = 400


class PlanningCancelledError(UnavailableError):
    """Nobody waits for the plan any more (Pinot's QUERY_CANCELLATION)."""

    code: ClassVar[int] = 503


class Budget:
    """Used by the thread that plans; any thread may withdraw it."""

    def __init__(self, deadline: float | None = None, clock: Clock | None = None, *, gives_way: bool = False) -> None:
        self._deadline = deadline
        self._clock: Clock = clock or SystemClock()
        self._gives_way = gives_way
        self._steps = 0
        self._rested = 0.0
        self._is_withdrawn = False

    def withdraw(self) -> None:
        """Make the next look raise."""
        self._is_withdrawn = True

    def shorten(self, deadline: float) -> None:
        """Keep the earlier of two deadlines, of the clock's monotonic time."""
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def step(self) -> None:
        """Count a token or an expression; now and then, look."""
        self._steps += 1
        if self._steps % STEPS_A_LOOK == 0:
            self.look()

    def look(self) -> None:
        """Raise PlanningTimeoutError or PlanningCancelledError if planning must end."""
        if self._is_withdrawn:
            raise PlanningCancelledError("query was given up before it was planned")
        if self._deadline is not None and self._clock.monotonic() > self._deadline:
            raise PlanningTimeoutError("query passed its deadline before it was planned; shorten it or raise timeoutMs")
        if self._gives_way and time.perf_counter() - self._rested > WORK_S:
            time.sleep(REST_S)
            self._rested = time.perf_counter()
