"""What is left of a deleted table, to be cleared away as long as it is a deleted one's.

Whoever deletes a table may stand still for a while amid that, and the table of the name be made anew: what lies under
the same paths then is the new table's, of which nothing may go. Any thread.
"""

from __future__ import annotations

from merlot.cluster import paths
from merlot.cluster.records import RootRecord
from merlot.errors import ConflictError, NotFoundError
from merlot.ids import TableName
from merlot.metastore.protocol import Check, Delete, Metastore, Node


class Remains:
    """Nodes of a table, read and deleted; a deletion takes effect only while the table's root is a deleted one."""

    def __init__(self, metastore: Metastore, table: TableName) -> None:
        self._metastore = metastore
        self._root = paths.segments_root(table)

    def get(self, path: str) -> Node | None:
        return self._metastore.get(path)

    def children(self, path: str) -> list[str]:
        return self._metastore.children(path)

    def delete(self, path: str, version: int | None = None) -> None:
        """NotFoundError if it is not there; ConflictError for another version, or if the table is there again."""
        root = self._metastore.get(self._root)
        if root is None or (root.data and not RootRecord.from_bytes(root.data, self._root).is_deleted):
            raise ConflictError(f"table is no deleted one any more path={self._root}")
        try:
            self._metastore.multi([Check(self._root, root.version), Delete(path, version)])
        except ConflictError as error:
            # A transaction conflicts where a single write does not find its node.
            if self._metastore.get(path) is None:
                raise NotFoundError(f"node is missing path={path}") from error
            raise
