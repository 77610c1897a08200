"""Stores that fail where a test says: they die at the n-th write, withhold its answer, or freeze there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeVar

from merlot.metastore.protocol import Metastore, MetastoreSilentError, Node, Op, SessionState, Watch

T = TypeVar("T")


class ProcessDied(BaseException):
    """Raised in place of SIGKILL: no handler of the product may catch it."""


class Fault(Enum):
    """Effect of the chosen write."""

    DIE_BEFORE = "the process dies before the write"
    DIE_AFTER = "the process dies after the write"
    LOSE_REQUEST = "the write does not happen, the caller sees MetastoreSilentError"
    LOSE_ANSWER = "the write happens, the caller sees MetastoreSilentError"


class FaultyMetastore:
    """Metastore that passes calls on; write number `at` (from 0) meets its fault. A dead process stays dead."""

    def __init__(self, inner: Metastore, fault: Fault, at: int) -> None:
        self._inner = inner
        self._fault = fault
        self._at = at
        self._is_dead = False
        self._is_silent = False
        self.num_writes = 0

    def fail_from(self, at: int) -> None:
        """Make all writes from this one on meet the fault, as in an outage."""
        self._at = at
        self._is_silent = True

    def get(self, path: str) -> Node | None:
        return self._read(lambda: self._inner.get(path))

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return self._read(lambda: self._inner.get_many(paths))

    def children(self, path: str) -> list[str]:
        return self._read(lambda: self._inner.children(path))

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        self._write(lambda: self._inner.create(path, data, ephemeral=ephemeral))

    def put(self, path: str, data: bytes, version: int) -> int:
        return self._write(lambda: self._inner.put(path, data, version))

    def delete(self, path: str, version: int | None = None) -> None:
        self._write(lambda: self._inner.delete(path, version))

    def multi(self, ops: Sequence[Op]) -> None:
        self._write(lambda: self._inner.multi(ops))

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._inner.watch(path, callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._inner.watch_children(path, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._inner.on_session(callback)

    def close(self) -> None:
        self._inner.close()

    def _read(self, call: Callable[[], T]) -> T:
        if self._is_dead:
            raise ProcessDied
        return call()

    def _write(self, call: Callable[[], T]) -> T:
        if self._is_dead:
            raise ProcessDied
        number = self.num_writes
        self.num_writes += 1
        if number != self._at and not (self._is_silent and number > self._at):
            return call()
        if self._fault in {Fault.DIE_AFTER, Fault.LOSE_ANSWER}:
            call()
        if self._fault in {Fault.DIE_BEFORE, Fault.DIE_AFTER}:
            self._is_dead = True
            raise ProcessDied
        raise MetastoreSilentError(f"metastore cannot answer write={number} fault={self._fault.name}")


METASTORE_WRITES = ("create", "put", "delete", "multi")
STORE_CALLS = ("put", "fetch", "delete", "list", "list_below", "modified_ms")


class Interrupted:
    """Wrapper that passes calls on and calls `act` before call number `at` (from 0) of the named methods.

    An `act` that raises ProcessDied is a kill, after which every such call dies. An `act` that lets others work is a
    freeze: the call is made when it returns."""

    def __init__(self, inner: Any, methods: Sequence[str], at: int, act: Callable[[], None]) -> None:
        self._inner = inner
        self._methods = methods
        self._at = at
        self._act = act
        self._is_dead = False
        self.num_calls = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name not in self._methods:
            return attribute

        def call(*args: Any, **options: Any) -> Any:
            if self._is_dead:
                raise ProcessDied
            number = self.num_calls
            self.num_calls += 1
            if number == self._at:
                try:
                    self._act()
                except ProcessDied:
                    self._is_dead = True
                    raise
            return attribute(*args, **options)

        return call
