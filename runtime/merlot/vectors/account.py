"""Account for the memory that queries work with: values of expressions, states of aggregates, rows that are collected.

A query has an account, and all accounts of a process share its total. Code that is about to make something large asks
first (`expect`), and memory that stays in use is counted (`hold`). A query that would pass its share fails. When all
queries together pass the total, or the process really takes nearly all that it may, the query that holds most is ended.

The account of the query that a thread works for is a context variable, so that no function needs a parameter for it.
For code that works for no query nothing is counted; it is refused only memory that the process cannot have at all.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import pyarrow as pa

from merlot import memory
from merlot.codes import QueryErrorCode
from merlot.errors import UnavailableError, first_line
from merlot.vectors.errors import LimitExceededError

T = TypeVar("T")
SMALL_BYTES: Final = 1 << 16
"""Bytes up to which memory is not counted: locks and system calls would cost more than it."""
MEASURED_BYTES: Final = 32 << 20
"""Bytes counted after which the memory of the process is measured again."""
BLOCK_ITEMS: Final = 4
OBJECT_BYTES: Final = 56
"""Bytes that a Python object takes besides its characters."""
OBJECT_WORDS: Final = 14
"""Words that a Python object takes, its pointer included: a Decimal has 104 bytes."""
_FULL: Final = 15 / 16
"""Share of all memory past which the process is full, whatever was counted."""
_TOO_LONG: Final = ("offset overflow", "overflowed binary array capacity")
"""Messages of Arrow about values that have more than 2 GiB together."""


class MemoryShortError(UnavailableError):
    """Raised when the process ran short of memory, and this query held most of it."""

    code: ClassVar[int] = QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED


class Total:
    """Bytes that all queries of a process hold together. Any thread."""

    def __init__(self, max_bytes: int | None = None, measure: Callable[[], int] = memory.taken_bytes) -> None:
        """`max_bytes`: bytes that all queries may hold; None: half of the memory. `measure` returns the bytes that the
        process takes."""
        self._given = max_bytes
        self._measure = measure
        self._lock = threading.Lock()
        self._accounts: set[Account] = set()
        self._bounds: tuple[int, int] | None = None
        self._since_measured = 0
        self.held_bytes = 0

    @property
    def max_bytes(self) -> int:
        """Bytes that all queries may hold."""
        return self._limits()[0]

    @property
    def query_bytes(self) -> int:
        """Bytes that a query may hold, if nothing says less."""
        return self._limits()[0] // 2

    @property
    def process_bytes(self) -> int:
        """Bytes past which the process is full, whatever was counted."""
        return self._limits()[1]

    def close(self, account: Account) -> None:
        """Give back whatever an account holds."""
        if account not in self._accounts:
            return  # most queries never hold anything large
        with self._lock:
            self._accounts.discard(account)
            self.held_bytes -= account.held_bytes
            account.held_bytes = 0

    def add(self, account: Account, num_bytes: int) -> None:
        """Count bytes, or give them back; end the queries that hold most if that is too much."""
        with self._lock:
            self._accounts.add(account)
            account.held_bytes += num_bytes
            self.held_bytes += num_bytes
            if num_bytes <= 0:
                return
            surplus = self.held_bytes - self.max_bytes
            self._since_measured += num_bytes
            if self._since_measured > MEASURED_BYTES:
                self._since_measured = 0
                surplus = max(surplus, self._measure() - self._limits()[1])
            if surplus > 0:
                self._end_largest(surplus)

    def _end_largest(self, surplus: int) -> None:
        """End accounts until those that end hold the surplus."""
        running = sorted(
            (account for account in self._accounts if not account.is_ended), key=lambda account: account.held_bytes
        )
        surplus -= sum(account.held_bytes for account in self._accounts if account.is_ended)
        while surplus > 0 and running and running[-1].held_bytes:
            largest = running.pop()
            largest.is_ended = True
            surplus -= largest.held_bytes

    def _limits(self) -> tuple[int, int]:
        # Computed late: tests and containers set limits after this module is imported.
        if self._bounds is None:
            total = memory.total_bytes()
            self._bounds = self._given or total // 2, int(total * _FULL)
        return self._bounds


TOTAL: Final = Total()


@dataclass(slots=True, eq=False)
class Account:
    """Bytes that one query holds."""

    max_bytes: int
    total: Total | None = None
    check: Callable[[], None] | None = None
    """Function that raises if the query is to stop; called before something large is made."""
    held_bytes: int = 0
    is_ended: bool = False

    def expect(self, what: str, num_bytes: int) -> None:
        """Raise LimitExceededError if `num_bytes` more would pass the query's share, MemoryShortError if the query was
        ended, and whatever `check` raises."""
        if self.held_bytes + num_bytes > self.max_bytes:
            sizes = f"bytes={num_bytes} held={self.held_bytes} limit={self.max_bytes}"
            raise LimitExceededError(f"query needs too much memory for {what} {sizes}")
        if self.is_ended:
            raise MemoryShortError(f"query was ended: too little memory for all queries held={self.held_bytes}")
        if self.check is not None:
            self.check()

    def add(self, what: str, num_bytes: int) -> None:
        """Count bytes, or give them back; raise as `expect`. An account without a total counts nothing."""
        if self.total is None:
            return
        if num_bytes > 0:
            self.expect(what, num_bytes)
        self.total.add(self, num_bytes)
        if num_bytes > 0 and self.is_ended:
            self.expect(what, 0)


@dataclass(slots=True)
class Spending:
    """Bytes that one thread holds of a query's account. `settle` and `release` go back to an earlier `held_bytes`."""

    account: Account
    held_bytes: int = 0
    function: str = ""
    """Name of the function that is being applied."""

    def expect(self, what: str, num_bytes: int) -> None:
        """Raise as `Account.expect` does, for more than SMALL_BYTES. If `what` is empty, the error names the
        function."""
        if num_bytes > SMALL_BYTES:
            self.account.expect(what or self.function, num_bytes)

    def hold(self, what: str, num_bytes: int) -> None:
        """Count bytes until `settle` or `release` goes back to a mark before them, or the query ends."""
        if num_bytes > SMALL_BYTES:
            self.account.add(what, num_bytes)
            self.held_bytes += num_bytes

    def resize(self, what: str, before: int, after: int) -> None:
        """Count something that has `after` bytes from now on, and had `before`; 0: it does not exist."""
        change = (after if after > SMALL_BYTES else 0) - (before if before > SMALL_BYTES else 0)
        if change:
            self.account.add(what, change)
            self.held_bytes += change

    def settle(self, what: str, mark: int, num_bytes: int) -> None:
        """Hold only these bytes beyond the mark."""
        if num_bytes <= SMALL_BYTES:
            num_bytes = 0
        change = mark + num_bytes - self.held_bytes
        if change:
            self.account.add(what, change)
            self.held_bytes = mark + num_bytes

    def release(self, mark: int) -> None:
        """Hold nothing beyond the mark."""
        if self.held_bytes != mark:
            self.account.add("", mark - self.held_bytes)
            self.held_bytes = mark


