"""What each broker says of itself: the revisions it runs, and which marked servers it still routes to.

One small node per broker, written by that broker alone and only when it changes; a restart under the same id goes on
with it. Whoever reads it takes the word of live brokers only.
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
    """Make the node say this, whatever it said; ConflictError if somebody else writes it all the time."""
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
    """The broker is gone for good, or says so itself."""
    with contextlib.suppress(NotFoundError):
        metastore.delete(paths.echo(broker))


def echoing(metastore: Metastore) -> list[InstanceId]:
    """Brokers that have a node, live or not."""
    return [InstanceId(name) for name in metastore.children(paths.ECHOES)]


def read_echoes(metastore: Metastore, brokers: Collection[InstanceId]) -> Mapping[InstanceId, EchoRecord]:
    """What these brokers say; one that has said nothing, or nothing readable, is missing."""
    echo_paths = [paths.echo(broker) for broker in brokers]
    found = {}
    for broker, path, node in zip(brokers, echo_paths, metastore.get_many(echo_paths), strict=True):
        if node is not None:
            with contextlib.suppress(CorruptionError):
                found[broker] = EchoRecord.from_bytes(node.data, path)
    return found
