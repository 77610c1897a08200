"""Limit the time for planning a query. Tokens and expressions are counted, and the clock is read now and then."""

from __future__ import annotations

from typing import ClassVar, Final

from merlot.clock import Clock, SystemClock
from merlot.errors import UnavailableError

STEPS_A_LOOK: Final = 32
"""Tokens or expressions between two looks at the clock: some 300 us."""


class PlanningTimeoutError(UnavailableError):
    """Raised if the query's deadline passed before it had a plan (Pinot's BROKER_TIMEOUT)."""

    code: ClassVar[int] = 400


class PlanningCancelledError(UnavailableError):
    """Raised if nobody waits for the plan any more (Pinot's QUERY_CANCELLATION)."""

    code: ClassVar[int] = 503


class Budget:
    """Deadline of a query's planning. Used by the thread that plans; any thread may withdraw it."""

    def __init__(self, deadline: float | None = None, clock: Clock | None = None) -> None:
        self._deadline = deadline
        self._clock: Clock = clock or SystemClock()
        self._started = self._clock.monotonic()
        self._steps = 0
        self._is_withdrawn = False

    def withdraw(self) -> None:
        """Make the next look raise PlanningCancelledError."""
        self._is_withdrawn = True

    def shorten(self, timeout_ms: int) -> None:
        """Move the deadline to `timeout_ms` after the start, if that is earlier."""
        deadline = self._started + timeout_ms / 1000
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def step(self) -> None:
        """Count a token or an expression, and look at the clock now and then."""
        self._steps += 1
        if self._steps % STEPS_A_LOOK == 0:
            self.look()

    def look(self) -> None:
        """Raise PlanningTimeoutError or PlanningCancelledError if planning must end."""
        if self._is_withdrawn:
            raise PlanningCancelledError("query was given up before it was planned")
        if self._deadline is not None and self._clock.monotonic() > self._deadline:
            raise PlanningTimeoutError("query passed its deadline before it was planned; shorten it or raise timeoutMs")
