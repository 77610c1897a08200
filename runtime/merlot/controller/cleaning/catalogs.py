"""Keeps each table's catalog beside its files, and notices a metastore that knows less than it. Leader's thread alone.

The catalog is written after the root that it tells of, so it is never ahead of a metastore that has lost nothing.
"""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from merlot.clock import Clock
from merlot.cluster.consuming.found import find_stream
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.instances.leases import Lease
from merlot.cluster.losses import CatalogRecord, LostRecord, find_lost, mark_lost, name_store, store_id
from merlot.cluster.manifests.tables import confirm_table
from merlot.cluster.records import LineageState, SegmentRecord, StreamSegmentRecord, TableRecord
from merlot.cluster.segments.lineage_rules import with_origins
from merlot.cluster.segments.parts import is_of_stream
from merlot.cluster.segments.view import TableView
from merlot.controller.cleaning.shelf import OpenShelf, Shelf, read_catalog, write_catalog
from merlot.controller.cleaning.trash import declared_store
from merlot.errors import CorruptionError, InvalidInputError, MerlotError, UnavailableError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore

_LOG = logging.getLogger(__name__)

SILENT_S: Final = 60.0
"""After a deep store did not answer, so long none is asked; and the least time between two catalogs of a stream of
which no segment was committed."""

_Places = tuple[tuple[int, int], ...]
"""Partition and sequence of each open segment."""


def what_is_lost(kept: CatalogRecord | None, own_id: str, record: TableRecord, view: TableView) -> str:
    """Why the metastore cannot be right about a table; empty if it may be. Pure."""
    if kept is None or not kept.num_segments:
        return ""
    if kept.store_id != own_id:
        here, stored = {one.key for one in view.segments.values()}, [one.key for one in _stored(kept)]
        # What a stream brings removes segments of the catalog, but brings none before a new table is confirmed.
        has_moved_on = kept.has_stream and not record.is_unconfirmed
        is_here = bool(view.segments) if has_moved_on else bool(stored) and here.issuperset(stored)
        return "" if is_here else "the metastore is a new one"
    if kept.created_ms > record.created_ms:
        return "the metastore is from before the table was created"
    if kept.created_ms == record.created_ms and kept.epoch > view.epoch:
        return "the metastore is older than the table's files"
    return ""


def _stored(kept: CatalogRecord) -> Iterator[SegmentRecord]:
    """Segments that have files."""
    yield from kept.records
    yield from (one for one in kept.stream_segments if not one.is_open)


def catalog_of(own_id: str, record: TableRecord, view: TableView, topic_id: str = "") -> CatalogRecord:
    """Write down what a table has now. Pure."""
    unmarked = [one.model_copy(update={"replaces": "", "replaced_by": ""}) for one in _with_origins(view)]
    return CatalogRecord(
        store_id=own_id,
        created_ms=record.created_ms,
        epoch=view.epoch,
        num_segments=len(view.visible),
        total_docs=view.total_docs,
        has_stream=any(map(is_of_stream, unmarked)),
        records=tuple(one for one in unmarked if not isinstance(one, StreamSegmentRecord)),
        stream_segments=tuple(one for one in unmarked if isinstance(one, StreamSegmentRecord)),
        topic_id=topic_id,
    )


def _open_places(view: TableView) -> _Places:
    """Where partitions read on: changes whenever a segment of the stream is committed."""
    return tuple(sorted((number, one.sequence) for number, one in open_segments(view).items()))


def _with_origins(view: TableView) -> list[SegmentRecord]:
    """Visible records, each with what it took the place of: a batch that runs again must not add it twice."""
    found = dict(view.segments)
    concerned: dict[str, set[str]] = defaultdict(set)
    for record in found.values():
        for entry in filter(None, (record.replaces, record.replaced_by)):
            concerned[entry].add(record.name)
    for entry, mark in sorted(view.lineage.items(), key=lambda one: one[1].since_ms):
        if mark.state is LineageState.COMPLETED:
            records = [found[name] for name in sorted(concerned[entry])]
            found |= {one.name: one for one in with_origins(view.table, entry, mark, records)}
    return [found[name] for name in view.visible]


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

    def keep(self, record: TableRecord, view: TableView) -> None:
        """Have the catalog tell of this view. Only of a table that `is_lost` has said it is not."""
        table = record.name
        before = self._kept.get(table)
        if before is None or before.tells_of(self._id, record, view) or (before.epoch < 0 and not view.segments):
            return
        now_s = self._clock.monotonic()
        places = _open_places(view)
        if places and places == before.places and now_s < before.at_s + SILENT_S:
            return  # no segment was committed
        try:
            shelf = self._shelf_of(table)
            if shelf is not None:
                stream = find_stream(self._metastore, table) if places else None
                catalog = catalog_of(self._id, record, view, "" if stream is None else stream.topic_id)
                write_catalog(shelf, table, catalog)
                self._kept[table] = _Kept(self._id, record.created_ms, view.epoch, now_s, places)
        except (UnavailableError, InvalidInputError) as error:
            self._be_silent(table, error)

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
            self._kept[table] = _Kept() if kept is None else _Kept(kept.store_id, kept.created_ms, kept.epoch)
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
class _Kept:
    """A catalog that is in the deep store, and when this process wrote it; none if its epoch is below 0."""

    store_id: str = ""
    created_ms: int = 0
    epoch: int = -1
    at_s: float = float("-inf")
    places: _Places = ()

    def is_ahead_of(self, record: TableRecord, view: TableView) -> bool:
        """Whether the metastore has gone back since: another process may not have noticed."""
        return (self.created_ms, self.epoch) > (record.created_ms, view.epoch)

    def tells_of(self, own_id: str, record: TableRecord, view: TableView) -> bool:
        return (self.store_id, self.created_ms, self.epoch) == (own_id, record.created_ms, view.epoch)
