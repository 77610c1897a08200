"""Tell whether a server has the memory that its keys take and will take, before its container is killed for it.

Any thread: partitions of all tables report, and get the measurement back.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from merlot import memory, telemetry
from merlot.cluster.consuming.progress import MemoryProgress

_LOG = logging.getLogger(__name__)

GROWTH: Final = 0.25
"""Share of the keys' memory that is needed to grow: while a shard of an index grows, it exists twice, and keys that
come until somebody has read the warning need memory too."""


class KeyMemory:
    """Memory that the keys of each table take on this server."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit_bytes = memory.total_bytes() if limit_bytes is None else limit_bytes
        self._keys: dict[str, int] = {}
        self._is_short = False
        self._lock = threading.Lock()

    def tell(self, table: str, keys_bytes: int) -> MemoryProgress:
        """Note what the keys of a table take now; return the measurement for all tables."""
        with self._lock:
            self._keys[table] = keys_bytes
            progress = measured(self._limit_bytes, memory.taken_bytes(), sum(self._keys.values()))
            is_short = progress.needed_bytes > progress.limit_bytes
            if is_short and not self._is_short:
                _LOG.warning(
                    "memory will not do for the keys limit_bytes=%d taken_bytes=%d keys_bytes=%d needed_bytes=%d",
                    *(progress.limit_bytes, progress.taken_bytes, progress.keys_bytes, progress.needed_bytes),
                )
            self._is_short = is_short
        telemetry.UPSERT_MEMORY_LIMIT.set(progress.limit_bytes)
        telemetry.UPSERT_MEMORY_NEEDED.set(progress.needed_bytes)
        return progress

    def forget(self, table: str) -> None:
        """Forget a table that is not served here any more."""
        with self._lock:
            self._keys.pop(table, None)


def measured(limit_bytes: int, taken_bytes: int, keys_bytes: int) -> MemoryProgress:
    """Compute the memory that is needed from what is taken. Pure."""
    needed = taken_bytes + round(keys_bytes * GROWTH)
    return MemoryProgress(limit_bytes=limit_bytes, taken_bytes=taken_bytes, keys_bytes=keys_bytes, needed_bytes=needed)
