"""Whether a server has the memory that its keys take, and will take: told before its container is killed for it.

Any thread; the partitions of all tables tell, whoever measures asks.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from merlot import memory, telemetry
from merlot.cluster.consuming.progress import MemoryProgress

_LOG = logging.getLogger(__name__)

GROWTH: Final = 0.25
"""Room to grow, as a share of what keys take: a shard of an index that grows is there twice meanwhile, and keys that
come until somebody has read the warning must have their place."""


class KeyRoom:
    """What the keys of each table take on this server."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit_bytes = memory.total_bytes() if limit_bytes is None else limit_bytes
        self._keys: dict[str, int] = {}
        self._is_short = False
        self._lock = threading.Lock()

    def tell(self, table: str, keys_bytes: int) -> MemoryProgress:
        """What the keys of a table take now; returns how it is for all of them."""
        with self._lock:
            self._keys[table] = keys_bytes
            found = measured(self._limit_bytes, memory.taken_bytes(), sum(self._keys.values()))
            is_short = found.needed_bytes > found.limit_bytes
            if is_short and not self._is_short:
                _LOG.warning(
                    "memory will not do for the keys limit_bytes=%d taken_bytes=%d keys_bytes=%d needed_bytes=%d",
                    *(found.limit_bytes, found.taken_bytes, found.keys_bytes, found.needed_bytes),
                )
            self._is_short = is_short
        telemetry.UPSERT_MEMORY_LIMIT.set(found.limit_bytes)
        telemetry.UPSERT_MEMORY_NEEDED.set(found.needed_bytes)
        return found

    def forget(self, table: str) -> None:
        """The table is here no more."""
        with self._lock:
            self._keys.pop(table, None)


def measured(limit_bytes: int, taken_bytes: int, keys_bytes: int) -> MemoryProgress:
    """What is needed, of what is taken. Pure."""
    needed = taken_bytes + round(keys_bytes * GROWTH)
    return MemoryProgress(limit_bytes=limit_bytes, taken_bytes=taken_bytes, keys_bytes=keys_bytes, needed_bytes=needed)
