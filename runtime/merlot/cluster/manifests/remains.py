"""Clear the remains of a deleted table, only while the table stays deleted.

A process that deletes a table may freeze in between, and a table of the same name may be created meanwhile. The nodes
under the same paths are then the new table's, and none of them may be deleted. Any thread may call.
"""

from __future__ import annotations

from merlot.cluster import paths
from merlot.cluster.records import RootRecord
from merlot.errors import ConflictError, NotFoundError
from merlot.ids import TableName
from merlot.metastore.protocol import Check, Delete, Metastore, Node


class Remains:
    """Nodes of a table, to be read and deleted. A deletion takes effect only while the table's root is that of
    a deleted table."""

    def __init__(self, metastore: Metastore, table: TableName) -> None:
        self._metastore = metastore
        self._root = paths.segments_root(table)

    def get(self, path: str) -> Node | None:
        return self._metastore.get(path)

    def children(self, path: str) -> list[str]:
        return self._metastore.children(path)

    def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node. Raise NotFoundError if it is missing, ConflictError for another version, or if the table
        exists again or has no root."""
        root = self._metastore.get(self._root)
        if root is None or (root.data and not RootRecord.from_bytes(root.data, self._root).is_deleted):
            raise ConflictError(f"table is no deleted one any more path={self._root}")
        try:
            self._metastore.multi([Check(self._root, root.version), Delete(path, version)])
        except ConflictError as error:
            # A transaction raises ConflictError for a missing node, where a single write raises NotFoundError.
            if self._metastore.get(path) is None:
                raise NotFoundError(f"node is missing path={path}") from error
            raise
