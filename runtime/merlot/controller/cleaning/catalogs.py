"""Keeps each table's catalog beside its files, and notices a metastore that knows less than it. Leader's thread alone.

The catalog is written after the root that it tells of, so it is never ahead of a metastore that has lost nothing. Of a
change that concerns few records, only these are written, into a file beside the whole catalog.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field, replace
from typing import Final

from merlot.clock import Clock
from merlot.cluster.consuming.found import find_state
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.instances.leases import Lease
from merlot.cluster.losses import LostRecord, find_lost, mark_lost, name_store, store_id
from merlot.cluster.manifests.tables import confirm_table
from merlot.cluster.records import StreamStateRecord, TableRecord
from merlot.cluster.segments.view import TableView
from merlot.controller.cleaning.catalog import (
    Changes,
    are_few,
    catalog_of,
    changes_between,
    changes_of,
    what_is_lost,
)
from merlot.controller.cleaning.shelf import OpenShelf, Shelf, read_catalog, write_catalog, write_changes
from merlot.controller.cleaning.trash import declared_store
from merlot.errors import CorruptionError, InvalidInputError, MerlotError, UnavailableError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.table import TableSpec

_LOG = logging.getLogger(__name__)

SILENT_S: Final = 60.0
"""After a deep store did not answer, so long none is asked; and the least time between two catalogs of a stream of
which no segment was committed."""

WHOLE_S: Final = 600.0
"""The longest time between two whole catalogs of a table that changes. A controller that led before may have written a
catalog late, and changes do not belong to that."""

_Places = tuple[tuple[int, int], ...]
"""Partition and sequence of each open segment."""


def stream_state(metastore: Metastore, table: TableName, spec: TableSpec) -> StreamStateRecord | None:
    """Return the state of a table's stream; None if it has none."""
    return None if spec.ingestion.stream is None else find_state(metastore, table)


def _open_places(view: TableView) -> _Places:
    """Where partitions read on: changes whenever a segment of the stream is committed."""
    return tuple(sorted((number, one.sequence) for number, one in open_segments(view).items()))


