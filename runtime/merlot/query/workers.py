"""Threads of one query: the calling thread and its helpers take items of work from a queue.

Items share nothing but the queue; the caller works on them as well, so a busy pool delays a query and never stops
it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TypeVar

from merlot.vectors import account

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Workers:
    """Calling thread and `num_helpers` threads of a pool. `check` raises if the query must stop."""

    pool: Executor | None = None
    num_helpers: int = 0
    check: Callable[[], None] = lambda: None

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return the results in the order of items. Raises the first error, after helpers stopped."""
        num_helpers = min(self.num_helpers, len(items) - 1)
        if num_helpers <= 0:
            return [self._one(work, item) for item in items]
        results: list[R | None] = [None] * len(items)
        queue = _Queue(iter(range(len(items))))

        def drain() -> None:
            try:
                while (number := queue.take()) is not None:
                    results[number] = self._one(work, items[number])
            except BaseException:
                queue.close()
                raise

        assert self.pool is not None
        helping = account.Helping()
        futures: list[Future[None]] = [self.pool.submit(helping, drain) for _ in range(num_helpers)]
        try:
            drain()
        finally:
            errors = [future.exception() for future in futures if not future.cancel()]
        for error in errors:
            if error is not None:
                raise error
        return results  # type: ignore[return-value]

    def _one(self, work: Callable[[T], R], item: T) -> R:
        self.check()
        return work(item)


class _Queue:
    """Numbers of items that are not taken yet."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._lock = threading.Lock()
        self._closed = False

    def take(self) -> int | None:
        with self._lock:
            return None if self._closed else next(self._numbers, None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
