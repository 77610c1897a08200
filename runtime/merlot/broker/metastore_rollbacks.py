"""Notice that a metastore went back in time while the broker ran: it was restored from an older copy, or replaced.

A controller notices this too, by the catalog beside the table's files, and marks the table. Until it has, the broker
would answer with old rows.
"""

from __future__ import annotations

from typing import Final

from merlot.clock import Clock

DOUBT_S: Final = 300.0
"""Time that a broker waits for a controller to judge the metastore; then the broker believes the metastore."""


class RollbackDetector:
    """Follows the versions of one table in the order of its reads. Used by one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest = (0, 0)
        self._since_s: float | None = None

    def is_behind(self, created_ms: int, epoch: int, *, is_marked: bool) -> bool:
        """Return True if an earlier read saw a newer state of the table and no controller has marked the table, for
        DOUBT_S at most."""
        now_s = self._clock.monotonic()
        if not is_marked and (created_ms, epoch) < self._newest:
            self._since_s = now_s if self._since_s is None else self._since_s
            if now_s - self._since_s < DOUBT_S:
                return True
        self._newest, self._since_s = (created_ms, epoch), None
        return False

    def forget(self) -> None:
        """Forget a table that is gone: the next table of its name may be older by its clock."""
        self._newest, self._since_s = (0, 0), None
