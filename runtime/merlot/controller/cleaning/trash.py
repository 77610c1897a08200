"""Deletion of files that no record names, once their grace period is over.

A removal lists its files in the same transaction (`/TRASH`), so that none is forgotten. Here the files are deleted
first and their list after them: a crash in between only repeats deletions. Deleting a table also lists its leftovers,
which no record names.

A file stays if it is named again, or was written again since: the same version may have been published anew. Whatever a
list says, only the table's own files are deleted: segments (`*.mseg`) in its folder, and the files in its folders of
shuffles and snapshots. A file that a record of any table names is never deleted.

Files are condemned before the last look at the records, so that none can be named between that look and its deletion.
They are pardoned after the deletions, or at the cleaner's next pass if those failed. By then, a job that uploaded the
same file at the moment of its deletion has found it missing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.consuming.checkpoints import SNAPSHOT_FOLDER, snapshot_urls
from merlot.cluster.losses import CatalogRecord
from merlot.cluster.manifests.tables import find_retained, find_table
from merlot.cluster.records import TrashRecord
from merlot.cluster.segments.condemned import ClockReading, check_may_delete, condemn, pardon
from merlot.cluster.segments.view import TableView, load, load_retained
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.records import SHUFFLE_FOLDER
from merlot.controller.cleaning.catalog_store import CatalogStore, delete_catalog, read_catalog
from merlot.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError, UnavailableError
from merlot.ids import SEGMENT_SUFFIX, TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.manifest import from_stored
from merlot.uris import canonical, redact

_LOG = logging.getLogger(__name__)


class DeepStoreFiles(Protocol):
    """The part of a deep store that the cleaner needs. URLs of another store raise InvalidInputError."""

    def modified_ms(self, url: str) -> int | None:
        """Return when the file was written; None if it is not there."""
        ...

    def delete(self, url: str) -> None:
        """Delete the file. It is no error if it is gone."""
        ...

    def list(self, table: TableName) -> Sequence[str]:
        """Return the URLs of the table's segment files."""
        ...

    def list_below(self, table: TableName, folder: str) -> Sequence[str]:
        """Return the URLs of the files in a folder beside the segment files, and in its subfolders."""
        ...

    def path_in(self, table: TableName, url: str) -> str | None:
        """Return the path of a URL within the table's folder; None if it leads anywhere else."""
        ...


OpenFiles = Callable[[str | None], DeepStoreFiles]
"""Opener of the deep store of a URI. None is the cluster's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Inputs of a pass over the trash."""

    sure: Clock
    """Clock that decides what is old enough."""
    last_pass_ms: int = 0
    """Earliest start of the grace period of a list that is new to the cleaner, whatever its stamp says; 0 if stamps are
    trusted."""
    spared: Collection[TableName] = ()
    """Tables whose lists are left alone, since it is unknown what their records name."""
    views: Mapping[TableName, TableView] = field(default_factory=dict)
    """Views of tables that the caller has read already."""


@dataclass(frozen=True, slots=True)
class _Cleaner:
    metastore: Metastore
    clock: Clock
    sure: Clock
    name: str
    records: _RecordedFiles


class _RecordedFiles:
    """Records of all tables, and the files that they name. A view that has not changed is not read again."""

    def __init__(self, metastore: Metastore, views: Mapping[TableName, TableView]) -> None:
        self._metastore = metastore
        self._views = dict(views)

    def in_use(self, urls: Collection[str]) -> set[str]:
        """Return the URLs that a record names, in whatever spelling. Hidden and retained segments count too.

        Raise UnavailableError if a table's records cannot be read."""
        wanted, used = set(map(canonical, urls)), set[str]()
        for table in map(TableName, self._metastore.children(paths.SEGMENTS)):
            view = self._view(table)
            if view is not None:
                used |= wanted & _urls_of(view)
        return {url for url in urls if canonical(url) in used}

    def _view(self, table: TableName) -> TableView | None:
        try:
            view = load_retained(self._metastore, table) or load(self._metastore, table, self._views.get(table))
        except NotFoundError:
            return None
        except CorruptionError as error:
            raise UnavailableError(
                f"records that may name the files cannot be read table={table} cause={error}"
            ) from error
        self._views[table] = view
        return view


