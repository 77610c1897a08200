"""Copies of manifests beside the files of tables, from which `merlot recover --all` declares tables again.

Only the leader's thread uses them. A copy is written once a minute if a manifest has changed, and deleted once the
metastore says that its table was deleted. A table that is merely absent may be lost, so its copy stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.losses import lost_tables
from merlot.cluster.manifests.copies import ManifestsRecord, manifests_by_table
from merlot.cluster.manifests.tables import find_retained
from merlot.cluster.records import TableRecord
from merlot.controller.cleaning.catalog_store import (
    CatalogStore,
    OpenCatalogStore,
    delete_manifests,
    read_manifests,
    write_manifests,
)
from merlot.controller.cleaning.trash import declared_store, trash_lists
from merlot.errors import CorruptionError, InvalidInputError, MerlotError, UnavailableError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore

_LOG = logging.getLogger(__name__)

_DELETED: Final = ()


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
        if not records and not self._copied:
            self._warn_of_unknown(self._open_store(None))
        lost = set(lost_tables(self._metastore))
        sure = {name: record for name, record in records.items() if name not in lost and not record.is_unconfirmed}
        for name, documents in manifests_by_table(self._metastore, sure).items():
            self._try(name, documents, partial(self._write, name, documents))
        for name, store in self._deleted(records):
            self._try(name, _DELETED, partial(self._delete, name, store))

    def _warn_of_unknown(self, store: CatalogStore) -> None:
        """Say which tables a metastore without tables may have lost."""
        try:
            unknown = [name for name in store.tables() if read_manifests(store, name) is not None]
        except MerlotError as error:
            _LOG.warning("deep store cannot be searched for tables cause=%s", error)
            return
        if unknown:
            _LOG.error(
                "the metastore knows no tables, the deep store has files of %d: run merlot recover --all tables=%s",
                len(unknown),
                ",".join(unknown[:10]),
            )

    def _try(self, table: TableName, documents: tuple[dict[str, Any], ...], act: Callable[[], None]) -> None:
        if self._copied.get(table) == documents:
            return
        try:
            act()
            self._copied[table] = documents
        except (UnavailableError, InvalidInputError) as error:
            _LOG.warning("copy of manifests is not brought up to date now table=%s cause=%s", table, error)

    def _write(self, table: TableName, documents: tuple[dict[str, Any], ...]) -> None:
        assert self._open_store is not None
        store = self._open_store(declared_store(self._metastore, table))
        write_manifests(store, table, ManifestsRecord(written_ms=self._clock.now_ms(), manifests=documents))

    def _delete(self, table: TableName, declared: str | None) -> None:
        assert self._open_store is not None
        delete_manifests(self._open_store(declared), table)

    def _deleted(self, records: Mapping[TableName, TableRecord]) -> Iterator[tuple[TableName, str | None]]:
        """Yield the tables that were deleted, and the deep store that each named: only the trash, or a root that
        retains files, proves a deletion."""
        for name in map(TableName, self._metastore.children(paths.TRASH)):
            if name not in records:
                yield from ((name, listed.deep_store) for _, listed in trash_lists(self._metastore, name))
        for name in map(TableName, self._metastore.children(paths.SEGMENTS)):
            try:
                if name not in records and find_retained(self._metastore, name) is not None:
                    yield name, declared_store(self._metastore, name)
            except CorruptionError as error:
                _LOG.warning("copy of manifests stays table=%s cause=%s", name, error)
