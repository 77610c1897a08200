"""Tables as applied: their manifests with a revision, and the birth and death of their state."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.applied import Applied, Manifests, Outcome
from merlot.cluster.lineage_nodes import epoch_of_node
from merlot.cluster.metastore import Create, Delete, Metastore, Node, Op, Put
from merlot.cluster.mutations import Context, RemoveSegments, epoch_of_bucket, mutate, trash_nodes
from merlot.cluster.records import RootRecord, TableRecord, TrashRecord
from merlot.cluster.reports import remove_report
from merlot.cluster.view import TableView, load
from merlot.errors import ConflictError, InvalidInputError, NotFoundError
from merlot.ids import InstanceId, TableName, offline, raw_name
from merlot.spec.evolution import compare
from merlot.spec.manifest import Problem, dump, from_stored
from merlot.spec.table import Table

_ATTEMPTS = 20
_MOST_SEGMENTS_AT_ONCE = 50_000


TABLES = Manifests(kind="Table", root=paths.TABLES, path=paths.table_config, record=TableRecord)


class EvolutionError(InvalidInputError):
    """The manifest changes what cannot change on a live table."""

    def __init__(self, table: str, problems: Sequence[Problem]) -> None:
        text = "; ".join(str(problem) for problem in problems)
        super().__init__(f"table cannot change like this table={table} problems={text}")
        self.problems = tuple(problems)


def put_table(metastore: Metastore, manifest: Table, *, clock: Clock | None = None) -> TableRecord:
    """Create the table or change it, as far as it may change; raises EvolutionError."""
    return apply_table(metastore, manifest, clock=clock).record


def apply_table(metastore: Metastore, manifest: Table, *, clock: Clock | None = None) -> Applied[TableRecord]:
    """As `put_table`, telling what it did. Rerunning it changes nothing."""
    now_ms = (clock or SystemClock()).now_ms()
    document = dump(manifest)

    def change(record: TableRecord, version: int) -> Applied[TableRecord]:
        if record.manifest != document:
            _check_evolution(record, manifest)
        return TABLES.revise(metastore, record, version, document, now_ms)

    return TABLES.apply(metastore, manifest.name, lambda: _create(metastore, manifest.name, document, now_ms), change)


def check_table(metastore: Metastore, manifest: Table) -> Outcome:
    """What applying would do, without doing it; raises EvolutionError."""
    table = manifest.name
    record = find_table(metastore, table)
    if record is None:
        return Outcome.CREATED
    if record.manifest == dump(manifest):
        return Outcome.UNCHANGED
    _check_evolution(record, manifest)
    return Outcome.CONFIGURED


def find_table(metastore: Metastore, table: str) -> TableRecord | None:
    """The record of `flights` or `flights_OFFLINE`, or None."""
    return TABLES.find(metastore, offline(raw_name(table)))


def get_table(metastore: Metastore, table: str) -> TableRecord:
    """As `find_table`, but raises NotFoundError."""
    record = find_table(metastore, table)
    if record is None:
        raise NotFoundError(f"table does not exist table={raw_name(table)}")
    return record


def list_tables(metastore: Metastore) -> Mapping[TableName, TableRecord]:
    """All tables, by name."""
    return {TableName(name): record for name, record in TABLES.all(metastore).items()}


class Files(StrEnum):
    """What becomes of a deleted table's files: deleted after the usual grace period, at once, or never."""

    LATER = "LATER"
    NOW = "NOW"
    KEEP = "KEEP"


def delete_table(metastore: Metastore, table: str, *, files: Files = Files.LATER, clock: Clock | None = None) -> None:
    """Take the table out of sight, its files into the trash, then its nodes away. Rerunning it finishes the job."""
    name = offline(raw_name(table))
    root_path = paths.segments_root(name)
    for _ in range(_ATTEMPTS):
        config = metastore.get(paths.table_config(name))
        if config is None and metastore.get(root_path) is None:
            raise NotFoundError(f"table does not exist table={raw_name(table)}")
        try:
            _hide(metastore, name, config, files, clock or SystemClock())
            break
        except ConflictError:
            continue
    else:
        raise ConflictError(f"table is written by too many to be deleted table={name}")
    _remove_buckets(metastore, name)
    for instance in metastore.children(paths.reports(name)):
        remove_report(metastore, name, InstanceId(instance))
    _delete(metastore, paths.reports(name))


