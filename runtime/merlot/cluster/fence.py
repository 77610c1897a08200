"""Fenced writes: they take effect only until another process takes over the same writing.

The last process that called `take` on a node is the writer. All writes through an older `Fenced` are refused from then
on, in the transaction that would have written. Reads, watches and sessions are the store's own. Any thread may call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from merlot.cluster import paths
from merlot.cluster.records import OperatorRecord
from merlot.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from merlot.metastore.protocol import Check, Create, Delete, Metastore, Node, Op, Put, SessionState, Watch

FENCE_HEADER = "Merlot-Fence"
"""Header of a request that makes a controller write for an operator."""
MAX_DIGITS = 9
"""Limit for the digits of a version: those of nodes have 32 bits."""
MAX_SHOWN = 100
"""Characters of a wrong fence that its error shows."""


class WriterSupersededError(UnavailableError):
    """Another process has taken over this writing: this process must not write any more."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Turn of a writer: turns of a namespace are ordered by `version`."""

    namespace: str
    version: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.version}"


def parse(text: str) -> Fence:
    """Parse the text of a fence, as `str` writes it; raise InvalidInputError."""
    namespace, _, version = text.partition("/")
    if not namespace or not version.isdecimal() or len(version) > MAX_DIGITS:
        raise InvalidInputError(f"fence must be NAMESPACE/VERSION got={text[:MAX_SHOWN]!r}")
    return Fence(namespace, int(version))


def take(metastore: Metastore, namespace: str, record: OperatorRecord) -> Fence:
    """Become the writer of a namespace's declarations; the fence holds until the next call."""
    path = paths.operator(namespace)
    while True:
        node = metastore.get(path)
        try:
            if node is not None:
                return Fence(namespace, metastore.put(path, record.to_bytes(), node.version))
            metastore.create(path, record.to_bytes())
            return Fence(namespace, 0)
        except (ConflictError, NotFoundError):
            continue


class Fenced:
    """A metastore whose writes check that the fence still holds."""

    def __init__(self, metastore: Metastore, fence: Fence) -> None:
        self._metastore = metastore
        self._check = Check(paths.operator(fence.namespace), fence.version)

    def get(self, path: str) -> Node | None:
        return self._metastore.get(path)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return self._metastore.get_many(paths)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        self.multi([Create(path, data, ephemeral)])

    def put(self, path: str, data: bytes, version: int) -> int:
        self._write_alone(Put(path, data, version))
        return version + 1

    def delete(self, path: str, version: int | None = None) -> None:
        self._write_alone(Delete(path, version))

    def multi(self, ops: Sequence[Op]) -> None:
        try:
            self._metastore.multi([self._check, *ops])
        except (ConflictError, NotFoundError) as error:
            self._refuse_if_superseded(error)
            raise

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

    def _write_alone(self, op: Put | Delete) -> None:
        """Write one op. A transaction raises ConflictError for a missing node, where a single write raises
        NotFoundError."""
        try:
            self.multi([op])
        except ConflictError as error:
            if self._metastore.get(op.path) is None:
                raise NotFoundError(f"node is missing path={op.path}") from error
            raise

    def _refuse_if_superseded(self, error: Exception) -> None:
        node = self._metastore.get(self._check.path)
        if node is None or node.version != self._check.version:
            holder = "nobody" if node is None else OperatorRecord.from_bytes(node.data, self._check.path).holder
            text = f"another one writes here now path={self._check.path} holder={holder}"
            raise WriterSupersededError(text) from error
