"""Queue of keys to reconcile: each once, never two passes of a key at a time, again after a while, later after a
failure.

One event loop. A key that is woken during its pass gets one more pass afterwards.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from dataclasses import dataclass
from enum import StrEnum

FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0


class Subject(StrEnum):
    """Kind of thing that a key stands for."""

    TABLE = "table"
    ROLLUP = "rollup"
    UPSERT = "upsert"
    POOL = "pool"
    CLUSTER = "cluster"
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True, order=True)
class QueueKey:
    """One thing to reconcile; `name` is empty for a cluster and for a namespace."""

    subject: Subject
    namespace: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.subject}/{self.namespace}/{self.name}".rstrip("/")


class WorkQueue:
    """A set of keys with due times."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._due: dict[QueueKey, float] = {}
        self._heap: list[tuple[float, int, QueueKey]] = []
        self._active: set[QueueKey] = set()
        self._failures: dict[QueueKey, int] = {}
        self._order = itertools.count()
        self._changed = asyncio.Event()
        self._taken_at = float("-inf")

    def __len__(self) -> int:
        return len(self._due)

    def wake(self, key: QueueKey, delay_s: float = 0.0) -> None:
        """Have the key reconciled in `delay_s` at the latest."""
        due = asyncio.get_running_loop().time() + delay_s
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.set()

    def overdue_s(self, now: float) -> float:
        """Return for how many seconds a key has been due while none was taken."""
        due = min(list(self._due.values()), default=now)
        return max(0.0, now - max(due, self._taken_at))

    async def take(self) -> QueueKey:
        """Wait for the next key that is due. The caller must call `done` or `failed` for it."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            key, wait_s = self._next(loop.time())
            if key is not None:
                self._taken_at = loop.time()
                return key
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def done(self, key: QueueKey, again_s: float | None) -> None:
        """End a pass that succeeded; reconcile the key again after about `again_s`, or never if that is None."""
        self._active.discard(key)
        self._failures.pop(key, None)
        if again_s is not None:
            self.wake(key, again_s * self._chance.uniform(0.8, 1.2))
        self._changed.set()

    def failed(self, key: QueueKey) -> float:
        """End a pass that failed; return in how many seconds the key is tried again."""
        self._active.discard(key)
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(count, 10)) * self._chance.uniform(0.8, 1.2)
        self.wake(key, delay_s)
        self._changed.set()
        return delay_s

    def _next(self, now: float) -> tuple[QueueKey | None, float | None]:
        """Take a key that is due, or return in how many seconds the first one is. Keys under way are put back into the
        heap."""
        held: list[tuple[float, int, QueueKey]] = []
        try:
            while self._heap:
                due, _, key = self._heap[0]
                if self._due.get(key) != due:
                    heapq.heappop(self._heap)
                elif due > now:
                    return None, due - now
                elif key in self._active:
                    held.append(heapq.heappop(self._heap))
                else:
                    heapq.heappop(self._heap)
                    del self._due[key]
                    self._active.add(key)
                    return key, None
            return None, None
        finally:
            for entry in held:
                heapq.heappush(self._heap, entry)
