"""Files about to be deleted, and the guarantee that no record names one of them meanwhile.

The deep store has no compare-and-set, so both sides meet here. The cleaner writes the files into `/CONDEMNED/{table}`
before it checks, for the last time, whether a record names them. A writer that makes records visible checks the version
of that node in the same transaction. One of the two always sees the other.

A cleaner may freeze in between, and wake when another cleaner leads. So other cleaners pardon the files that it has
condemned only after PARDON_MS: twice the time in which it may delete them.
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
"""Time for which a cleaner deletes files after it has condemned them; then it condemns them anew."""
PARDON_MS = 2 * DELETE_MS
"""Time after a condemnation at which other cleaners may pardon: their clocks run at most twice as fast
(`controller.cleaning.sure_time`)."""


class FileCondemnedError(UnavailableError):
    """Raised if a file to publish has the name of a removed segment's file, which a cleaner may be deleting now. Once
    it is pardoned, publish the file if it still exists, else upload it again."""


def condemn(metastore: Metastore, table: TableName, urls: Collection[str], *, by: str, now_ms: int) -> None:
    """Condemn files, in addition to those condemned before: no record can name any of them until they are pardoned.

    Raise ConflictError while another cleaner may be deleting files of the table."""
    record, version = _read(metastore, table)
    if record.urls and not _may_pardon(record, by, now_ms):
        raise ConflictError(f"another cleaner may be deleting files table={table} cleaner={record.by}")
    all_urls = tuple(dict.fromkeys((*record.urls, *urls)))
    metastore.put(paths.condemned(table), CondemnedRecord(urls=all_urls, by=by, at_ms=now_ms).to_bytes(), version)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Time by the wall clock and the monotonic clock of a process."""

    wall_ms: int
    monotonic_s: float

    @classmethod
    def now(cls, clock: Clock) -> ClockReading:
        return cls(clock.now_ms(), clock.monotonic())


def check_may_delete(condemned: ClockReading, now: ClockReading) -> None:
    """Raise ConflictError if the condemnation is older than DELETE_MS, because the cleaner was busy or frozen: others
    may pardon soon. Called before each deletion.

    Both clocks must show that it is not older: the wall clock may have jumped, and the monotonic one stands still while
    a machine sleeps."""
    passed_ms = (now.wall_ms - condemned.wall_ms, round((now.monotonic_s - condemned.monotonic_s) * 1000))
    if not all(0 <= passed <= DELETE_MS for passed in passed_ms):
        raise ConflictError(f"files were condemned too long ago to be deleted now seconds={DELETE_MS // 1000}")


def pardon(metastore: Metastore, table: TableName, *, by: str, now_ms: int) -> None:
    """Pardon all files, after their deletion: the same names may be used again. Files that another cleaner condemned
    less than PARDON_MS ago stay condemned."""
    if metastore.get(paths.condemned(table)) is None:
        return
    record, version = _read(metastore, table)
    if record.urls and _may_pardon(record, by, now_ms):
        metastore.put(paths.condemned(table), CondemnedRecord().to_bytes(), version)


def _may_pardon(record: CondemnedRecord, by: str, now_ms: int) -> bool:
    return record.by == by or now_ms - record.at_ms >= PARDON_MS


def guard(metastore: Metastore, table: TableName, urls: Collection[str]) -> Check:
    """Return the check for a write that makes records of these files visible; raise FileCondemnedError if one is
    condemned."""
    record, version = _read(metastore, table)
    condemned = set(map(canonical, record.urls))
    refused = sorted(url for url in set(urls) if canonical(url) in condemned)
    if refused:
        raise FileCondemnedError(
            "file of a removed segment is being deleted, publish in a minute, and upload it again if it is gone then "
            f"table={table} files={refused[:3]}"
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
