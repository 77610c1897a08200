"""Collect the writes of several functions, each of which writes for itself, into one transaction at the end.

A process that dies before `commit` has written nothing that others see. Reads go to the store and do not see pending
writes. Single creations and single deletions are not deferred: callers create singly only nodes that mean nothing yet,
and delete singly only nodes that nobody reads any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from merlot.metastore.protocol import Check, Create, Delete, Metastore, Node, Op, Put, SessionState, Watch


class PendingWrites:
    """A metastore whose writes wait for `commit`. Used by one thread."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._ops: list[Op] = []

    def commit(self) -> None:
        """Write all or none. Raise ConflictError if a node has changed since it was read."""
        if self._ops:
            self._metastore.multi(self._ops)

    def get(self, path: str) -> Node | None:
        return self._metastore.get(path)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return self._metastore.get_many(paths)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        self._metastore.create(path, data, ephemeral=ephemeral)

    def put(self, path: str, data: bytes, version: int) -> int:
        self._ops.append(Put(path, data, version))
        return version + 1

    def delete(self, path: str, version: int | None = None) -> None:
        self._metastore.delete(path, version)

    def multi(self, ops: Sequence[Op]) -> None:
        if all(isinstance(op, Check | Delete) for op in ops):
            self._metastore.multi(ops)
        else:
            self._ops += ops

    def add(self, op: Create | Put) -> None:
        """Add a write to the transaction."""
        self._ops.append(op)

    def children(self, path: str) -> list[str]:
        return self._metastore.children(path)

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._metastore.watch(path, callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._metastore.watch_children(path, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._metastore.on_session(callback)

    def close(self) -> None:
        self._metastore.close()
