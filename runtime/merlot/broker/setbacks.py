"""Notices that a metastore went back while a broker ran: it was restored from an older copy, or is another one.

A controller finds that out too, by the catalog beside the table's files, and marks the table. Until it has, a broker
would answer with the rows of an older time.
"""

from __future__ import annotations

from typing import Final

from merlot.clock import Clock

DOUBT_S: Final = 300.0
"""A broker waits this long for a controller to judge the metastore, and then believes it."""


class Setbacks:
    """Follows one table in the order of its reads. Used by one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest = (0, 0)
        self._since_s: float | None = None

    def is_behind(self, created_ms: int, epoch: int, *, is_marked: bool) -> bool:
        """True if an earlier read saw a newer state of the table, and no controller has marked it since."""
        now_s = self._clock.monotonic()
        if not is_marked and (created_ms, epoch) < self._newest:
            self._since_s = now_s if self._since_s is None else self._since_s
            if now_s - self._since_s < DOUBT_S:
                return True
        self._newest, self._since_s = (created_ms, epoch), None
        return False

    def forget(self) -> None:
        """The table is gone; the next of its name may be older by its clock."""
        self._newest, self._since_s = (0, 0), None
