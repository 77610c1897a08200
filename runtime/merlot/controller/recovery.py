"""Brings back what a table has lost: records from its catalog or from its files' footers, segments from the trash.

Every step can be repeated: the records come back in one swap of the root, then the catalog is written, and only then
is the table answered for again. Blocks; any thread may call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from merlot.cluster.consuming.found import check_topic, restore_state
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.lineage.replacements import list_entries, revert_replacement
from merlot.cluster.losses import CatalogRecord, find_lost, forget_lost, store_id
from merlot.cluster.manifests import tables
from merlot.cluster.records import (
    AskedEnd,
    ConsumingStatus,
    LineageState,
    SegmentRecord,
    StreamSegmentRecord,
    StreamStateRecord,
    TableRecord,
)
from merlot.cluster.segments.families import newest_divisions
from merlot.cluster.segments.publish import PublishRequest
from merlot.cluster.segments.transaction import Context, PutSegments, mutate
from merlot.cluster.segments.view import TableView
from merlot.controller.access import ClusterAccess
from merlot.controller.cleaning.catalog import catalog_of, what_is_lost
from merlot.controller.cleaning.catalogs import stream_state
from merlot.controller.cleaning.removed import RemovedFile, check_restorable, removed_files, segment_of
from merlot.controller.cleaning.shelf import Shelf, read_catalog, write_catalog
from merlot.controller.cleaning.trash import OpenFiles, SegmentFiles, trash_lists
from merlot.controller.status.pinot_json import Json
from merlot.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from merlot.ids import SegmentKey, TableName, raw_name
from merlot.spec.table import TableSpec


class ReadRecord(Protocol):
    """Makes a record of a file, for whoever loads what reads segments."""

    def __call__(self, url: str, table: TableName, spec: TableSpec, store_uri: str) -> SegmentRecord: ...


@dataclass(frozen=True, slots=True)
class _Place:
    """A table and where its files are."""

    record: TableRecord
    spec: TableSpec
    uri: str
    files: SegmentFiles
    shelf: Shelf


class Recovery:
    """Recovers tables of one cluster."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._metastore = access.metastore
        self.open_files: OpenFiles | None = None
        """Set by the role; None: there is no deep store."""
        self.read: ReadRecord | None = None
        """Set by who starts the process; None: it cannot read segments."""

    @property
    def _context(self) -> Context:
        return Context(clock=self._access.clock)

    def recover(self, name: str, *, accept_loss: bool = False, from_footers: bool = False) -> Json:
        """Have a lost table answer with what its deep store remembers. accept_loss: what cannot be brought back stays
        lost. from_footers: of every segment file in the table's folder that no list in the trash names, though there is
        no catalog; for a table without segments only."""
        place = self._place_of(name)
        lost = find_lost(self._metastore, place.record.name)
        own_id = store_id(self._metastore)
        if own_id is None:
            raise UnavailableError("no controller has looked at this metastore yet; try again in a moment")
        state: StreamStateRecord | None = None
        if from_footers:
            records = self._of_footers(place, self._access.view_of(name))
        elif lost is None:
            raise InvalidInputError(
                f"nothing of the table is missing table={raw_name(name)}; "
                "to bring back segments that were removed: merlot undelete"
            )
        else:
            records, state = self._of_catalog(place, own_id, accept_loss=accept_loss)
        missing = [one for one in records if not one.is_open and place.files.modified_ms(one.url) is None]
        gone = [one.name for one in missing]
        if gone and not accept_loss:
            raise ConflictError(
                f"files are missing in the deep store segments={gone[:3]} num_missing={len(gone)}{_offsets(missing)}; "
                "to go on without them: merlot recover --accept-loss"
            )
        wanted = [one for one in records if one.name not in set(gone)]
        if state is not None:
            restore_state(self._metastore, place.record.name, state, self._access.clock.now_ms())
        published = [
            *self._put(name, [one for one in wanted if not isinstance(one, StreamSegmentRecord)]),
            *self._put_chains(place, [one for one in wanted if isinstance(one, StreamSegmentRecord)], state),
        ]
        view = self._access.view_of(name)
        now = stream_state(self._metastore, place.record.name, place.spec)
        write_catalog(place.shelf, place.record.name, catalog_of(own_id, place.record, view, now))
        forget_lost(self._metastore, place.record.name)
        return {
            "recovered": published,
            "missing": gone,
            "segments": len(view.visible),
            "partitions": _places_of(view),
        }

    def _put_chains(
        self, place: _Place, wanted: Sequence[StreamSegmentRecord], state: StreamStateRecord | None
    ) -> list[str]:
        """Put back the chains of partitions, and have each read on from the start of its open segment."""
        keys = {one.key for one in wanted}
        absent: list[StreamSegmentRecord] = []
        is_paused = state is not None and state.is_paused

        def decide(view: TableView) -> Sequence[PutSegments]:
            _check_unconsumed(view, keys)
            absent[:] = [_reopened(one, is_paused=is_paused) for one in wanted if view.segment(one.name) is None]
            return [PutSegments(tuple(absent), dict.fromkeys(one.name for one in absent))] if absent else []

        mutate(self._metastore, place.record.name, decide, context=self._context)
        return [one.name for one in absent if not one.is_open]

    def _put(self, name: str, wanted: Sequence[SegmentRecord]) -> list[str]:
        """Publish what is not there. What was published since the loss under the same name stays."""
        view = self._access.view_of(name)
        absent = tuple(one for one in wanted if view.segment(one.name) is None)
        if not absent:
            return []
        return list(
            self._access.publish(name, PublishRequest(records=absent, replace_rows=True, is_recovery=True)).published
        )

    def _of_catalog(
        self, place: _Place, own_id: str, *, accept_loss: bool
    ) -> tuple[Sequence[SegmentRecord], StreamStateRecord | None]:
        """Return the records to put back, and the state of the stream that their offsets are of."""
        table = raw_name(place.record.name)
        catalog = read_catalog(place.shelf, place.record.name)
        if catalog is None:
            raise NotFoundError(f"the table's catalog is gone from the deep store table={table}")
        is_own = catalog.store_id == own_id
        is_older = is_own and bool(what_is_lost(catalog, own_id, place.record, self._access.view_of(place.record.name)))
        has_offsets = bool(catalog.stream_segments) and place.spec.ingestion.stream is not None
        if accept_loss and (is_own or (catalog.has_stream and not has_offsets)):
            return (), None
        if catalog.has_stream and (is_older or not has_offsets):
            reason = "the metastore is an older copy" if is_older else "its catalog has no offsets"
            raise InvalidInputError(
                f"a table that consumes a stream cannot be recovered: {reason} table={table}; "
                "to go on with what the metastore and the stream still have: merlot recover --accept-loss"
            )
        if is_own and not catalog.has_stream:
            self._remove_others(place, catalog)
        if place.spec.ingestion.stream is None:
            return catalog.records, None
        check_topic(self._metastore, place.record.name, catalog.stream_state.topic_id)
        _check_unconsumed(self._access.view_of(place.record.name), {one.key for one in catalog.stream_segments})
        return (*catalog.records, *catalog.stream_segments), catalog.stream_state

    def _remove_others(self, place: _Place, catalog: CatalogRecord) -> None:
        """Remove segments that an older metastore still has, and that the table no longer had. Replacements that were
        under way then are over."""
        for entry in list_entries(self._metastore, place.record.name):
            if entry.state is LineageState.IN_PROGRESS:
                revert_replacement(self._metastore, place.record.name, entry.id, context=self._context)
        keys = {one.key for one in catalog.records}
        others = tuple(
            one.name for one in self._access.view_of(place.record.name).visible.values() if one.key not in keys
        )
        if others:
            here = {one.name: one for one in catalog.records}
            records = tuple(here[name] for name in others if name in here)
            request = PublishRequest(records=records, replace=others, replace_rows=True, is_recovery=True)
            self._access.publish(place.record.name, request)

    def _of_footers(self, place: _Place, view: TableView) -> Sequence[SegmentRecord]:
        table = place.record.name
        if place.spec.ingestion.stream is not None:
            raise InvalidInputError(f"a table that consumes a stream cannot be recovered table={raw_name(table)}")
        if view.visible:
            raise InvalidInputError(f"the table has segments, files may hold their rows again table={raw_name(table)}")
        condemned = {url for _, one in trash_lists(self._metastore, table) for url in one.urls}
        newest: dict[str, tuple[int, str]] = {}
        for url in place.files.list(table):
            modified_ms, segment = place.files.modified_ms(url), segment_of(url)
            if url not in condemned and segment and modified_ms is not None:
                newest[segment] = max((modified_ms, url), newest.get(segment, (0, "")))
        names = newest_divisions({name: modified_ms for name, (modified_ms, _) in newest.items()})
        return [self._read(place, url) for name, (_, url) in newest.items() if name in names]

    def trash(self, name: str) -> list[Json]:
        """Segments in the table's trash, the last removed first."""
        return [
            {"segment": one.segment, "url": one.url, "deletedMs": one.deleted_ms}
            for one in removed_files(self._metastore, self._place_of(name).record)
        ]

    def undelete(self, name: str, segments: Sequence[str]) -> Json:
        """Publish segments again whose files are in the trash; all or none."""
        place, view = self._place_of(name), self._access.view_of(name)
        if not segments:
            raise InvalidInputError("name the segments to bring back; GET /tables/TABLE/trash lists them")
        files: dict[str, RemovedFile] = {}
        for one in reversed(removed_files(self._metastore, place.record)):
            files[one.segment] = one
        absent = [one for one in segments if one not in files]
        if absent:
            raise NotFoundError(f"segment is not in the trash table={raw_name(name)} segments={absent[:3]}")
        here = [one for one in segments if view.segment(one) is not None]
        if here:
            raise ConflictError(f"segment exists already table={raw_name(name)} segments={here[:3]}")
        wanted = [files[one] for one in dict.fromkeys(segments)]
        for one in wanted:
            check_restorable(place.spec, one)
        records = tuple(one.record_of(self._read(place, one.url)) for one in wanted)
        removed_ms = {one.segment: one.deleted_ms for one in wanted}
        return {
            "restored": list(
                self._access.publish(name, PublishRequest(records=records, removed_ms=removed_ms)).published
            )
        }

    def _read(self, place: _Place, url: str) -> SegmentRecord:
        if self.read is None:
            raise InvalidInputError("this controller cannot read segments")
        return self.read(url, place.record.name, place.spec, place.uri)

    def _place_of(self, name: str) -> _Place:
        record = tables.get_table(self._metastore, name)
        spec = tables.spec_of(record).spec
        declared = spec.deep_store_uri
        uri = self._access.stores.uri_of(declared)
        files = None if self.open_files is None else self.open_files(declared)
        shelf: object = files
        if uri is None or files is None or not isinstance(shelf, Shelf):
            raise InvalidInputError("this controller has no deep store: start it with --deep-store")
        return _Place(record, spec, uri, files, shelf)


