"""Echoes of brokers: the revisions that each runs, and the marked servers that it still routes to.

There is one small node per broker, written by that broker alone and only when it changes. A restart under the same id
continues it. Readers use the echoes of live brokers only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from merlot.cluster import paths
from merlot.cluster.records import EchoRecord
from merlot.errors import ConflictError, CorruptionError, NotFoundError
from merlot.ids import InstanceId
from merlot.metastore.protocol import Metastore


def write_echo(metastore: Metastore, broker: InstanceId, record: EchoRecord) -> None:
    """Write the echo, whatever the node held; raise ConflictError if another process keeps writing it."""
    path, data = paths.echo(broker), record.to_bytes()
    for _ in range(5):
        node = metastore.get(path)
        with contextlib.suppress(ConflictError, NotFoundError):
            if node is None:
                metastore.create(path, data)
            elif node.data != data:
                metastore.put(path, data, node.version)
            return
    raise ConflictError(f"two processes claim one instance instance={broker}")


def remove_echo(metastore: Metastore, broker: InstanceId) -> None:
    """Remove the echo of a broker that is gone for good, or says so itself."""
    with contextlib.suppress(NotFoundError):
        metastore.delete(paths.echo(broker))


def echoing(metastore: Metastore) -> list[InstanceId]:
    """Return the brokers that have an echo, live or not."""
    return [InstanceId(name) for name in metastore.children(paths.ECHOES)]


def read_echoes(metastore: Metastore, brokers: Collection[InstanceId]) -> Mapping[InstanceId, EchoRecord]:
    """Return the echoes of these brokers; missing and unreadable ones are left out."""
    echo_paths = [paths.echo(broker) for broker in brokers]
    echoes = {}
    for broker, path, node in zip(brokers, echo_paths, metastore.get_many(echo_paths), strict=True):
        if node is not None:
            with contextlib.suppress(CorruptionError):
                echoes[broker] = EchoRecord.from_bytes(node.data, path)
    return echoes