def is_rid_of_files(metastore: Metastore, table: str) -> bool:
    """Whether all files of a table that was deleted with `Files.NOW` are."""
    folder = paths.trash(offline(raw_name(table)))
    nodes = ((path, metastore.get(path)) for name in metastore.children(folder) for path in [paths.child(folder, name)])
    return not any(TrashRecord.from_bytes(node.data, path).is_urgent for path, node in nodes if node is not None)


def spec_of(record: TableRecord) -> Table:
    """The manifest as models."""
    return from_stored(record.manifest)


def _create(metastore: Metastore, table: TableName, document: dict[str, Any], now_ms: int) -> TableRecord:
    record = TableRecord(name=table, revision=1, manifest=document, created_ms=now_ms, updated_ms=now_ms)
    ops: list[Op] = [Create(paths.table_config(table), record.to_bytes())]
    root = metastore.get(paths.segments_root(table))
    if root is None:
        ops.append(Create(paths.segments_root(table), RootRecord().to_bytes()))
    else:
        # What a deletion left behind: readers must see a later epoch.
        old = RootRecord.from_bytes(root.data, paths.segments_root(table)) if root.data else RootRecord()
        fresh = RootRecord(epoch=old.epoch + 1)
        ops.append(Put(paths.segments_root(table), fresh.to_bytes(), root.version))
    metastore.multi(ops)
    return record


def _check_evolution(record: TableRecord, manifest: Table) -> None:
    problems = compare(spec_of(record).spec, manifest.spec)
    if problems:
        raise EvolutionError(raw_name(record.name), problems)


def _hide(metastore: Metastore, table: TableName, config: Node | None, files: Files, clock: Clock) -> None:
    """In one stroke the config goes, the root refuses readers and writers, and the files are in the trash."""
    ops: list[Op] = [] if config is None else [Delete(paths.table_config(table), config.version)]
    with contextlib.suppress(NotFoundError):
        view = _emptied_if_huge(metastore, load(metastore, table), clock)
        urls = tuple(record.url for record in view.segments.values() if record.url and files is not Files.KEEP)
        content_id, store = f"{view.epoch + 1}.{secrets.token_hex(5)}", _deep_store(table, config)
        trash = trash_nodes(table, content_id, urls, clock, store, is_urgent=files is Files.NOW)
        deleted = RootRecord(epoch=view.epoch + 1, is_deleted=True)
        if not urls and files is not Files.KEEP:
            # What may have been uploaded and never published has time, and is looked for when that is over.
            leftovers = TrashRecord(deleted_ms=clock.now_ms(), urls=(), deep_store=store)
            trash = {paths.child(paths.trash(table), content_id): leftovers.to_bytes()}
        ops += [Create(path, data) for path, data in trash.items()]
        ops.append(Put(paths.segments_root(table), deleted.to_bytes(), view.version))
    if ops:
        metastore.multi(ops)


def _deep_store(table: TableName, config: Node | None) -> str | None:
    if config is None:
        return None
    declared = spec_of(TABLES.read(table, config)).spec.deep_store
    return None if declared is None else declared.uri


def _emptied_if_huge(metastore: Metastore, view: TableView, clock: Clock) -> TableView:
    """A table whose list of files does not fit a transaction is emptied first: queries see it empty for a moment."""
    if len(view.segments) <= _MOST_SEGMENTS_AT_ONCE:
        return view
    keys = tuple(record.key for record in view.segments.values())
    return mutate(metastore, view.table, lambda _: [RemoveSegments(keys)], previous=view, context=Context(clock=clock))


def _remove_buckets(metastore: Metastore, table: TableName) -> None:
    """Delete what a deleted root leaves; a table created anew meanwhile keeps its own."""
    path = paths.segments_root(table)
    node = metastore.get(path)
    root = RootRecord() if node is None or not node.data else RootRecord.from_bytes(node.data, path)
    if node is None or not root.is_deleted:
        return
    for bucket in metastore.children(path):
        if epoch_of_bucket(bucket) <= root.epoch:
            _delete(metastore, paths.child(path, bucket))
    for details in metastore.children(paths.lineage(table)):
        if epoch_of_node(details) <= root.epoch:
            _delete(metastore, paths.child(paths.lineage(table), details))
    _delete(metastore, path, node.version)


def _delete(metastore: Metastore, path: str, version: int | None = None) -> None:
    with contextlib.suppress(NotFoundError, ConflictError):
        metastore.delete(path, version)
