"""Time as an argument: decisions and loops take a Clock, so that tests control it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time."""

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch, UTC. They may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations and deadlines."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
