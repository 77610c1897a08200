"""What a query may use: threads, time, groups, rows and bytes; and how it ends when it asks for more."""

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
"""Kernels of tens of microseconds and Python between them: two threads take turns at the interpreter's lock, and each
turn costs more than it wins. On two cores, sums of 336,776 rows in 13 segments took 0.2 ms alone and 0.9 with a helper,
group-by 0.8 and 2.1; of 2.7 million rows they break even, of 6 million in 8 segments a helper takes off a tenth to a
quarter."""


class QueryTimeoutError(UnavailableError):
    """The query's deadline passed."""

    code: ClassVar[int] = QueryErrorCode.EXECUTION_TIMEOUT


class QueryCancelledError(UnavailableError):
    """The client, or a broker that found its answer elsewhere, gave up."""

    code: ClassVar[int] = QueryErrorCode.QUERY_CANCELLATION


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionLimits:
    """Bounds of one query on one server or broker; reaching one is an error, never a shorter answer."""

    max_groups: int = 5_000_000
    """Groups that a server holds, of a segment and of all together."""
    max_rows: int = 10_000_000
    """Rows of a selection, partial or final."""
    max_bytes: int = 1 << 30
    """Bytes of one answer, partial or final."""
    work_bytes: int | None = None
    """Memory that it works with: values of expressions, states of aggregates; None: the process's share of a query."""


class CancelToken:
    """Says whether a query must stop; asked between segments, kernels and chunks. Any thread may cancel.

    Seconds in which this process gets machine code do not count towards the deadline."""

    def __init__(self, deadline: float | None = None, clock: Clock | None = None) -> None:
        self._deadline = deadline
        self._clock: Clock = clock or SystemClock()
        self._counted_s = compile_time.seconds()
        self._is_cancelled = False

    @classmethod
    def after(cls, timeout_s: float, clock: Clock | None = None) -> CancelToken:
        """A token whose deadline is timeout_s seconds from now."""
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
    """More docs have to be looked at than the caller wants to: somebody with more time must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionContext:
    """What `execute` may use. The calling thread works too, so a pool that is busy slows a query but cannot stop it."""

    schema: TableSchema
    indexing: IndexingSpec | None = None
    """Indexes that the table asks for; queries use no others, though segments have them. None: whatever there is."""
    pool: Executor | None = None
    threads: int = 2
    """Threads of one query, the caller's included; without a pool, one."""
    docs_per_thread: int = DOCS_PER_THREAD
    """Docs to look at that are worth waking one more of them for."""
    cancel: CancelToken = field(default_factory=CancelToken)
    limits: ExecutionLimits = field(default_factory=ExecutionLimits)
    host: str = ""
    """Answers `$hostName`."""
    most_docs: int | None = None
    """TooMuchWorkError if more docs have to be looked at."""
    join_later: Callable[[Callable[[], None]], None] | None = None
    """Is given the joining of segments, column by column, when it is due: the calling thread, which has no time for
    that, only uses what is joined. Without it the calling thread joins."""


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
