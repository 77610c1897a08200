"""How much memory all consuming segments of a server may take together."""

from __future__ import annotations

import threading
from typing import Final

OVER: Final = 1.25
"""Share of the bound at which nobody reads any more; from the bound on, the largest segments end."""


class MemoryRoom:
    """Each partition tells what it takes; the room tells who has to give way. Any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._taken: dict[object, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def tell(self, who: object, all_bytes: int, head_bytes: int) -> None:
        """What rows take: all of them, and those of a segment that still grows. Zero: nothing any more."""
        with self._lock:
            if all_bytes:
                self._taken[who] = (all_bytes, head_bytes)
            else:
                self._taken.pop(who, None)

    @property
    def taken_bytes(self) -> int:
        """Of all partitions."""
        with self._lock:
            return sum(taken for taken, _ in self._taken.values())

    def must_end(self, who: object) -> bool:
        """Whether this partition's segment shall end, as the largest of all, since memory is used up."""
        with self._lock:
            if sum(taken for taken, _ in self._taken.values()) < self._max_bytes or who not in self._taken:
                return False
            return self._taken[who][1] >= max(head for _, head in self._taken.values())

    @property
    def is_full(self) -> bool:
        """Whether nothing may be read before segments have been sealed."""
        return self.taken_bytes >= self._max_bytes * OVER
