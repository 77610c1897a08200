"""The store of shared state, with ZooKeeper's model: small versioned nodes, watches, ephemerals, transactions.

Two implementations, `zookeeper` and `sqlite`, pass one contract suite (`merlot.testing.metastore_contract`). All calls
block and may be made from any thread except an event loop's: roles call them through a thread. Callbacks run on a
thread of the metastore, one at a time, and must only hand over (set an event, post to a loop). Errors: ConflictError
for a stale version or an existing node; NotFoundError for a missing node; CorruptionError, naming the path, for a
record that is not what was written (`checksums`); MetastoreSilentError (of the family UnavailableError) while the store
cannot answer: whether a write took effect is unknown then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from merlot.errors import CorruptionError, InvalidInputError, UnavailableError

_LOG = logging.getLogger(__name__)

MAX_TRANSACTION_BYTES = 1_000_000
"""ZooKeeper takes 1,048,575 bytes per request (jute.maxbuffer), paths, headers and checksums included."""


class MetastoreSilentError(UnavailableError):
    """The whole store cannot answer now; this says nothing about the nodes that were to be read or written."""


class MetastoreClosedError(MetastoreSilentError):
    """The owner of this session has closed it: it will never answer again."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node's record and the version that a compare-and-set must present."""

    record: bytes = field(repr=False)
    version: int
    modified_ms: int | None = field(default=None, compare=False)
    """Time of the last write by the store's own clock, UTC; None if the store has no clock of its own."""
    damage: str = ""
    """Error that names the path, if the record is not what was written."""

    @property
    def data(self) -> bytes:
        """The record. Raises CorruptionError if it is damaged."""
        if self.damage:
            raise CorruptionError(self.damage)
        return self.record


@dataclass(frozen=True, slots=True)
class Create:
    """Create `path`; fails if it exists. Missing parents are made too, and may stay if the transaction fails."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Replace the bytes of `path` if its version is `version`."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete `path` if its version is `version`; None means any version."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the transaction unless the version of `path` is `version`: how a lease fences a write."""

    path: str
    version: int


Op = Create | Put | Delete | Check


class NodeDeleter(Protocol):
    """Calls of a metastore that are needed to delete nodes."""

    def get(self, path: str) -> Node | None: ...
    def children(self, path: str) -> list[str]: ...
    def delete(self, path: str, version: int | None = None) -> None: ...


class SessionState(StrEnum):
    """CONNECTED; SUSPENDED: the store is silent, ephemerals still stand; LOST: ephemerals are gone."""

    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"
    LOST = "LOST"


class Watch(Protocol):
    """A standing subscription."""

    def cancel(self) -> None:
        """Stop calling back; a call under way may still finish."""
        ...


class Metastore(Protocol):
    """Blocking access to shared state. Paths are absolute inside the cluster's chroot: `/CONFIGS/TABLE/t`."""

    def get(self, path: str) -> Node | None:
        """Return the node, or None if it is missing. Raise CorruptionError if its record is damaged."""
        ...

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the nodes in order, pipelined; they are not one snapshot. The others can be read if
        one is damaged."""
        ...

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Create a node and its missing parents. Raise ConflictError if it exists."""
        ...

    def put(self, path: str, data: bytes, version: int) -> int:
        """Replace the bytes if the version is `version` (compare-and-set); return the new version."""
        ...

    def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node without children. Raise NotFoundError or ConflictError."""
        ...

    def multi(self, ops: Sequence[Op]) -> None:
        """Apply all ops or none, about 1 MB at most. Raise ConflictError, which names the op that failed."""
        ...

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children; none if the node is missing."""
        ...

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back at least once after any change of the node (created, changed, deleted) since this call.

        The watch is standing: it re-arms itself, survives session loss, and calls back after every reconnect. One call
        may stand for several changes; the callback reads the node itself."""
        ...

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Watch the set of children as `watch` does a node; the node may not exist yet."""
        ...

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        """Call back at every change of the session's state. After LOST, owners create their ephemerals anew."""
        ...

    def close(self) -> None:
        """End the session: its ephemerals are deleted at once."""
        ...


def undamaged(node: Node | None) -> Node | None:
    """Return the node; raise CorruptionError if its record is damaged."""
    if node is not None and node.damage:
        raise CorruptionError(node.damage)
    return node


def check_size(ops: Sequence[Op]) -> None:
    """Raise InvalidInputError, in both implementations, for a transaction that ZooKeeper would refuse as too large."""
    size = sum(len(op.path) + len(op.data) + 32 for op in ops if isinstance(op, Create | Put))
    if size > MAX_TRANSACTION_BYTES:
        raise InvalidInputError(f"transaction is too large bytes={size} limit={MAX_TRANSACTION_BYTES}")


def run_callback(callback: Callable[[], None]) -> None:
    """Run a watch's callback and log its exception, if any: a callback that raises must not silence the watches behind
    it."""
    try:
        callback()
    except Exception:  # noqa: BLE001 - the outermost loop of the dispatcher
        _LOG.exception("watch callback failed callback=%r", callback)


def parents(path: str) -> list[str]:
    """Return the ancestors of a path below the root, outermost first."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
