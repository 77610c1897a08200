"""Budget of memory for all consuming segments of a server."""

from __future__ import annotations

import threading
from typing import Final

OVER: Final = 1.25
"""Share of the budget at which reading stops. From the budget itself on, the largest segment ends."""


class MemoryBudget:
    """Budget that says which segments have to end early: partitions report what their rows take. Any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._taken: dict[object, tuple[int, int]] = {}
        self._sum = 0
        """Bytes of all rows. It is asked for by each partition ten times a second, so it is not added up then."""
        self._lock = threading.Lock()

    def tell(self, who: object, all_bytes: int, head_bytes: int) -> None:
        """Report the bytes of rows: of all of them, and of a segment that still grows. Zero forgets them."""
        with self._lock:
            before, _ = self._taken.pop(who, (0, 0))
            self._sum += all_bytes - before
            if all_bytes:
                self._taken[who] = (all_bytes, head_bytes)

    @property
    def taken_bytes(self) -> int:
        """Bytes that the rows of all partitions take."""
        return self._sum

    def must_end(self, who: object) -> bool:
        """Return True if the budget is used up and this segment is the largest that still grows."""
        with self._lock:
            if self._sum < self._max_bytes or who not in self._taken:
                return False
            return self._taken[who][1] >= max(head for _, head in self._taken.values())

    @property
    def is_full(self) -> bool:
        """True if nothing may be read before segments are sealed."""
        return self.taken_bytes >= self._max_bytes * OVER