class _Nobody(Spending):
    """Spending of code that works for no query, in any number of threads."""

    __slots__ = ()

    def expect(self, what: str, num_bytes: int) -> None:
        if num_bytes > SMALL_BYTES:
            Account(TOTAL.process_bytes).expect(what or self.function, num_bytes)

    def hold(self, what: str, num_bytes: int) -> None:
        self.expect(what, num_bytes)

    def resize(self, what: str, before: int, after: int) -> None:
        self.expect(what, after - before)

    def settle(self, what: str, mark: int, num_bytes: int) -> None:
        """Nothing is held."""

    def release(self, mark: int) -> None:
        """Nothing is held."""


_NOBODY: Final = _Nobody(Account(0))
_CURRENT: Final[ContextVar[Spending]] = ContextVar("spending", default=_NOBODY)
current: Final[Callable[[], Spending]] = _CURRENT.get
"""Return the spending of this thread for the query that it works for."""


@dataclass(slots=True)
class Working:
    """Block that works for a query: whatever it holds is given back at the end. Without a `check` it has that of the
    block around it.

    If memory runs out nevertheless, LimitExceededError is raised."""

    max_bytes: int | None = None
    check: Callable[[], None] | None = None
    total: Total = field(default_factory=lambda: TOTAL)
    _account: Account | None = None
    _token: Any = None

    def __enter__(self) -> Account:
        most = self.total.query_bytes
        check = self.check or current().account.check
        account = Account(most if self.max_bytes is None else min(self.max_bytes, most), self.total, check)
        self._account, self._token = account, _CURRENT.set(Spending(account))
        return account

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._account is not None
        _CURRENT.reset(self._token)
        self.total.close(self._account)
        shortage = out_of_memory(error)
        if shortage is not None:
            raise shortage from error


def out_of_memory(error: BaseException | None) -> LimitExceededError | None:
    """Return the error of a query that ran out of memory although it was counted; None for any other error."""
    is_short = isinstance(error, MemoryError | pa.lib.ArrowCapacityError)
    is_too_long = isinstance(error, pa.ArrowInvalid) and any(text in str(error) for text in _TOO_LONG)
    if error is not None and (is_short or is_too_long):
        return LimitExceededError(f"query needs more memory than there is cause={first_line(error):.200}")
    return None


class Helping:
    """Runner of work in other threads, for the query of the thread that made it."""

    def __init__(self) -> None:
        self._account = current().account
        self._is_query = type(current()) is Spending

    def __call__(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns; memory that it holds is counted for the query."""
        if not self._is_query:
            return work()
        spending = Spending(self._account)
        token = _CURRENT.set(spending)
        try:
            return work()
        finally:
            _CURRENT.reset(token)


def gathered(items: Iterable[T]) -> list[T]:
    """List texts, bytes or lists of these. Raises LimitExceededError before they take more than the query may have, and
    what the query's check raises."""
    values: list[T] = []
    num_bytes, spending = 0, current()
    for block in _blocks(items):
        num_bytes += sum([_python_bytes(item) for item in block])
        spending.expect("", num_bytes)
        values += block
    return values


def listed(items: Iterable[T]) -> list[T]:
    """List numbers. Raises what the query's check raises."""
    return list(itertools.chain.from_iterable(_blocks(items)))


def _blocks(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield few items at a time, since each may take long."""
    pending, check = iter(items), current().account.check
    while block := list(itertools.islice(pending, BLOCK_ITEMS)):
        if check is not None:
            check()
        yield block


def _python_bytes(item: Any) -> int:
    if isinstance(item, list):
        return OBJECT_BYTES + sum([_python_bytes(element) for element in item])
    return OBJECT_BYTES + len(item) if isinstance(item, str | bytes) else OBJECT_BYTES


def size_of(values: Any) -> int:
    """Return the bytes that values of numpy or Arrow take, an estimate for arrays of objects; 0 for anything else."""
    if isinstance(values, np.ndarray):
        return values.nbytes * (OBJECT_WORDS if values.dtype.hasobject else 1)
    return int(values.nbytes) if isinstance(values, pa.Array | pa.ChunkedArray) else 0
