"""Marks on instances that are about to stop: set for an operator, followed by brokers, cleared by the next start.

A mark is not ephemeral: it outlives the process that it is about, and the client that set it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping

from merlot.cluster import paths
from merlot.cluster.records import DrainRecord
from merlot.errors import ConflictError, CorruptionError, NotFoundError
from merlot.ids import InstanceId
from merlot.metastore.protocol import Create, Delete, Metastore, Node


def mark(metastore: Metastore, instance: InstanceId, *, leaving: bool, now_ms: int) -> DrainRecord:
    """Mark an instance, so that brokers route around it. A mark with the same contents stays as it is."""
    path = paths.drain(instance)
    record = DrainRecord(token=secrets.token_hex(5), leaving=leaving, since_ms=now_ms)
    while True:
        node = metastore.get(path)
        with contextlib.suppress(ConflictError, NotFoundError):
            if node is None:
                metastore.create(path, record.to_bytes())
                return record
            current = _read(node, path)
            if current is not None and current.leaving == leaving:
                return current
            # The token stays: for brokers it is the same mark.
            changed = record if current is None else current.model_copy(update={"leaving": leaving})
            # The node is deleted and created again, since readers watch only which marks exist.
            metastore.multi([Delete(path, node.version), Create(path, changed.to_bytes())])
            return changed


def unmark(metastore: Metastore, instance: InstanceId) -> bool:
    """Remove the mark of an instance; return whether it had one."""
    with contextlib.suppress(NotFoundError):
        metastore.delete(paths.drain(instance))
        return True
    return False


def marks(metastore: Metastore) -> Mapping[InstanceId, DrainRecord]:
    """Return all marks. An unreadable mark counts as a mark with defaults."""
    instances = metastore.children(paths.DRAINS)
    drain_paths = [paths.drain(instance) for instance in instances]
    nodes = zip(instances, drain_paths, metastore.get_many(drain_paths), strict=True)
    return {
        InstanceId(instance): _read(node, path) or DrainRecord() for instance, path, node in nodes if node is not None
    }


def _read(node: Node, path: str) -> DrainRecord | None:
    try:
        return DrainRecord.from_bytes(node.data, path)
    except CorruptionError:
        return None