def _check_unconsumed(view: TableView, keys: Collection[SegmentKey]) -> None:
    """Raise ConflictError if the table has segments of its stream beside those to put back."""
    others = [one.name for one in view.stream_segments if one.key not in keys]
    if keys and others:
        raise ConflictError(
            f"the table has consumed its stream since table={raw_name(view.table)} segments={others[:3]}"
        )


def _reopened(record: StreamSegmentRecord, *, is_paused: bool) -> StreamSegmentRecord:
    """An open segment as it was when it began: its rows were in the memory of servers, and are read again. What was
    asked of it is asked again."""
    if not record.is_open:
        return record
    return record.model_copy(
        update={
            "status": (ConsumingStatus.PAUSED if is_paused else ConsumingStatus.CONSUMING).value,
            "end_offset": None,
            "next_offset": None,
            "next_pinned": "",
            "sealer": "",
            "sealing_ms": -1,
            "asked_end": AskedEnd.NO,
        }
    )


def _offsets(missing: Sequence[SegmentRecord]) -> str:
    """The first offsets whose rows are missing, by partition."""
    found = [
        f"{one.partition}:{one.start_offset}-{one.end_offset}"
        for one in missing
        if isinstance(one, StreamSegmentRecord)
    ]
    return f" offsets={found[:3]}" if found else ""


def _places_of(view: TableView) -> list[Json]:
    """How many sealed segments each partition has, and the offset that it reads on from."""
    sealed = Counter(one.partition for one in view.stream_segments if not one.is_open)
    return [
        {"partition": number, "segments": sealed[number], "offset": one.start_offset}
        for number, one in sorted(open_segments(view).items())
    ]