def empty_trash(
    metastore: Metastore,
    open_files: OpenFiles,
    clock: Clock,
    *,
    grace_ms: int,
    cleaner: str = "cleaner",
    by: Pass | None = None,
) -> int:
    """Delete what has been in the trash for `grace_ms`; return the number of files deleted.

    cleaner: a name that only this process uses. Files that are still condemned under it are pardoned first."""
    by = by or Pass(sure=clock)
    sure, last_pass_ms = by.sure, by.last_pass_ms
    oldest_ms = sure.now_ms() - grace_ms
    num_deleted = 0
    context = _Cleaner(metastore, clock, sure, cleaner, _RecordedFiles(metastore, by.views))
    for name in map(TableName, metastore.children(paths.CONDEMNED)):
        try:
            pardon(metastore, name, by=cleaner, now_ms=sure.now_ms())
        except CorruptionError as error:
            _LOG.error("condemned files cannot be read table=%s cause=%s", name, error)
    for name in map(TableName, metastore.children(paths.TRASH)):
        if name in by.spared:
            continue
        lists = dict(trash_lists(metastore, name))
        is_urgent = any(record.is_urgent for record in lists.values())
        due, not_due = {}, set[str]()
        for path, record in lists.items():
            since_ms = _grace_began_ms(metastore, path, record, sure.now_ms(), last_pass_ms)
            if since_ms > oldest_ms and not (is_urgent and (record.is_urgent or not record.has_leftovers)):
                not_due.update(map(canonical, record.urls))
            else:
                due[path] = record
        for path, record in due.items():
            try:
                files = open_files(record.deep_store or declared_store(metastore, name))
                if record.has_leftovers:
                    cut_off_ms = clock.now_ms() if record.is_urgent else oldest_ms
                    num, is_done = _delete_leftovers(context, name, files, record, cut_off_ms)
                else:
                    num, is_done = _delete_files(context, name, files, record, not_due), True
                num_deleted += num
            except (UnavailableError, InvalidInputError, CorruptionError) as error:
                # A list whose files cannot be deleted must not hold up the others.
                _LOG.warning("files not deleted table=%s entry=%s cause=%s", name, path, error)
                _record_error(metastore, path, redact(str(error)))
                continue
            except ConflictError as error:
                _LOG.info("files not deleted yet, another one condemns table=%s cause=%s", name, error)
                continue
            if is_done:
                with contextlib.suppress(NotFoundError):
                    metastore.delete(path)
    return num_deleted


def _grace_began_ms(metastore: Metastore, path: str, record: TrashRecord, now_ms: int, last_pass_ms: int) -> int:
    """Record when a list's grace period began, and return it. The list's own stamp may come from a wrong clock."""
    if record.noticed_ms:
        return record.noticed_ms
    since_ms = min(max(record.deleted_ms, last_pass_ms), now_ms)
    if last_pass_ms:
        _update(metastore, path, {"noticed_ms": since_ms})
    return since_ms


def _record_error(metastore: Metastore, path: str, error: str) -> None:
    """Record why a deletion failed, so that those who wait for it can see the reason; best effort."""
    _update(metastore, path, {"error": error})


def _update(metastore: Metastore, path: str, changes: Mapping[str, object]) -> None:
    with contextlib.suppress(ConflictError, NotFoundError, CorruptionError):
        node = metastore.get(path)
        record = None if node is None else TrashRecord.from_bytes(node.data, path)
        changed = None if record is None else record.model_copy(update=changes)
        if node is not None and changed is not None and changed != record:
            metastore.put(path, changed.to_bytes(), node.version)


def trash_lists(metastore: Metastore, table: TableName) -> Iterator[tuple[str, TrashRecord]]:
    """Yield the table's lists of files to delete, with their paths. A list that cannot be read is logged and
    skipped."""
    for entry in metastore.children(paths.trash(table)):
        path = paths.child(paths.trash(table), entry)
        try:
            node = metastore.get(path)
            if node is not None:
                yield path, TrashRecord.from_bytes(node.data, path)
        except CorruptionError as error:
            _LOG.warning("files not deleted table=%s entry=%s cause=%s", table, entry, error)


def declared_store(metastore: Metastore, table: TableName) -> str | None:
    """Return the deep store that the table's manifest names, or a retained manifest if the table is gone."""
    record = find_table(metastore, table)
    retained = find_retained(metastore, table) if record is None else None
    document = record.manifest if record is not None else retained.manifest if retained is not None else None
    return None if document is None else from_stored(document).spec.deep_store_uri


def urls_in_use(metastore: Metastore, table: TableName) -> set[str]:
    """Return the files that the table's records name, in canonical spelling. Hidden and retained segments count too."""
    try:
        view = load_retained(metastore, table) or load(metastore, table)
    except NotFoundError:
        return set()
    return _urls_of(view)


def _urls_of(view: TableView) -> set[str]:
    """Return the URLs of the segments' files and of their snapshots, in canonical spelling."""
    urls = {canonical(segment.url) for segment in view.segments.values()}
    return urls | {canonical(url) for url in snapshot_urls(view.stream_segments)}


