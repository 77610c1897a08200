"""Deletes the files that no record names, once their grace period is over.

A removal lists its files in the same transaction (`/TRASH`), so none is forgotten; here they are deleted and the list
after them, so that a crash in between only repeats deletions. A file that is named again, or was written again since,
stays: the same version may have been published anew.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.metastore import Metastore
from merlot.cluster.records import TrashRecord
from merlot.cluster.tables import find_table, spec_of
from merlot.cluster.view import load
from merlot.errors import CorruptionError, InvalidInputError, NotFoundError, UnavailableError
from merlot.ids import TableName

_LOG = logging.getLogger(__name__)


class SegmentFiles(Protocol):
    """The deep store, as far as the controller needs it. Both raise InvalidInputError for a file of another store."""

    def modified_ms(self, url: str) -> int | None:
        """When the file was written, None if it is not there."""
        ...

    def delete(self, url: str) -> None:
        """Delete the file; one that is gone is fine."""
        ...


OpenFiles = Callable[[str | None], SegmentFiles]
"""The deep store of a URI; None is the cluster's own."""


def empty_trash(metastore: Metastore, open_files: OpenFiles, clock: Clock, *, grace_ms: int) -> int:
    """Delete what has been in the trash for `grace_ms`; returns the number of files deleted."""
    oldest_ms = clock.now_ms() - grace_ms
    num_deleted = 0
    for name in map(TableName, metastore.children(paths.TRASH)):
        lists = dict(_lists(metastore, name))
        is_urgent = any(record.is_urgent for record in lists.values())
        for path, record in lists.items():
            try:
                if record.deleted_ms > oldest_ms and not is_urgent:
                    continue
                files = open_files(record.deep_store or _declared_store(metastore, name))
                num_deleted += _delete_files(files, record, _urls_in_use(metastore, name))
            except (UnavailableError, InvalidInputError) as error:
                # One list that cannot be worked off must not keep the others.
                _LOG.warning("files not deleted table=%s entry=%s cause=%s", name, path, error)
                continue
            with contextlib.suppress(NotFoundError):
                metastore.delete(path)
    return num_deleted


def _lists(metastore: Metastore, table: TableName) -> Iterator[tuple[str, TrashRecord]]:
    for entry in metastore.children(paths.trash(table)):
        path = paths.child(paths.trash(table), entry)
        node = metastore.get(path)
        if node is None:
            continue
        try:
            yield path, TrashRecord.from_bytes(node.data, path)
        except CorruptionError as error:
            _LOG.warning("files not deleted table=%s entry=%s cause=%s", table, entry, error)


def _declared_store(metastore: Metastore, table: TableName) -> str | None:
    record = find_table(metastore, table)
    declared = None if record is None else spec_of(record).spec.deep_store
    return None if declared is None else declared.uri


def _urls_in_use(metastore: Metastore, table: TableName) -> Collection[str]:
    try:
        return {segment.url for segment in load(metastore, table).segments.values()}
    except NotFoundError:
        return set()


def _delete_files(files: SegmentFiles, record: TrashRecord, in_use: Collection[str]) -> int:
    num_deleted = 0
    for url in record.urls:
        try:
            modified_ms = files.modified_ms(url)
            if url in in_use or modified_ms is None or modified_ms > record.deleted_ms:
                continue
            files.delete(url)
        except InvalidInputError as error:
            _LOG.error("file is in no deep store that is known, delete it by hand url=%s cause=%s", url, error)
            continue
        num_deleted += 1
    return num_deleted
