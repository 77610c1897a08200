"""Resources that a query may use (threads, time, groups, rows and bytes), and the errors that end it when it needs
more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import ClassVar, Final

from merlot.clock import Clock, SystemClock
from merlot.codes import QueryErrorCode
from merlot.errors import UnavailableError
from merlot.kernels import compile_time
from merlot.segment.index.zones import BLOCK_DOCS
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.vectors.errors import LimitExceededError

DOCS_PER_THREAD: Final = 64 * BLOCK_DOCS
"""Fewest docs to look at that are worth waking another thread for. Kernels take tens of microseconds, with Python
between them: two threads take turns at the interpreter's lock, and each turn costs more than it gains. On two cores,
sums of 336,776 rows in 13 segments took 0.2 ms alone and 0.9 with a helper, GROUP BY 0.8 and 2.1. At 2.7 million rows
they break even; at 6 million in 8 segments a helper saves a tenth to a quarter."""


class QueryTimeoutError(UnavailableError):
    """Raised if the query's deadline has passed."""

    code: ClassVar[int] = QueryErrorCode.EXECUTION_TIMEOUT


class QueryCancelledError(UnavailableError):
    """Raised if the query was given up by its client, or by a broker that got the answer from another server."""

    code: ClassVar[int] = QueryErrorCode.QUERY_CANCELLATION


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionLimits:
    """Bounds of one query on one server or broker. Exceeding a bound is an error, never a shorter answer."""

    max_groups: int = 5_000_000
    """Most groups that a server or broker holds, of one segment and of all together."""
    max_rows: int = 10_000_000
    """Most rows of a selection, partial or final."""
    max_bytes: int = 1 << 30
    """Most bytes of one answer, partial or final."""
    work_bytes: int | None = None
    """Memory that the query works with, for values of expressions and states of aggregates. None: a query's share of
    the process's memory."""


class CancelToken:
    """Signal that a query must stop, checked between segments, kernels and chunks. Any thread may cancel.

    Seconds in which this process compiles or loads kernels do not count towards the deadline."""

    def __init__(self, deadline: float | None = None, clock: Clock | None = None) -> None:
        self._deadline = deadline
        self._clock: Clock = clock or SystemClock()
        self._counted_s = compile_time.seconds()
        self._is_cancelled = False

    @classmethod
    def after(cls, timeout_s: float, clock: Clock | None = None) -> CancelToken:
        """Return a token whose deadline is timeout_s seconds from now."""
        clock = clock or SystemClock()
        return cls(clock.monotonic() + timeout_s, clock)

    def cancel(self) -> None:
        """Make every later check raise."""
        self._is_cancelled = True

    def check(self) -> None:
        """Raise QueryCancelledError or QueryTimeoutError if the query must stop."""
        if self._is_cancelled:
            raise QueryCancelledError("query cancelled")
        if self._deadline is None:
            return
        late_s = self._clock.monotonic() - self._deadline
        if late_s > 0 and late_s > compile_time.seconds() - self._counted_s:
            raise QueryTimeoutError("query passed its deadline")


class TooMuchWorkError(UnavailableError):
    """Raised if the query has to look at more docs than `most_docs`: run it where there is more time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionContext:
    """Inputs and resources of `execute`. The calling thread works too, so a busy pool slows a query but cannot stop
    it."""

    schema: TableSchema
    indexing: IndexingSpec | None = None
    """Indexes that the table declares; queries use no others, even if segments have them. None: use all that segments
    have."""
    pool: Executor | None = None
    threads: int = 2
    """Threads of one query, the caller's included; without a pool, one."""
    docs_per_thread: int = DOCS_PER_THREAD
    """Docs to look at that make one more thread worth waking."""
    cancel: CancelToken = field(default_factory=CancelToken)
    limits: ExecutionLimits = field(default_factory=ExecutionLimits)
    host: str = ""
    """Value of the column `$hostName`."""
    most_docs: int | None = None
    """Most docs to look at; more raise TooMuchWorkError."""
    coalesce_later: Callable[[Callable[[], None]], None] | None = None
    """Function that schedules the coalescing of one column, or of the star-trees of the same segments, for later. If
    set, the calling thread has no time to coalesce and uses only what is coalesced already; if None, the calling thread
    coalesces."""


def check_groups(limits: ExecutionLimits, num_groups: int) -> None:
    """Raise LimitExceededError if a query has more groups than allowed."""
    if num_groups > limits.max_groups:
        raise LimitExceededError(f"query has too many groups limit={limits.max_groups} got={num_groups}")


def check_size(limits: ExecutionLimits, num_rows: int, num_bytes: int) -> None:
    """Raise LimitExceededError if an answer is larger than allowed."""
    if num_rows > limits.max_rows:
        raise LimitExceededError(f"answer has too many rows limit={limits.max_rows} got={num_rows}")
    if num_bytes > limits.max_bytes:
        raise LimitExceededError(f"answer has too many bytes limit={limits.max_bytes} got={num_bytes}")
