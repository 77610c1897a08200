"""The last rebalance of a table that somebody asked for: so that progress has a beginning, and an abort a memory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from merlot.cluster import paths
from merlot.cluster.records import RebalanceRecord
from merlot.errors import ConflictError, CorruptionError, NotFoundError
from merlot.ids import TableName
from merlot.metastore.protocol import Create, Delete, Metastore


def put_rebalance(metastore: Metastore, table: TableName, record: RebalanceRecord) -> None:
    """Remember it, whatever was asked for before."""
    path, data = paths.rebalance(table), record.to_bytes()
    for _ in range(5):
        node = metastore.get(path)
        with contextlib.suppress(ConflictError, NotFoundError):
            if node is None:
                metastore.create(path, data)
            else:
                # Anew, since readers watch which ones there are.
                metastore.multi([Delete(path, node.version), Create(path, data)])
            return
    raise ConflictError(f"rebalance is asked for by too many at once table={table}")


def rebalances(metastore: Metastore) -> Mapping[TableName, RebalanceRecord]:
    """The last one by table; one that cannot be read is as none."""
    names = metastore.children(paths.REBALANCES)
    rebalance_paths = [paths.rebalance(name) for name in names]
    found = {}
    for name, path, node in zip(names, rebalance_paths, metastore.get_many(rebalance_paths), strict=True):
        if node is not None:
            with contextlib.suppress(CorruptionError):
                found[TableName(name)] = RebalanceRecord.from_bytes(node.data, path)
    return found


def forget_rebalance(metastore: Metastore, table: TableName) -> None:
    """The table is gone."""
    with contextlib.suppress(NotFoundError):
        metastore.delete(paths.rebalance(table))
