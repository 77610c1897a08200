"""Tables as applied: their manifests with a revision, and the creation and deletion of their state."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.consuming.stream_facts import find_state, forget_stream, state_nodes
from merlot.cluster.instances.reports import remove_report
from merlot.cluster.manifests.remains import Remains
from merlot.cluster.manifests.store import TABLES, ApplyOutcome, ApplyResult
from merlot.cluster.manifests.upserts import noting
from merlot.cluster.records import RetainedRecord, RootRecord, TableRecord, TrashRecord
from merlot.cluster.segments.boundary import BEFORE_ALL, BoundaryRule
from merlot.cluster.segments.lineage_nodes import epoch_of_node
from merlot.cluster.segments.transaction import RemoveSegments, WriteContext, epoch_of_bucket, mutate, trash_nodes
from merlot.cluster.segments.view import TableView, load, load_retained
from merlot.errors import ConflictError, InvalidInputError, NotFoundError
from merlot.ids import InstanceId, TableName, offline, raw_name
from merlot.metastore.protocol import Check, Create, Delete, Metastore, Node, NodeDeleter, Op, Put
from merlot.spec.evolution import compare
from merlot.spec.manifest import ManifestProblem, dump, from_stored
from merlot.spec.table import Table

_ATTEMPTS = 20
_MOST_SEGMENTS_AT_ONCE = 50_000


class EvolutionError(InvalidInputError):
    """The manifest changes settings that cannot change on a live table."""

    def __init__(self, table: str, problems: Sequence[ManifestProblem]) -> None:
        text = "; ".join(str(problem) for problem in problems)
        super().__init__(f"table cannot change like this table={table} problems={text}")
        self.problems = tuple(problems)


class RetainedFilesError(EvolutionError):
    """The manifest does not fit the files that an earlier table of its name has left."""

    def __init__(self, table: str, problems: Sequence[ManifestProblem]) -> None:
        advice = (
            "an earlier table of this name left its files here (deletionPolicy: Retain), and they do not fit: keep to "
            "what it declared, or have them deleted by deleting this table with deletionPolicy: Delete"
        )
        super().__init__(table, [ManifestProblem(problem.path, f"{problem.message}; {advice}") for problem in problems])


def put_table(metastore: Metastore, manifest: Table, *, clock: Clock | None = None) -> TableRecord:
    """Create the table or change it, as far as it may change; raise EvolutionError."""
    return apply_table(metastore, manifest, clock=clock).record


def apply_table(metastore: Metastore, manifest: Table, *, clock: Clock | None = None) -> ApplyResult[TableRecord]:
    """Apply a manifest as `put_table` does, and return the outcome too. Running it again changes nothing."""
    now_ms = (clock or SystemClock()).now_ms()
    document = dump(manifest)

    def change(record: TableRecord, version: int) -> ApplyResult[TableRecord]:
        if record.manifest != document:
            _check_evolution(record, manifest)
            record = noting(metastore, record)
        return TABLES.revise(metastore, record, version, document, now_ms)

    return TABLES.apply(metastore, manifest.name, lambda: _create(metastore, manifest.name, document, now_ms), change)


def check_table(metastore: Metastore, manifest: Table) -> ApplyOutcome:
    """Return what applying the manifest would do, without doing it; raise EvolutionError."""
    table = manifest.name
    record = find_table(metastore, table)
    if record is None:
        _check_retained(find_retained(metastore, table), manifest)
        return ApplyOutcome.CREATED
    if record.manifest == dump(manifest):
        return ApplyOutcome.UNCHANGED
    _check_evolution(record, manifest)
    return ApplyOutcome.CONFIGURED


def find_table(metastore: Metastore, table: str) -> TableRecord | None:
    """Return the record of `flights` or `flights_OFFLINE`, or None."""
    return TABLES.find(metastore, offline(raw_name(table)))


def get_table(metastore: Metastore, table: str) -> TableRecord:
    """Return the record of a table; raise NotFoundError."""
    record = find_table(metastore, table)
    if record is None:
        raise NotFoundError(f"table does not exist table={raw_name(table)}")
    return record


def confirm_table(metastore: Metastore, table: TableName, fence: Check | None = None) -> None:
    """Let brokers answer queries of the table, by clearing `is_unconfirmed`: the catalog in its deep store has nothing
    that the metastore lacks. Raise NotFoundError, or ConflictError if another process writes meanwhile."""
    path = paths.table_config(table)
    node = metastore.get(path)
    if node is None:
        raise NotFoundError(f"table does not exist table={raw_name(table)}")
    record = TABLES.read(table, node).model_copy(update={"is_unconfirmed": False})
    metastore.multi([*([] if fence is None else [fence]), Put(path, record.to_bytes(), node.version)])


def list_tables(metastore: Metastore) -> Mapping[TableName, TableRecord]:
    """Return all tables, by name."""
    return {TableName(name): record for name, record in TABLES.all(metastore).items()}


def table_names(metastore: Metastore) -> list[TableName]:
    """Return the names of all tables, also of those whose records cannot be read."""
    return [TableName(name) for name in TABLES.names(metastore)]


def readable_tables(metastore: Metastore) -> tuple[Mapping[TableName, TableRecord], Set[TableName]]:
    """Return the tables by name, and the names of the tables whose records cannot be read. These tables exist: treat
    none of them as deleted."""
    records, unreadable = TABLES.readable(metastore)
    return {TableName(name): record for name, record in records.items()}, set(map(TableName, unreadable))


def find_retained(metastore: Metastore, table: str) -> RetainedRecord | None:
    """Return what a deleted table has left for the next table of its name, if anything."""
    path = paths.segments_root(offline(raw_name(table)))
    node = metastore.get(path)
    root = None if node is None or not node.data else RootRecord.from_bytes(node.data, path)
    return None if root is None or not root.is_deleted else root.retained


class Files(StrEnum):
    """Fate of a deleted table's files: deleted after the usual grace period, deleted at once, or kept, with their
    records, for the next table of its name."""

    LATER = "LATER"
    NOW = "NOW"
    KEEP = "KEEP"


def delete_table(metastore: Metastore, table: str, *, files: Files = Files.LATER, clock: Clock | None = None) -> None:
    """Hide the table, move its files to the trash unless they are kept, then delete its nodes. Running it again
    finishes the job."""
    name = offline(raw_name(table))
    root_path = paths.segments_root(name)
    for _ in range(_ATTEMPTS):
        config = metastore.get(paths.table_config(name))
        if config is None and metastore.get(root_path) is None:
            raise NotFoundError(f"table does not exist table={raw_name(table)}")
        if config is None and files is Files.KEEP and find_retained(metastore, name) is not None:
            return
        try:
            _hide(metastore, name, config, files, clock or SystemClock())
            break
        except ConflictError:
            continue
    else:
        raise ConflictError(f"table is written by too many to be deleted table={name}")
    with contextlib.suppress(ConflictError):
        _clear(Remains(metastore, name), name)


def _clear(remains: Remains, table: TableName) -> None:
    """Delete the remains of a hidden table; the root goes last, since a rerun sees by it that nodes are left."""
    forget_stream(remains, table)
    for instance in remains.children(paths.reports(table)):
        remove_report(remains, table, InstanceId(instance))
    _delete(remains, paths.reports(table))
    _remove_buckets(remains, table)


@dataclass(frozen=True, slots=True)
class FilesLeft:
    """Remaining files of a table that was deleted with `Files.NOW`."""

    num_files: int
    """Number of remaining files that records named."""
    error: str
    """Reason why the last attempt failed, if it did."""


def files_left(metastore: Metastore, table: str) -> FilesLeft | None:
    """Return the remaining files of a table that was deleted with `Files.NOW`; None if there are none."""
    folder = paths.trash(offline(raw_name(table)))
    nodes = ((path, metastore.get(path)) for name in metastore.children(folder) for path in [paths.child(folder, name)])
    records = [TrashRecord.from_bytes(node.data, path) for path, node in nodes if node is not None]
    urgent = [record for record in records if record.is_urgent]
    if not urgent:
        return None
    return FilesLeft(
        sum(len(record.urls) for record in urgent), next((record.error for record in urgent if record.error), "")
    )


def spec_of(record: TableRecord) -> Table:
    """Return the manifest of a record as a model."""
    return from_stored(record.manifest)


def _create(metastore: Metastore, table: TableName, document: dict[str, Any], now_ms: int) -> TableRecord:
    record = TableRecord(
        name=table, revision=1, manifest=document, created_ms=now_ms, updated_ms=now_ms, is_unconfirmed=True
    )
    root_path = paths.segments_root(table)
    node = metastore.get(root_path)
    if node is None:
        node = Node(RootRecord(is_deleted=True).to_bytes(), 0)
        metastore.create(root_path, node.data)
    # A server may have written about the stream of an earlier table since that table was deleted.
    forget_stream(Remains(metastore, table), table)
    # The root may be an earlier table's: readers must see a later epoch. Retained segments belong to the new table.
    old = RootRecord.from_bytes(node.data, root_path) if node.data else RootRecord()
    root = _first_root(document).model_copy(update={"epoch": old.epoch + 1})
    if old.is_deleted and old.retained is not None:
        _check_retained(old.retained, from_stored(document))
        update = {"num_adopted": old.retained.num_segments, "decided_by": old.retained.decided_by}
        record = record.model_copy(update=update)
        root = old.model_copy(update={"epoch": old.epoch + 1, "is_deleted": False, "retained": None})
    nodes = {paths.table_config(table): record.to_bytes(), **_stream_nodes(table, old, now_ms)}
    creates = [Create(path, data) for path, data in nodes.items()]
    metastore.multi([*creates, Put(root_path, root.to_bytes(), node.version)])
    return record


def _stream_nodes(table: TableName, old: RootRecord, now_ms: int) -> dict[str, bytes]:
    """Return the nodes of the stream's state that an earlier table has retained: the offsets of its segments are only
    valid with it."""
    state = old.retained.stream if old.is_deleted and old.retained is not None else None
    return {} if state is None else state_nodes(table, state, now_ms)


def _first_root(document: dict[str, Any]) -> RootRecord:
    """Return the root of a table without segments; the time boundary of a hybrid table is before all rows, since
    it has no batches yet."""
    rule = BoundaryRule.of(from_stored(document).spec)
    return RootRecord(time_boundary_ms=None if rule is None else BEFORE_ALL)


def _check_retained(retained: RetainedRecord | None, manifest: Table) -> None:
    if retained is None:
        return
    problems = compare(from_stored(retained.manifest).spec, manifest.spec)
    if problems:
        raise RetainedFilesError(manifest.raw_name, problems)


def _check_evolution(record: TableRecord, manifest: Table) -> None:
    problems = compare(spec_of(record).spec, manifest.spec)
    if problems:
        raise EvolutionError(raw_name(record.name), problems)


def _hide(metastore: Metastore, table: TableName, config: Node | None, files: Files, clock: Clock) -> None:
    """Delete the config, close the root to readers and writers, and put the files into the trash or retain them with
    their records, all in one write."""
    ops: list[Op] = [] if config is None else [Delete(paths.table_config(table), config.version)]
    retained = load_retained(metastore, table)
    view = retained
    with contextlib.suppress(NotFoundError):
        view = view or load(metastore, table)
    if view is not None and files is Files.KEEP:
        ops.append(_retaining(metastore, view, config, clock))
    elif view is not None:
        if retained is None:
            view = _emptied_if_huge(metastore, view, clock)
        ops += [Create(path, data) for path, data in _trash(view, config, files, clock).items()]
        deleted = RootRecord(epoch=view.epoch + 1, is_deleted=True)
        ops.append(Put(paths.segments_root(table), deleted.to_bytes(), view.version))
    if ops:
        metastore.multi(ops)


def _retaining(metastore: Metastore, view: TableView, config: Node | None, clock: Clock) -> Put:
    """Return the op for a root that keeps buckets and lineage for the next table of the name. A table without segments
    keeps none."""
    update: dict[str, Any] = {"epoch": view.epoch + 1, "is_deleted": True}
    if config is not None and view.segments:
        record = noting(metastore, TABLES.read(view.table, config))
        update["retained"] = RetainedRecord(
            manifest=record.manifest,
            num_segments=len(view.visible),
            deleted_ms=clock.now_ms(),
            decided_by=record.decided_by,
            stream=find_state(metastore, view.table),
        )
    root = view.root if "retained" in update else RootRecord()
    return Put(paths.segments_root(view.table), root.model_copy(update=update).to_bytes(), view.version)


def _trash(view: TableView, config: Node | None, files: Files, clock: Clock) -> dict[str, bytes]:
    """Return the trash's nodes, by path. They list the files that records name, and order a search for all other files:
    at once if it is urgent, and again when every task of the table is over."""
    content_id, store = f"{view.epoch + 1}.{secrets.token_hex(5)}", _deep_store(view, config)
    is_urgent = files is Files.NOW
    nodes: dict[str, bytes] = {}
    if len(view.segments) <= _MOST_SEGMENTS_AT_ONCE:  # only a retained table has more, and its files are leftovers
        urls = tuple(record.url for record in view.segments.values() if record.url)
        listed = TrashRecord(deleted_ms=clock.now_ms(), urls=urls, deep_store=store, is_urgent=is_urgent)
        nodes = trash_nodes(view.table, content_id, listed)
    for is_now in {is_urgent, False}:
        leftovers = TrashRecord(
            deleted_ms=clock.now_ms(), urls=(), deep_store=store, is_urgent=is_now, has_leftovers=True
        )
        name = f"{content_id}-leftovers-{'now' if is_now else 'later'}"
        nodes[paths.child(paths.trash(view.table), name)] = leftovers.to_bytes()
    return nodes


def _deep_store(view: TableView, config: Node | None) -> str | None:
    """Return the table's own deep store, if it names one."""
    if config is not None:
        document = TABLES.read(view.table, config).manifest
    elif view.root.retained is not None:
        document = view.root.retained.manifest
    else:
        return None
    return from_stored(document).spec.deep_store_uri


