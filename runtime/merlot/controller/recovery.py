"""Recovery of what a table has lost: records from its catalog or its files' footers, segments from the trash.

Every step can be repeated. First the records come back in one swap of the root, then the catalog is written, and only
then is the table queried again. Blocks; any thread may call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.stream_facts import check_topic, restore_state
from merlot.cluster.lineage.replacements import list_entries, revert_replacement
from merlot.cluster.losses import CatalogRecord, find_lost, forget_lost, store_id
from merlot.cluster.manifests import tables
from merlot.cluster.manifests.copies import ManifestsRecord
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
from merlot.cluster.segments.transaction import PutSegments, WriteContext, mutate
from merlot.cluster.segments.view import TableView
from merlot.controller.access import ClusterAccess
from merlot.controller.cleaning.catalog import catalog_of, loss_reason
from merlot.controller.cleaning.catalog_store import CatalogStore, read_catalog, write_catalog
from merlot.controller.cleaning.catalogs import stream_state
from merlot.controller.cleaning.manifest_copies import ListedStore, read_copies
from merlot.controller.cleaning.removed import RemovedFile, check_restorable, removed_files, segment_of
from merlot.controller.cleaning.trash import DeepStoreFiles, OpenFiles, trash_lists
from merlot.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError, UnavailableError
from merlot.ids import SegmentKey, TableName, raw_name
from merlot.pinot.cluster_json import Json
from merlot.spec.manifest import from_stored
from merlot.spec.table import TableSpec


class ReadRecord(Protocol):
    """Function that makes a record of a segment file. It is injected, since it needs the segment reader."""

    def __call__(self, url: str, table: TableName, spec: TableSpec, store_uri: str) -> SegmentRecord: ...


@dataclass(frozen=True, slots=True)
class _RecoveryTarget:
    """A table, and where its files are."""

    record: TableRecord
    spec: TableSpec
    uri: str
    files: DeepStoreFiles
    store: CatalogStore


class Recovery:
    """Recovery of the tables of one cluster."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._metastore = access.metastore
        self.open_files: OpenFiles | None = None
        """Opener of deep stores, set by the role; None if there is no deep store."""
        self.read: ReadRecord | None = None
        """Reader of footers, set by the program that starts the process; None if it cannot read segments."""

    @property
    def _context(self) -> WriteContext:
        return WriteContext(clock=self._access.clock)

    def recover(self, name: str, *, accept_loss: bool = False, from_footers: bool = False) -> Json:
        """Restore a lost table from what its deep store has.

        accept_loss: go on without what cannot be restored. from_footers: restore, without a catalog, every segment file
        in the table's folder that no list in the trash names; only for a table without segments."""
        target = self._target_of(name)
        lost = find_lost(self._metastore, target.record.name)
        own_id = store_id(self._metastore)
        if own_id is None:
            raise UnavailableError("no controller has looked at this metastore yet; try again in a moment")
        state: StreamStateRecord | None = None
        if from_footers:
            records = self._of_footers(target, self._access.view_of(name))
        elif lost is None and target.record.is_unconfirmed:
            raise UnavailableError(
                f"no controller has compared the table with its files yet table={raw_name(name)}; try again in a moment"
            )
        elif lost is None:
            raise InvalidInputError(
                f"nothing of the table is missing table={raw_name(name)}; "
                "to bring back segments that were removed: merlot undelete"
            )
        else:
            records, state = self._of_catalog(target, own_id, accept_loss=accept_loss)
        missing = [
            segment for segment in records if not segment.is_open and target.files.modified_ms(segment.url) is None
        ]
        gone = [segment.name for segment in missing]
        if gone and not accept_loss:
            raise ConflictError(
                f"files are missing in the deep store segments={gone[:3]} num_missing={len(gone)}{_offsets(missing)}; "
                "to go on without them: merlot recover --accept-loss"
            )
        wanted = [segment for segment in records if segment.name not in set(gone)]
        if state is not None:
            restore_state(self._metastore, target.record.name, state, self._access.clock.now_ms())
        published = [
            *self._put(name, [segment for segment in wanted if not isinstance(segment, StreamSegmentRecord)]),
            *self._put_chains(
                target, [segment for segment in wanted if isinstance(segment, StreamSegmentRecord)], state
            ),
        ]
        view = self._access.view_of(name)
        stream = stream_state(self._metastore, target.record.name, target.spec)
        write_catalog(target.store, target.record.name, catalog_of(own_id, target.record, view, stream))
        forget_lost(self._metastore, target.record.name)
        return {
            "recovered": published,
            "missing": gone,
            "segments": len(view.visible),
            "partitions": _partitions_json(view),
        }

    def _put_chains(
        self, target: _RecoveryTarget, wanted: Sequence[StreamSegmentRecord], state: StreamStateRecord | None
    ) -> list[str]:
        """Restore the chains of partitions. Each reads on from the start of its open segment."""
        keys = {segment.key for segment in wanted}
        absent: list[StreamSegmentRecord] = []
        is_paused = state is not None and state.is_paused

        def decide(view: TableView) -> Sequence[PutSegments]:
            _check_unconsumed(view, keys)
            absent[:] = [
                _reopened(segment, is_paused=is_paused) for segment in wanted if view.segment(segment.name) is None
            ]
            return [PutSegments(tuple(absent), dict.fromkeys(segment.name for segment in absent))] if absent else []

        mutate(self._metastore, target.record.name, decide, context=self._context)
        return [segment.name for segment in absent if not segment.is_open]

    def _put(self, name: str, wanted: Sequence[SegmentRecord]) -> list[str]:
        """Publish the segments that are missing. A segment of the same name that was published since the loss stays."""
        view = self._access.view_of(name)
        absent = tuple(segment for segment in wanted if view.segment(segment.name) is None)
        if not absent:
            return []
        return list(
            self._access.publish(name, PublishRequest(records=absent, replace_rows=True, is_recovery=True)).published
        )

    def _of_catalog(
        self, target: _RecoveryTarget, own_id: str, *, accept_loss: bool
    ) -> tuple[Sequence[SegmentRecord], StreamStateRecord | None]:
        """Return the records to restore, and the state of the stream that their offsets belong to."""
        table = raw_name(target.record.name)
        catalog = read_catalog(target.store, target.record.name)
        if catalog is None:
            raise NotFoundError(f"the table's catalog is gone from the deep store table={table}")
        is_own = catalog.store_id == own_id
        is_older = is_own and bool(
            loss_reason(catalog, own_id, target.record, self._access.view_of(target.record.name))
        )
        has_offsets = bool(catalog.stream_segments) and target.spec.ingestion.stream is not None
        if accept_loss and (is_own or (catalog.has_stream and not has_offsets)):
            return (), None
        if catalog.has_stream and (is_older or not has_offsets):
            reason = "the metastore is an older copy" if is_older else "its catalog has no offsets"
            raise InvalidInputError(
                f"a table that consumes a stream cannot be recovered: {reason} table={table}; "
                "to go on with what the metastore and the stream still have: merlot recover --accept-loss"
            )
        if is_own and not catalog.has_stream:
            self._remove_others(target, catalog)
        if target.spec.ingestion.stream is None:
            return catalog.records, None
        check_topic(self._metastore, target.record.name, catalog.stream_state.topic_id)
        _check_unconsumed(
            self._access.view_of(target.record.name), {segment.key for segment in catalog.stream_segments}
        )
        return (*catalog.records, *catalog.stream_segments), catalog.stream_state

    def _remove_others(self, target: _RecoveryTarget, catalog: CatalogRecord) -> None:
        """Remove segments that an older metastore still has but the table no longer had. Replacements under way are
        reverted."""
        for entry in list_entries(self._metastore, target.record.name):
            if entry.state is LineageState.IN_PROGRESS:
                revert_replacement(self._metastore, target.record.name, entry.id, context=self._context)
        keys = {segment.key for segment in catalog.records}
        others = tuple(
            segment.name
            for segment in self._access.view_of(target.record.name).visible.values()
            if segment.key not in keys
        )
        if others:
            by_name = {segment.name: segment for segment in catalog.records}
            records = tuple(by_name[name] for name in others if name in by_name)
            request = PublishRequest(records=records, replace=others, replace_rows=True, is_recovery=True)
            self._access.publish(target.record.name, request)

    def _of_footers(self, target: _RecoveryTarget, view: TableView) -> Sequence[SegmentRecord]:
        table = target.record.name
        if target.spec.ingestion.stream is not None:
            raise InvalidInputError(f"a table that consumes a stream cannot be recovered table={raw_name(table)}")
        if view.visible:
            raise InvalidInputError(f"the table has segments, files may hold their rows again table={raw_name(table)}")
        condemned = {url for _, listed in trash_lists(self._metastore, table) for url in listed.urls}
        newest: dict[str, tuple[int, str]] = {}
        for url in target.files.list(table):
            modified_ms, segment = target.files.modified_ms(url), segment_of(url)
            if url not in condemned and segment and modified_ms is not None:
                newest[segment] = max((modified_ms, url), newest.get(segment, (0, "")))
        names = newest_divisions({name: modified_ms for name, (modified_ms, _) in newest.items()})
        return [self._read(target, url) for name, (_, url) in newest.items() if name in names]

    def undeclared(self) -> list[Json]:
        """Return the tables that the cluster's own deep store has copies of manifests of, but the metastore does not
        know, with what their catalogs count. Deleted tables are not among them."""
        store: object = None if self.open_files is None else self.open_files(None)
        if not isinstance(store, ListedStore):
            raise _no_deep_store()
        declared = set(tables.table_names(self._metastore))
        return [self._undeclared(name, copy) for name, copy in read_copies(store).items() if name not in declared]

    def _undeclared(self, name: TableName, copy: ManifestsRecord) -> Json:
        assert self.open_files is not None
        [document] = [document for document in copy.manifests if document["kind"] == "Table"]
        store: object = self.open_files(from_stored(document).spec.deep_store_uri)
        catalog, problem = None, ""
        try:
            catalog = read_catalog(store, name) if isinstance(store, CatalogStore) else None
        except CorruptionError as error:
            problem = str(error)
        return {
            "table": raw_name(name),
            "copiedMs": copy.written_ms,
            "segments": 0 if catalog is None else catalog.num_segments,
            "rows": 0 if catalog is None else catalog.total_docs,
            "problem": problem,
            "manifests": list(copy.manifests),
        }

    def trash(self, name: str) -> list[Json]:
        """Return the segments in the table's trash, the last removed first."""
        return [
            {"segment": file.segment, "url": file.url, "deletedMs": file.deleted_ms}
            for file in removed_files(self._metastore, self._target_of(name).record)
        ]

    def undelete(self, name: str, segments: Sequence[str]) -> Json:
        """Publish again segments whose files are in the trash; all or none."""
        target, view = self._target_of(name), self._access.view_of(name)
        if not segments:
            raise InvalidInputError("name the segments to bring back; GET /tables/TABLE/trash lists them")
        files: dict[str, RemovedFile] = {}
        for file in reversed(removed_files(self._metastore, target.record)):
            files[file.segment] = file
        absent = [segment for segment in segments if segment not in files]
        if absent:
            raise NotFoundError(f"segment is not in the trash table={raw_name(name)} segments={absent[:3]}")
        existing = [segment for segment in segments if view.segment(segment) is not None]
        if existing:
            raise ConflictError(f"segment exists already table={raw_name(name)} segments={existing[:3]}")
        wanted = [files[segment] for segment in dict.fromkeys(segments)]
        for file in wanted:
            check_restorable(target.spec, file)
        records = tuple(file.record_of(self._read(target, file.url)) for file in wanted)
        removed_ms = {file.segment: file.deleted_ms for file in wanted}
        return {
            "restored": list(
                self._access.publish(name, PublishRequest(records=records, removed_ms=removed_ms)).published
            )
        }

    def _read(self, target: _RecoveryTarget, url: str) -> SegmentRecord:
        if self.read is None:
            raise InvalidInputError("this controller cannot read segments")
        return self.read(url, target.record.name, target.spec, target.uri)

    def _target_of(self, name: str) -> _RecoveryTarget:
        record = tables.get_table(self._metastore, name)
        spec = tables.spec_of(record).spec
        declared = spec.deep_store_uri
        uri = self._access.stores.uri_of(declared)
        files = None if self.open_files is None else self.open_files(declared)
        store: object = files
        if uri is None or files is None or not isinstance(store, CatalogStore):
            raise _no_deep_store()
        return _RecoveryTarget(record, spec, uri, files, store)


