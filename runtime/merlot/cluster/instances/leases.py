"""Leadership: a lease that is checked by version at every write made under it.

The lease's node is persistent, so its version never goes back, and it fences every later write of a former holder. The
holder's pulse is an ephemeral: while it exists nobody else takes the lease, and nothing has to be renewed. A frozen
holder that wakes after its session expired fails at its first write.
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from typing import Self

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.records import LeaseRecord
from merlot.errors import ConflictError, MerlotError, NotFoundError
from merlot.metastore.protocol import Check, Metastore, Node


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it was acquired. Only a successful write with its fence proves that it is still held."""

    name: str
    owner: str
    token: str
    version: int

    @property
    def fence(self) -> Check:
        """The check that every write under the lease carries."""
        return Check(paths.lease(self.name), self.version)

    @classmethod
    def acquire(cls, metastore: Metastore, name: str, owner: str, clock: Clock) -> Self | None:
        """Take the lease if nobody else holds it; return None if somebody does.

        A lease that `owner` holds already, perhaps without knowing, is taken anew: the old version is fenced off."""
        path = paths.lease(name)
        node = metastore.get(path)
        if node is None:
            with contextlib.suppress(ConflictError):
                metastore.create(path, LeaseRecord().to_bytes())
            node = metastore.get(path)
        if node is None or (_is_held(metastore, path, node) and _record(path, node).owner != owner):
            return None
        token = secrets.token_hex(5)
        pulse = paths.child(path, token)
        metastore.create(pulse, owner.encode(), ephemeral=True)
        record = LeaseRecord(owner=owner, token=token, acquired_ms=clock.now_ms())
        try:
            version = metastore.put(path, record.to_bytes(), node.version)
        except ConflictError:
            with contextlib.suppress(NotFoundError):  # gone with its session, which ended meanwhile
                metastore.delete(pulse)
            return None
        return cls(name, owner, token, version)

    def is_held(self, metastore: Metastore) -> bool:
        """Return True if the lease was still held at the time of the call."""
        path = paths.lease(self.name)
        node = metastore.get(path)
        return node is not None and node.version == self.version and _is_held(metastore, path, node)

    def release(self, metastore: Metastore) -> None:
        """Let the next holder in at once. Never raises: the pulse ends with the session anyway."""
        with contextlib.suppress(MerlotError):
            metastore.delete(paths.child(paths.lease(self.name), self.token))


def holder(metastore: Metastore, name: str) -> str | None:
    """Return the owner who holds the lease now; None if nobody does."""
    path = paths.lease(name)
    node = metastore.get(path)
    if node is None or not _is_held(metastore, path, node):
        return None
    return _record(path, node).owner


def _record(path: str, node: Node) -> LeaseRecord:
    return LeaseRecord.from_bytes(node.data, path) if node.data else LeaseRecord()


def _is_held(metastore: Metastore, path: str, node: Node) -> bool:
    record = _record(path, node)
    return bool(record.token) and metastore.get(paths.child(path, record.token)) is not None
