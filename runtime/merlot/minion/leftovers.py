"""What ended tasks leave in the metastore: the nodes of their leases, which must outlive every holder that may wake."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.metastore import Metastore
from merlot.cluster.records import LeaseRecord
from merlot.errors import ConflictError, MerlotError, NotFoundError

_LOG = logging.getLogger(__name__)

LEASE_KEPT_MS = 86_400_000
"""A process that is frozen for longer than this finds its lease gone, which fences it as well."""


def forget_leases(metastore: Metastore, kinds: Iterable[str], clock: Clock) -> int:
    """Delete the leases of tasks that ended a day ago; returns how many. Never raises: it is tried again."""
    try:
        return sum(_forget(metastore, kind, clock.now_ms() - LEASE_KEPT_MS) for kind in kinds)
    except MerlotError as error:
        _LOG.info("old leases not deleted cause=%s", error)
        return 0


def _forget(metastore: Metastore, kind: str, before_ms: int) -> int:
    prefix = f"task-{kind}-"
    queued = set(metastore.children(paths.tasks(kind)))
    num_deleted = 0
    for name in metastore.children(paths.LEASES):
        if not name.startswith(prefix) or name.removeprefix(prefix) in queued:
            continue
        path = paths.lease(name)
        node = metastore.get(path)
        if node is None or metastore.children(path):
            continue
        if not node.data or LeaseRecord.from_bytes(node.data, path).acquired_ms < before_ms:
            with contextlib.suppress(ConflictError, NotFoundError):
                metastore.delete(path, node.version)
                num_deleted += 1
    return num_deleted