def _no_deep_store() -> InvalidInputError:
    return InvalidInputError("this controller has no deep store: start it with --deep-store")


def _check_unconsumed(view: TableView, keys: Collection[SegmentKey]) -> None:
    """Raise ConflictError if the table has segments of its stream beside those to restore."""
    others = [segment.name for segment in view.stream_segments if segment.key not in keys]
    if keys and others:
        raise ConflictError(
            f"the table has consumed its stream since table={raw_name(view.table)} segments={others[:3]}"
        )


def _reopened(record: StreamSegmentRecord, *, is_paused: bool) -> StreamSegmentRecord:
    """Return an open segment as it was when it began.

    Its rows were in the memory of servers and are read again. Requests to end it are dropped and will be made again."""
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
    """Return the first ranges of missing offsets, by partition, as part of a message."""
    ranges = [
        f"{segment.partition}:{segment.start_offset}-{segment.end_offset}"
        for segment in missing
        if isinstance(segment, StreamSegmentRecord)
    ]
    return f" offsets={ranges[:3]}" if ranges else ""


def _partitions_json(view: TableView) -> list[Json]:
    """Return, for each partition, the number of its sealed segments and the offset from which it reads on."""
    sealed = Counter(segment.partition for segment in view.stream_segments if not segment.is_open)
    return [
        {"partition": number, "segments": sealed[number], "offset": segment.start_offset}
        for number, segment in sorted(open_segments(view).items())
    ]
