"""Each table's catalog, which lies beside its files, and the check for a metastore that knows less than the catalog.

Only the leader's thread uses it. The catalog is written after the root that it describes, so it is never ahead of a
metastore that has lost nothing. If few records change, only these are written, into a file beside the whole catalog.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field, replace
from typing import Final

from merlot.clock import Clock
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.stream_facts import find_state
from merlot.cluster.instances.leases import Lease
from merlot.cluster.losses import LostRecord, find_lost, mark_lost, name_store, store_id
from merlot.cluster.manifests.tables import confirm_table
from merlot.cluster.records import StreamStateRecord, TableRecord
from merlot.cluster.segments.view import TableView
from merlot.controller.cleaning.catalog import (
    FEW,
    Changes,
    are_few,
    catalog_of,
    changes_between,
    changes_of,
    loss_reason,
)
from merlot.controller.cleaning.catalog_store import (
    CatalogStore,
    OpenCatalogStore,
    read_catalog,
    write_catalog,
    write_changes,
)
from merlot.controller.cleaning.trash import declared_store
from merlot.errors import CorruptionError, InvalidInputError, MerlotError, UnavailableError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.table import TableSpec

_LOG = logging.getLogger(__name__)

BACK_OFF_S: Final = 60.0
"""Seconds for which a deep store that did not answer is left alone. Also the least time between two catalogs of a
stream that has committed no segment since."""

WHOLE_S: Final = 600.0
"""Longest time between two whole catalogs of a table that changes. A former leader may have written a catalog late, and
changes do not fit a catalog that they do not start from."""

_Positions = tuple[tuple[int, int], ...]
"""Partition and sequence of each open segment."""


def stream_state(metastore: Metastore, table: TableName, spec: TableSpec) -> StreamStateRecord | None:
    """Return the state of a table's stream; None if it has none."""
    return None if spec.ingestion.stream is None else find_state(metastore, table)


def _open_positions(view: TableView) -> _Positions:
    """Return where each partition reads on. This changes whenever a segment of the stream is committed."""
    return tuple(sorted((number, segment.sequence) for number, segment in open_segments(view).items()))


