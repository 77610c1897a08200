"""Positions of replicas that have a reason to end their segment: one node each, until the segment has ended.

Only ends that the rows do not decide need them. The greatest position becomes the end. So a replica that has just begun
does not end a segment at its first rows, and the others have little to carry over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from merlot.cluster import paths
from merlot.cluster.records import PositionRecord
from merlot.errors import ConflictError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore, NodeDeleter

Positions = Mapping[str, Mapping[InstanceId, PositionRecord]]
"""Positions by segment and instance."""


def publish_position(metastore: Metastore, table: TableName, position: PositionRecord) -> None:
    """Write a position, in place of an earlier one of the same instance and segment."""
    path = paths.position(table, position.segment, position.instance)
    data = position.to_bytes()
    while True:
        node = metastore.get(path)
        with suppress(ConflictError, NotFoundError):
            if node is None:
                metastore.create(path, data)
            elif node.data != data:
                metastore.put(path, data, node.version)
            return


def read_positions(metastore: Metastore, table: TableName) -> Positions:
    """Return all positions of the table, by segment and instance."""
    folder = paths.positions(table)
    nodes = [paths.child(folder, name) for name in metastore.children(folder)]
    by_segment: dict[str, dict[InstanceId, PositionRecord]] = {}
    for path, node in zip(nodes, metastore.get_many(nodes), strict=True):
        if node is not None:
            record = PositionRecord.from_bytes(node.data, path)
            by_segment.setdefault(record.segment, {})[record.instance] = record
    return by_segment


def forget_positions(metastore: NodeDeleter, table: TableName, consuming: Collection[str]) -> int:
    """Delete the positions of all segments except `consuming`; return how many."""
    folder = paths.positions(table)
    gone = [name for name in metastore.children(folder) if name.rpartition("~")[0] not in consuming]
    for name in gone:
        with suppress(NotFoundError):
            metastore.delete(paths.child(folder, name))
    return len(gone)
