"""Files about to be deleted, and the promise that no record names one of them meanwhile.

The deep store cannot compare and set, so the two sides meet here: the cleaner writes the files into
`/CONDEMNED/{table}` before it looks, for the last time, whether a record names them; whoever makes records visible
checks the version of that node in the same transaction. One of the two always sees the other.

A cleaner may be frozen in the middle, and wake when another one leads. So nobody but itself pardons what it has
condemned, for as long as it may go on to delete, and twice that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.records import CondemnedRecord
from merlot.errors import ConflictError, UnavailableError
from merlot.ids import TableName
from merlot.metastore.protocol import Check, Metastore
from merlot.uris import canonical

DELETE_MS = 300_000
"""So long after it has condemned files does a cleaner delete them; then it condemns them anew."""
PARDON_MS = 2 * DELETE_MS
"""After this others may pardon: their time goes at most twice as fast (`controller.cleaning.sure_time`)."""


class FileCondemnedError(UnavailableError):
    """A file to publish is that of an earlier removal, which may be deleting it: once it is pardoned, publish it if it
    is still there, else upload it again."""


def condemn(metastore: Metastore, table: TableName, urls: Collection[str], *, by: str, now_ms: int) -> None:
    """From now on no record can name these files, nor those condemned before, until they are pardoned. ConflictError
    while another cleaner may be deleting files of the table."""
    record, version = _read(metastore, table)
    if record.urls and not _may_pardon(record, by, now_ms):
        raise ConflictError(f"another cleaner may be deleting files table={table} cleaner={record.by}")
    both = tuple(dict.fromkeys((*record.urls, *urls)))
    metastore.put(paths.condemned(table), CondemnedRecord(urls=both, by=by, at_ms=now_ms).to_bytes(), version)


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was done, by a process's two clocks."""

    wall_ms: int
    monotonic_s: float

    @classmethod
    def now(cls, clock: Clock) -> Moment:
        return cls(clock.now_ms(), clock.monotonic())


def check_may_delete(condemned: Moment, now: Moment) -> None:
    """Before each deletion; ConflictError if the cleaner was busy, or frozen, for so long that others may pardon. Both
    clocks have to say that it was not: the one may have jumped, the other stands still while a machine sleeps."""
    passed_ms = (now.wall_ms - condemned.wall_ms, round((now.monotonic_s - condemned.monotonic_s) * 1000))
    if not all(0 <= one <= DELETE_MS for one in passed_ms):
        raise ConflictError(f"files were condemned too long ago to be deleted now seconds={DELETE_MS // 1000}")


def pardon(metastore: Metastore, table: TableName, *, by: str, now_ms: int) -> None:
    """The files are deleted: the same names may come again. What another cleaner condemned a moment ago stays so."""
    if metastore.get(paths.condemned(table)) is None:
        return
    record, version = _read(metastore, table)
    if record.urls and _may_pardon(record, by, now_ms):
        metastore.put(paths.condemned(table), CondemnedRecord().to_bytes(), version)


def _may_pardon(record: CondemnedRecord, by: str, now_ms: int) -> bool:
    return record.by == by or now_ms - record.at_ms >= PARDON_MS


def guard(metastore: Metastore, table: TableName, urls: Collection[str]) -> Check:
    """What a write carries that makes these files' records visible; FileCondemnedError if one is condemned."""
    record, version = _read(metastore, table)
    condemned = set(map(canonical, record.urls))
    taken = sorted(url for url in set(urls) if canonical(url) in condemned)
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
