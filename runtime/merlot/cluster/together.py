"""Several writes as one transaction: what functions that write for themselves would write, done at once at the end.

Who dies before `commit` has written nothing that anybody sees. Reads are of the store as it is: none sees what waits.
Nodes that are created alone, and deletions alone, are done at once: functions create alone what says nothing yet, and
delete alone what nobody reads any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from merlot.metastore.protocol import Check, Create, Delete, Metastore, Node, Op, Put, SessionState, Watch


class Together:
    """A metastore whose writes wait for `commit`. Of one thread."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._ops: list[Op] = []

    def commit(self) -> None:
        """Write all, or none; ConflictError if one of them meets something else than what was read."""
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
        """One more write of the transaction."""
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
