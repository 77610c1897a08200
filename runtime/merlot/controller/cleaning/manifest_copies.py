"""Copies of manifests in the cluster's own deep store, from which `merlot recover --all` declares tables again.

The leader's thread writes them once a minute if a manifest has changed, and deletes a copy once the metastore says that
its table was deleted. A table that is merely absent may be lost, so its copy stays. The copies of all tables lie in one
folder, since not every object store lists folders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.losses import lost_tables
from merlot.cluster.manifests.copies import ManifestsRecord, manifests_by_table
from merlot.cluster.manifests.tables import find_retained
from merlot.cluster.records import TableRecord
from merlot.controller.cleaning.catalog_store import CatalogStore, OpenCatalogStore, read_record, write_record
from merlot.errors import CorruptionError, InvalidInputError, MerlotError, UnavailableError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore

_LOG = logging.getLogger(__name__)

FOLDER: Final = TableName("_manifests")
"""Folder beside those of tables. No table has its name, since their names end in their type."""
_TABLES: Final = "tables"
_SUFFIX: Final = ".json.z"


@runtime_checkable
class ListedStore(CatalogStore, Protocol):
    """The part of a deep store that copies of manifests need."""

    def list_below(self, table: TableName, folder: str) -> Sequence[str]: ...


def read_copies(store: ListedStore) -> Mapping[TableName, ManifestsRecord]:
    """Return all copies in a deep store, by table. Damaged ones are logged and left out."""
    copies: dict[TableName, ManifestsRecord] = {}
    for url in store.list_below(FOLDER, _TABLES):
        name = url.rpartition("/")[2]
        if name.endswith(_SUFFIX):
            try:
                copy = read_record(store, url, ManifestsRecord)
            except CorruptionError as error:
                _LOG.error("copy of manifests is damaged url=%s cause=%s", url, error)
                continue
            if copy is not None:
                copies[TableName(name.removesuffix(_SUFFIX))] = copy
    return copies


def _url(store: CatalogStore, table: TableName) -> str:
    return store.url_below(FOLDER, _TABLES, f"{table}{_SUFFIX}")


class ManifestCopies:
    """Copies for one leader's tables."""

    def __init__(self, metastore: Metastore, open_store: OpenCatalogStore | None, clock: Clock) -> None:
        self._metastore = metastore
        self._open_store = open_store
        self._clock = clock
        self._lease: Lease | None = None
        self._copied: dict[TableName, tuple[dict[str, Any], ...]] = {}
        """Documents in the copy of each table; none if it was deleted."""

    def lead(self, lease: Lease) -> None:
        """Forget at the beginning of each lease what another leader may have changed."""
        if lease != self._lease:
            self._copied, self._lease = {}, lease

    def keep(self, records: Mapping[TableName, TableRecord]) -> None:
        """Write the copies that have changed, and delete those of deleted tables. `records` are those of all tables."""
        if self._open_store is None:
            return
        store = self._open_store(None)
        if not records and not self._copied and isinstance(store, ListedStore):
            _warn_of_unknown(store)
        lost = set(lost_tables(self._metastore))
        sure = {name: record for name, record in records.items() if name not in lost and not record.is_unconfirmed}
        for name, documents in manifests_by_table(self._metastore, sure).items():
            self._try(name, documents, partial(self._write, store, name, documents))
        for name in self._deleted(records):
            self._try(name, (), partial(store.delete, _url(store, name)))

    def _try(self, table: TableName, documents: tuple[dict[str, Any], ...], act: Callable[[], None]) -> None:
        if self._copied.get(table) == documents:
            return
        try:
            act()
            self._copied[table] = documents
        except (UnavailableError, InvalidInputError) as error:
            _LOG.warning("copy of manifests is not brought up to date now table=%s cause=%s", table, error)

    def _write(self, store: CatalogStore, table: TableName, documents: tuple[dict[str, Any], ...]) -> None:
        copy = ManifestsRecord(written_ms=self._clock.now_ms(), manifests=documents)
        write_record(store, _url(store, table), copy)

    def _deleted(self, records: Mapping[TableName, TableRecord]) -> Iterator[TableName]:
        """Yield the tables that were deleted: only the trash, or a root that retains files, proves a deletion."""
        yield from (name for name in map(TableName, self._metastore.children(paths.TRASH)) if name not in records)
        for name in map(TableName, self._metastore.children(paths.SEGMENTS)):
            try:
                if name not in records and find_retained(self._metastore, name) is not None:
                    yield name
            except CorruptionError as error:
                _LOG.warning("copy of manifests stays table=%s cause=%s", name, error)


def _warn_of_unknown(store: ListedStore) -> None:
    """Say which tables a metastore without tables may have lost."""
    try:
        unknown = sorted(read_copies(store))
    except MerlotError as error:
        _LOG.warning("copies of manifests cannot be read cause=%s", error)
        return
    if unknown:
        _LOG.error(
            "the metastore knows no tables, the deep store has manifests of %d: run merlot recover --all tables=%s",
            len(unknown),
            ",".join(unknown[:10]),
        )
