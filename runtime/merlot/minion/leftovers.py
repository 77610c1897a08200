"""Delete what ended tasks leave in the metastore: lease nodes, which must outlive every holder that may still wake, and
progress that dead minions wrote.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.records import LeaseRecord
from merlot.errors import ConflictError, MerlotError, NotFoundError
from merlot.metastore.protocol import Metastore
from merlot.values.periods import DAY_MS

_LOG = logging.getLogger(__name__)

LEASE_KEPT_MS = DAY_MS
"""Age, since the lease was acquired, at which an ended task's lease node is deleted. A process that was frozen for
longer finds its lease gone, which fences it, too."""


def sweep(metastore: Metastore, kinds: Iterable[str], clock: Clock) -> int:
    """Delete leases of ended tasks that were acquired more than a day ago, and progress of all ended tasks. Return the
    number of deleted nodes. A MerlotError is logged, not raised: the next sweep tries again."""
    num_deleted = 0
    try:
        for kind in kinds:
            num_deleted += _forget_leases(metastore, kind, clock.now_ms() - LEASE_KEPT_MS)
            num_deleted += _forget_progress(metastore, kind)
    except MerlotError as error:
        _LOG.info("leftovers of tasks not deleted cause=%s", error)
    return num_deleted


def _forget_progress(metastore: Metastore, kind: str) -> int:
    said = metastore.children(paths.progress_of(kind))
    over = sorted(set(said) - set(metastore.children(paths.tasks(kind)))) if said else []
    for task in over:
        with contextlib.suppress(NotFoundError):
            metastore.delete(paths.task_progress(kind, task))
    return len(over)


def _forget_leases(metastore: Metastore, kind: str, before_ms: int) -> int:
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
