"""The last rebalance that was requested for a table: it gives progress a beginning, and remembers an abort."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from merlot.cluster import paths
from merlot.cluster.records import RebalanceRecord
from merlot.errors import ConflictError, CorruptionError, NotFoundError
from merlot.ids import TableName
from merlot.metastore.protocol import Create, Delete, Metastore


def put_rebalance(metastore: Metastore, table: TableName, record: RebalanceRecord) -> None:
    """Write the record in place of an earlier one."""
    path, data = paths.rebalance(table), record.to_bytes()
    for _ in range(5):
        node = metastore.get(path)
        with contextlib.suppress(ConflictError, NotFoundError):
            if node is None:
                metastore.create(path, data)
            else:
                # The node is made again, since readers watch the set of rebalances.
                metastore.multi([Delete(path, node.version), Create(path, data)])
            return
    raise ConflictError(f"rebalance is asked for by too many at once table={table}")


def rebalances(metastore: Metastore) -> Mapping[TableName, RebalanceRecord]:
    """Return the last rebalance by table; unreadable ones are left out."""
    names = metastore.children(paths.REBALANCES)
    rebalance_paths = [paths.rebalance(name) for name in names]
    records = {}
    for name, path, node in zip(names, rebalance_paths, metastore.get_many(rebalance_paths), strict=True):
        if node is not None:
            with contextlib.suppress(CorruptionError):
                records[TableName(name)] = RebalanceRecord.from_bytes(node.data, path)
    return records


def forget_rebalance(metastore: Metastore, table: TableName) -> None:
    """Remove the record of a table that is gone."""
    with contextlib.suppress(NotFoundError):
        metastore.delete(paths.rebalance(table))