class Catalogs:
    """The catalogs of one leader's tables."""

    def __init__(self, metastore: Metastore, open_shelf: OpenShelf | None, clock: Clock) -> None:
        self._metastore = metastore
        self._open_shelf = open_shelf
        self._clock = clock
        self._lease: Lease | None = None
        self._id, self._is_named = "", False
        self._kept: dict[TableName, _Kept] = {}
        """By table, the content of its catalog in the deep store."""
        self._asks_from_s: dict[str | None, float] = {}
        """By the URI that tables declare, when their deep store is asked again after it did not answer."""

    def lead(self, lease: Lease) -> None:
        """Look at every table anew, once a lease: the metastore may be another one, whose lease has the same fence."""
        if lease != self._lease:
            found = store_id(self._metastore)
            self._id, self._is_named = found or secrets.token_hex(8), found is not None
            self._kept, self._lease = {}, lease

    def settle(self) -> None:
        """All tables that are there were looked at."""
        if not self._is_named and self._lease is not None:
            name_store(self._metastore, self._id, self._lease.fence)
            self._is_named = True

    def is_lost(self, record: TableRecord, view: TableView) -> bool:
        """Whether the table is not to be touched, nor answered for. Looks into the deep store, once unless the
        metastore is behind what was read before, and marks or confirms the table. A new table that the deep store has
        not been heard of may be lost."""
        table = record.name
        if find_lost(self._metastore, table) is not None:
            self._kept.pop(table, None)  # whoever recovers it writes another
            return True
        kept = self._kept.get(table)
        if kept is None or record.is_unconfirmed or kept.is_ahead_of(record, view):
            self._kept.pop(table, None)
            self._look(record, view)
        return find_lost(self._metastore, table) is not None or (record.is_unconfirmed and table not in self._kept)

    def may_sweep(self, table: TableName) -> bool:
        """Whether the deep store has said that the metastore knows all of the table, or there is none."""
        return self._open_shelf is None or table in self._kept

    def keep(self, record: TableRecord, view: TableView, spec: TableSpec) -> None:
        """Have the catalog tell of this view. Only of a table that `is_lost` has said it is not."""
        table = record.name
        before = self._kept.get(table)
        if before is None or (before.epoch < 0 and not view.segments):
            return
        stream, places, now_s = stream_state(self._metastore, table, spec), _open_places(view), self._clock.monotonic()
        if before.tells_of(self._id, record, view) and stream == before.stream:
            return
        if places and (places, stream) == (before.places, before.stream) and now_s < before.at_s + SILENT_S:
            return  # no segment was committed
        try:
            shelf = self._shelf_of(table)
            if shelf is not None:
                whole = self._write(shelf, record, view, stream, before)
                self._kept[table] = _Kept(self._id, record.created_ms, view.epoch, now_s, places, stream, whole, view)
        except (UnavailableError, InvalidInputError) as error:
            self._be_silent(table, error)

    def _write(
        self, shelf: Shelf, record: TableRecord, view: TableView, stream: StreamStateRecord | None, before: _Kept
    ) -> _Whole:
        """Write what has changed since the whole catalog, as long as that is little, or the whole catalog; returns what
        is there then."""
        now_s, changes = self._clock.monotonic(), before.changes_until(record, view)
        whole = before.whole
        if whole is not None and changes is not None and are_few(changes, view) and now_s < whole.at_s + WHOLE_S:
            write_changes(shelf, record.name, changes_of(self._id, record, view, stream, whole.edition, changes))
            return replace(whole, changes=changes)
        catalog = catalog_of(self._id, record, view, stream)
        write_catalog(shelf, record.name, catalog)
        return _Whole(catalog.edition, now_s)

    def forget(self, table: TableName) -> None:
        """The table is gone: the next of its name is looked at anew."""
        self._kept.pop(table, None)

    def _look(self, record: TableRecord, view: TableView) -> None:
        assert self._lease is not None
        table, kept = record.name, None
        try:
            shelf = self._shelf_of(table)
            if shelf is None and self._open_shelf is not None:
                return
            kept = None if shelf is None else read_catalog(shelf, table)
        except CorruptionError as error:
            _LOG.error("catalog cannot be read, it is written anew table=%s cause=%s", table, error)
        except (UnavailableError, InvalidInputError) as error:
            self._be_silent(table, error)
            return
        reason = what_is_lost(kept, self._id, record, view)
        if kept is None or not reason:
            if record.is_unconfirmed:
                confirm_table(self._metastore, table, self._lease.fence)
            self._kept[table] = (
                _Kept() if kept is None else _Kept(kept.store_id, kept.created_ms, kept.epoch, stream=kept.stream)
            )
            return
        _LOG.error("table is lost, nobody answers for it: %s table=%s segments=%d", reason, table, kept.num_segments)
        lost = LostRecord(
            num_segments=kept.num_segments,
            total_docs=kept.total_docs,
            reason=reason,
            since_ms=self._clock.now_ms(),
        )
        mark_lost(self._metastore, table, lost, self._lease.fence)

    def _shelf_of(self, table: TableName) -> Shelf | None:
        declared = declared_store(self._metastore, table)
        if self._open_shelf is None or self._clock.monotonic() < self._asks_from_s.get(declared, float("-inf")):
            return None
        return self._open_shelf(declared)

    def _be_silent(self, table: TableName, error: MerlotError) -> None:
        """A deep store that is out must not hold up what needs none."""
        _LOG.warning("catalog is neither read nor written now table=%s cause=%s", table, error)
        if isinstance(error, UnavailableError):
            self._asks_from_s[declared_store(self._metastore, table)] = self._clock.monotonic() + SILENT_S


@dataclass(frozen=True, slots=True)
class _Whole:
    """A whole catalog in the deep store, when it was written, and the changes in the file beside it."""

    edition: str
    at_s: float
    changes: Changes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A catalog that is in the deep store, and when this process wrote it; none if its epoch is below 0."""

    store_id: str = ""
    created_ms: int = 0
    epoch: int = -1
    at_s: float = float("-inf")
    places: _Places = ()
    stream: StreamStateRecord | None = None
    whole: _Whole | None = None
    """None: this process has written none."""
    view: TableView | None = None
    """The view that the catalog tells of."""

    def changes_until(self, record: TableRecord, view: TableView) -> Changes | None:
        """Return all changes since the whole catalog; None if a whole one has to be written."""
        if self.whole is None or self.view is None or self.created_ms != record.created_ms:
            return None
        more = changes_between(self.view, view)
        return None if more is None else {**self.whole.changes, **more}

    def is_ahead_of(self, record: TableRecord, view: TableView) -> bool:
        """Whether the metastore has gone back since: another process may not have noticed."""
        return (self.created_ms, self.epoch) > (record.created_ms, view.epoch)

    def tells_of(self, own_id: str, record: TableRecord, view: TableView) -> bool:
        return (self.store_id, self.created_ms, self.epoch) == (own_id, record.created_ms, view.epoch)