class Catalogs:
    """The catalogs of one leader's tables."""

    def __init__(
        self,
        metastore: Metastore,
        open_catalog_store: OpenCatalogStore | None,
        clock: Clock,
        *,
        always_few: int = FEW,
    ) -> None:
        self._metastore = metastore
        self._always_few = always_few
        self._open_catalog_store = open_catalog_store
        self._clock = clock
        self._lease: Lease | None = None
        self._id, self._is_named = "", False
        self._stored: dict[TableName, _StoredCatalog] = {}
        """Catalogs in the deep store, by table."""
        self._asks_from_s: dict[str | None, float] = {}
        """Monotonic time from which a deep store that did not answer is asked again, by the URI that tables declare."""

    def lead(self, lease: Lease) -> None:
        """Forget all tables at the beginning of each lease. The metastore may be a different one whose lease has the
        same fence."""
        if lease != self._lease:
            stored_id = store_id(self._metastore)
            self._id, self._is_named = stored_id or secrets.token_hex(8), stored_id is not None
            self._stored, self._lease = {}, lease

    def settle(self) -> None:
        """Write the metastore's id into it if it has none. Call it after all existing tables were looked at."""
        if not self._is_named and self._lease is not None:
            if store_id(self._metastore) != self._id:  # an earlier write may have had no answer
                name_store(self._metastore, self._id, self._lease.fence)
            self._is_named = True

    def is_lost(self, record: TableRecord, view: TableView) -> bool:
        """Return whether the table must be neither changed nor queried, and mark or confirm it.

        This reads the deep store once, and again if the metastore is behind the catalog that was read before. A new
        table counts as lost until its deep store has answered."""
        table = record.name
        if find_lost(self._metastore, table) is not None:
            self._stored.pop(table, None)  # recovery writes a new catalog
            return True
        catalog = self._stored.get(table)
        if catalog is None or record.is_unconfirmed or catalog.is_ahead_of(record, view):
            self._stored.pop(table, None)
            self._look(record, view)
        return find_lost(self._metastore, table) is not None or (record.is_unconfirmed and table not in self._stored)

    def may_sweep(self, table: TableName) -> bool:
        """Return whether the table's catalog does not contradict the metastore, or there is no deep store."""
        return self._open_catalog_store is None or table in self._stored

    def keep(self, record: TableRecord, view: TableView, spec: TableSpec) -> None:
        """Write this view into the table's catalog. Call it only if `is_lost` has returned False for the table."""
        table = record.name
        before = self._stored.get(table)
        if before is None or (before.epoch < 0 and not view.segments):
            return
        stream = stream_state(self._metastore, table, spec)
        positions, now_s = _open_positions(view), self._clock.monotonic()
        if before.describes(self._id, record, view) and stream == before.stream:
            return
        if positions and (positions, stream) == (before.positions, before.stream) and now_s < before.at_s + BACK_OFF_S:
            return  # no segment was committed
        try:
            store = self._store_of(table)
            if store is not None:
                whole = self._write(store, record, view, stream, before)
                self._stored[table] = _StoredCatalog(
                    self._id, record.created_ms, view.epoch, now_s, positions, stream, whole, view
                )
        except (UnavailableError, InvalidInputError) as error:
            self._back_off(table, error)

    def _write(
        self,
        store: CatalogStore,
        record: TableRecord,
        view: TableView,
        stream: StreamStateRecord | None,
        before: _StoredCatalog,
    ) -> _WholeCatalog:
        """Write the changes since the whole catalog if they are few, else the whole catalog. Return what the deep store
        holds after that."""
        now_s, changes = self._clock.monotonic(), before.changes_until(record, view)
        whole = before.whole
        if (
            whole is not None
            and changes is not None
            and are_few(changes, view, self._always_few)
            and now_s < whole.at_s + WHOLE_S
        ):
            write_changes(store, record.name, changes_of(self._id, record, view, stream, whole.edition, changes))
            return replace(whole, changes=changes)
        catalog = catalog_of(self._id, record, view, stream)
        write_catalog(store, record.name, catalog)
        return _WholeCatalog(catalog.edition, now_s)

    def forget(self, table: TableName) -> None:
        """Forget a table that is gone, so that the next table of its name is looked at anew."""
        self._stored.pop(table, None)

    def _look(self, record: TableRecord, view: TableView) -> None:
        assert self._lease is not None
        table, catalog = record.name, None
        try:
            store = self._store_of(table)
            if store is None and self._open_catalog_store is not None:
                return
            catalog = None if store is None else read_catalog(store, table)
        except CorruptionError as error:
            _LOG.error("catalog cannot be read, it is written anew table=%s cause=%s", table, error)
        except (UnavailableError, InvalidInputError) as error:
            self._back_off(table, error)
            return
        reason = loss_reason(catalog, self._id, record, view)
        if catalog is None or not reason:
            if record.is_unconfirmed:
                confirm_table(self._metastore, table, self._lease.fence)
            self._stored[table] = (
                _StoredCatalog()
                if catalog is None
                else _StoredCatalog(catalog.store_id, catalog.created_ms, catalog.epoch, stream=catalog.stream)
            )
            return
        _LOG.error("table is lost, nobody answers for it: %s table=%s segments=%d", reason, table, catalog.num_segments)
        lost = LostRecord(
            num_segments=catalog.num_segments,
            total_docs=catalog.total_docs,
            reason=reason,
            since_ms=self._clock.now_ms(),
        )
        mark_lost(self._metastore, table, lost, self._lease.fence)

    def _store_of(self, table: TableName) -> CatalogStore | None:
        declared = declared_store(self._metastore, table)
        if self._open_catalog_store is None or self._clock.monotonic() < self._asks_from_s.get(declared, float("-inf")):
            return None
        return self._open_catalog_store(declared)

    def _back_off(self, table: TableName, error: MerlotError) -> None:
        """Log the error; leave an unavailable deep store alone for `BACK_OFF_S`, so that it holds up nothing else."""
        _LOG.warning("catalog is neither read nor written now table=%s cause=%s", table, error)
        if isinstance(error, UnavailableError):
            self._asks_from_s[declared_store(self._metastore, table)] = self._clock.monotonic() + BACK_OFF_S


@dataclass(frozen=True, slots=True)
class _WholeCatalog:
    """A whole catalog in the deep store, the monotonic time of its writing, and the changes in the file beside it."""

    edition: str
    at_s: float
    changes: Changes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _StoredCatalog:
    """A catalog in the deep store, and the monotonic time at which this process wrote it. There is none if `epoch` is
    negative."""

    store_id: str = ""
    created_ms: int = 0
    epoch: int = -1
    at_s: float = float("-inf")
    positions: _Positions = ()
    stream: StreamStateRecord | None = None
    whole: _WholeCatalog | None = None
    """The whole catalog that this process wrote last; None if it has written none."""
    view: TableView | None = None
    """View that the catalog describes."""

    def changes_until(self, record: TableRecord, view: TableView) -> Changes | None:
        """Return all changes since the whole catalog; None if a whole one has to be written."""
        if self.whole is None or self.view is None or self.created_ms != record.created_ms:
            return None
        more = changes_between(self.view, view)
        return None if more is None else {**self.whole.changes, **more}

    def is_ahead_of(self, record: TableRecord, view: TableView) -> bool:
        """Return whether the metastore has gone back behind this catalog, which another process may not have
        noticed."""
        return (self.created_ms, self.epoch) > (record.created_ms, view.epoch)

    def describes(self, own_id: str, record: TableRecord, view: TableView) -> bool:
        return (self.store_id, self.created_ms, self.epoch) == (own_id, record.created_ms, view.epoch)