def _delete_files(
    cleaner: _Cleaner, table: TableName, files: DeepStoreFiles, record: TrashRecord, not_due: Collection[str]
) -> int:
    """Delete the files of a list. not_due: files of lists that are not due; they were removed once more since."""
    urls = [url for url in record.urls if canonical(url) not in not_due]
    return _delete_old(cleaner, table, files, urls, record.deleted_ms)


def _delete_leftovers(
    cleaner: _Cleaner, table: TableName, files: DeepStoreFiles, record: TrashRecord, cut_off_ms: int
) -> tuple[int, bool]:
    """Delete the leftovers of a table that is gone: unpublished uploads, and files that its tasks shuffled.

    Nobody else looks there again. Return the number of files deleted, and whether no more can come. A task may upload
    until it is over, and a minion that does not know yet that it lost its task may go on for a while. So this is
    repeated until nothing is left."""
    metastore = cleaner.metastore
    if find_table(metastore, table) is not None or find_retained(metastore, table) is not None:
        return 0, True
    if any(task.record.table == table for task in queue.list_tasks(metastore, queue.MERGE_ROLLUP).values()):
        raise UnavailableError("tasks of the table are not over yet: a minion takes leave of them")
    catalog = _readable_catalog(files, table) if isinstance(files, CatalogStore) else None
    if catalog is not None and catalog.created_ms > record.deleted_ms:
        raise UnavailableError("a table of this name was created after that: the metastore is older than its files")
    leftovers = [*files.list(table)]
    for folder in (SHUFFLE_FOLDER, SNAPSHOT_FOLDER):
        leftovers += files.list_below(table, folder)
    num_deleted = _delete_old(cleaner, table, files, leftovers, cut_off_ms)
    if isinstance(files, CatalogStore) and (record.is_urgent or not leftovers):
        delete_catalog(files, table)
    return num_deleted, record.is_urgent or not leftovers


def _readable_catalog(store: CatalogStore, table: TableName) -> CatalogRecord | None:
    """Return the catalog; raise UnavailableError for a damaged one, which may be that of a newer table of this name."""
    try:
        return read_catalog(store, table)
    except CorruptionError as error:
        raise UnavailableError(f"catalog of the deleted table is damaged, delete its file by hand: {error}") from error


def _delete_old(
    cleaner: _Cleaner, table: TableName, files: DeepStoreFiles, urls: Sequence[str], cut_off_ms: int
) -> int:
    """Delete files that no record names and that were not written since `cut_off_ms`. They are condemned, and then both
    are checked again before the deletion."""
    metastore, clock = cleaner.metastore, cleaner.clock
    own = [url for url in dict.fromkeys(urls) if _is_own(files, table, url)]
    in_use = cleaner.records.in_use(own) if own else set()
    doomed = [url for url in own if url not in in_use and _is_old(files, url, cut_off_ms)]
    if not doomed:
        return 0
    condemned = ClockReading.now(clock)
    condemn(metastore, table, doomed, by=cleaner.name, now_ms=cleaner.sure.now_ms())
    in_use = cleaner.records.in_use(doomed)
    num_deleted = 0
    for url in doomed:
        if url not in in_use and _is_old(files, url, cut_off_ms):
            check_may_delete(condemned, ClockReading.now(clock))
            files.delete(url)
            num_deleted += 1
    # All deletions are over, so nobody need wait. After an error, the next pass pardons, or another cleaner later.
    pardon(metastore, table, by=cleaner.name, now_ms=cleaner.sure.now_ms())
    return num_deleted


def _is_own(files: DeepStoreFiles, table: TableName, url: str) -> bool:
    """Return whether the URL can be that of one of this table's own files. A record or a list may have been written by
    anybody."""
    path = files.path_in(table, url)
    is_own = path is not None and (
        path.startswith((f"{SHUFFLE_FOLDER}/", f"{SNAPSHOT_FOLDER}/"))
        or ("/" not in path and path.endswith(SEGMENT_SUFFIX))
    )
    if not is_own:
        _LOG.error("file is none of the table's, left where it is table=%s url=%s", table, redact(url))
    return is_own


def _is_old(files: DeepStoreFiles, url: str, cut_off_ms: int) -> bool:
    """Return whether the file is there and was not written after `cut_off_ms`."""
    try:
        modified_ms = files.modified_ms(url)
    except InvalidInputError as error:
        _LOG.error("file cannot be reached, delete it by hand url=%s cause=%s", redact(url), error)
        return False
    return modified_ms is not None and modified_ms <= cut_off_ms
