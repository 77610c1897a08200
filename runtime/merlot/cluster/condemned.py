"""Files about to be deleted, and the promise that no record names one of them meanwhile.

The deep store cannot compare and set, so the two sides meet here: the cleaner writes the files into
`/CONDEMNED/{table}` before it looks, for the last time, whether a record names them; whoever makes records visible
checks the version of that node in the same transaction. One of the two always sees the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from merlot.cluster import paths
from merlot.cluster.metastore import Check, Metastore
from merlot.cluster.records import CondemnedRecord
from merlot.errors import ConflictError, UnavailableError
from merlot.ids import TableName


class FileCondemnedError(UnavailableError):
    """A file to publish is that of an earlier removal, which may be deleting it: once it is pardoned, publish it if it
    is still there, else upload it again."""


def condemn(metastore: Metastore, table: TableName, urls: Collection[str]) -> None:
    """From now on no record can name these files, nor those condemned before, until they are pardoned."""
    record, version = _read(metastore, table)
    if not set(urls) <= set(record.urls):
        both = tuple(dict.fromkeys((*record.urls, *urls)))
        metastore.put(paths.condemned(table), CondemnedRecord(urls=both).to_bytes(), version)


def pardon(metastore: Metastore, table: TableName) -> None:
    """The files are deleted: the same names may come again."""
    if metastore.get(paths.condemned(table)) is None:
        return
    record, version = _read(metastore, table)
    if record.urls:
        metastore.put(paths.condemned(table), CondemnedRecord().to_bytes(), version)


def guard(metastore: Metastore, table: TableName, urls: Collection[str]) -> Check:
    """What a write carries that makes these files' records visible; FileCondemnedError if one is condemned."""
    record, version = _read(metastore, table)
    taken = sorted(set(urls) & set(record.urls))
    if taken:
        raise FileCondemnedError(
            "file of a removed segment is being deleted, publish in a minute, and upload it again if it is gone then "
            f"table={table} files={taken[:3]}"
        )
    return Check(paths.condemned(table), version)


def _read(metastore: Metastore, table: TableName) -> tuple[CondemnedRecord, int]:
    path = paths.condemned(table)
    node = metastore.get(path)
    if node is None:
        with contextlib.suppress(ConflictError):
            metastore.create(path, b"")
        node = metastore.get(path)
        if node is None:
            raise ConflictError(f"node came and went path={path}")
    return (CondemnedRecord.from_bytes(node.data, path) if node.data else CondemnedRecord()), node.version