def _emptied_if_huge(metastore: Metastore, view: TableView, clock: Clock) -> TableView:
    """Empty a table whose list of files does not fit a transaction: queries see it empty for a moment. Return the
    view after that."""
    if len(view.segments) <= _MOST_SEGMENTS_AT_ONCE:
        return view
    keys = tuple(record.key for record in view.segments.values())
    return mutate(
        metastore,
        view.table,
        lambda _: [RemoveSegments(keys, even_open=True)],
        previous=view,
        context=WriteContext(clock=clock),
    )


def _remove_buckets(metastore: NodeDeleter, table: TableName) -> None:
    """Delete the buckets, lineage nodes and root of a deleted table; a table created meanwhile keeps its own."""
    path = paths.segments_root(table)
    node = metastore.get(path)
    root = RootRecord() if node is None or not node.data else RootRecord.from_bytes(node.data, path)
    if node is None or not root.is_deleted or root.retained is not None:
        return
    for bucket in metastore.children(path):
        if epoch_of_bucket(bucket) <= root.epoch:
            _delete(metastore, paths.child(path, bucket))
    for details in metastore.children(paths.lineage(table)):
        if epoch_of_node(details) <= root.epoch:
            _delete(metastore, paths.child(paths.lineage(table), details))
    _delete(metastore, path, node.version)


def _delete(metastore: NodeDeleter, path: str, version: int | None = None) -> None:
    with contextlib.suppress(NotFoundError, ConflictError):
        metastore.delete(path, version)
