"""MergeRollupTasks as applied. A table has one: its watermark's node names it, in the same transaction.

Deleting a MergeRollupTask forgets how far it had come; what it merged stays merged, because segments tell their level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.metastore import Create, Delete, Metastore, Node, Op, Put
from merlot.cluster.records import Record
from merlot.cluster.tables import Outcome
from merlot.cluster.task_records import WatermarkRecord
from merlot.cluster.tasks import MERGE_ROLLUP
from merlot.errors import ConflictError, InvalidInputError, NotFoundError
from merlot.ids import TableName, raw_name
from merlot.spec.manifest import Problem, dump, from_stored
from merlot.spec.tasks import MergeRollupTask

_ATTEMPTS = 20


class RollupRecord(Record):
    """A MergeRollupTask as it was last applied."""

    name: str
    revision: int
    table: TableName
    manifest: dict[str, Any]
    created_ms: int = -1
    updated_ms: int = -1


@dataclass(frozen=True, slots=True)
class AppliedRollup:
    """The record after it was applied."""

    record: RollupRecord
    outcome: Outcome


class RollupConflictError(InvalidInputError):
    """The manifest is sound and cannot be applied to what is there."""

    def __init__(self, name: str, problem: Problem) -> None:
        super().__init__(f"MergeRollupTask cannot be applied name={name} problem={problem}")
        self.problems = (problem,)


def put_rollup(metastore: Metastore, manifest: MergeRollupTask, *, clock: Clock | None = None) -> RollupRecord:
    """Create or change it; raises RollupConflictError for another table, or a table that has one already."""
    return apply_rollup(metastore, manifest, clock=clock).record


def apply_rollup(metastore: Metastore, manifest: MergeRollupTask, *, clock: Clock | None = None) -> AppliedRollup:
    """As `put_rollup`, telling what it did. Rerunning it changes nothing."""
    now_ms = (clock or SystemClock()).now_ms()
    for _ in range(_ATTEMPTS):
        try:
            return _apply(metastore, manifest, now_ms)
        except ConflictError:
            continue
    raise ConflictError(f"MergeRollupTask is applied by too many at once name={manifest.metadata.name}")


def check_rollup(metastore: Metastore, manifest: MergeRollupTask) -> Outcome:
    """What applying would do, without doing it; raises RollupConflictError."""
    record = find_rollup(metastore, manifest.metadata.name)
    if record is not None:
        _check_same_table(record, manifest)
        return Outcome.UNCHANGED if record.manifest == dump(manifest) else Outcome.CONFIGURED
    _check_only_one(metastore, manifest, _claim(metastore, manifest.spec.table_name))
    return Outcome.CREATED


def find_rollup(metastore: Metastore, name: str) -> RollupRecord | None:
    """The record of that name, or None."""
    path = paths.rollup_config(name)
    node = metastore.get(path)
    return None if node is None else RollupRecord.from_bytes(node.data, path)


def get_rollup(metastore: Metastore, name: str) -> RollupRecord:
    """As `find_rollup`, but raises NotFoundError."""
    record = find_rollup(metastore, name)
    if record is None:
        raise NotFoundError(f"MergeRollupTask does not exist name={name}")
    return record


def list_rollups(metastore: Metastore) -> Mapping[str, RollupRecord]:
    """All, by name."""
    return {name: record for name, (record, _) in list_versions(metastore).items()}


def list_versions(metastore: Metastore) -> Mapping[str, tuple[RollupRecord, int]]:
    """All, by name, with the versions of their nodes, for a Check."""
    names = metastore.children(paths.ROLLUPS)
    config_paths = [paths.rollup_config(name) for name in names]
    return {
        name: (RollupRecord.from_bytes(node.data, path), node.version)
        for name, path, node in zip(names, config_paths, metastore.get_many(config_paths), strict=True)
        if node is not None
    }


def delete_rollup(metastore: Metastore, name: str) -> None:
    """Delete it with its watermarks; the controller cancels its tasks. NotFoundError if there is none."""
    for _ in range(_ATTEMPTS):
        path = paths.rollup_config(name)
        node = metastore.get(path)
        if node is None:
            raise NotFoundError(f"MergeRollupTask does not exist name={name}")
        record = RollupRecord.from_bytes(node.data, path)
        ops: list[Op] = [Delete(path, node.version)]
        claim = _claim(metastore, record.table)
        if claim is not None and _watermarks(claim, record.table).rollup == name:
            ops.append(Delete(paths.task_metadata(MERGE_ROLLUP, record.table), claim.version))
        try:
            metastore.multi(ops)
            return
        except (ConflictError, NotFoundError):
            continue
    raise ConflictError(f"MergeRollupTask is written by too many to be deleted name={name}")


def spec_of(record: RollupRecord) -> MergeRollupTask:
    """The manifest as models."""
    return from_stored(record.manifest, MergeRollupTask)


def watermarks(metastore: Metastore, table: str) -> tuple[WatermarkRecord, int | None]:
    """How far the table's merges have come, and the node's version; None if there is no node."""
    node = _claim(metastore, table)
    return (WatermarkRecord(), None) if node is None else (_watermarks(node, table), node.version)


def put_watermarks(table: str, record: WatermarkRecord, version: int | None) -> Op:
    """The operation that writes it, if nobody else did since it was read."""
    path = paths.task_metadata(MERGE_ROLLUP, table)
    return Create(path, record.to_bytes()) if version is None else Put(path, record.to_bytes(), version)


def _apply(metastore: Metastore, manifest: MergeRollupTask, now_ms: int) -> AppliedRollup:
    name, document = manifest.metadata.name, dump(manifest)
    path = paths.rollup_config(name)
    node = metastore.get(path)
    if node is None:
        table = manifest.spec.table_name
        claim = _claim(metastore, table)
        _check_only_one(metastore, manifest, claim)
        record = RollupRecord(
            name=name, revision=1, table=table, manifest=document, created_ms=now_ms, updated_ms=now_ms
        )
        claimed = put_watermarks(table, WatermarkRecord(rollup=name), None if claim is None else claim.version)
        metastore.multi([Create(path, record.to_bytes()), claimed])
        return AppliedRollup(record, Outcome.CREATED)
    record = RollupRecord.from_bytes(node.data, path)
    _check_same_table(record, manifest)
    if record.manifest == document:
        return AppliedRollup(record, Outcome.UNCHANGED)
    update = {"revision": record.revision + 1, "manifest": document, "updated_ms": now_ms}
    changed = record.model_copy(update=update)
    metastore.put(path, changed.to_bytes(), node.version)
    return AppliedRollup(changed, Outcome.CONFIGURED)


def _check_same_table(record: RollupRecord, manifest: MergeRollupTask) -> None:
    if record.table != manifest.spec.table_name:
        problem = Problem("spec.table", f'cannot change; it is "{raw_name(record.table)}". Write another one instead')
        raise RollupConflictError(record.name, problem)


def _check_only_one(metastore: Metastore, manifest: MergeRollupTask, claim: Node | None) -> None:
    if claim is None:
        return
    holder = _watermarks(claim, manifest.spec.table_name).rollup
    if holder and holder != manifest.metadata.name and find_rollup(metastore, holder) is not None:
        text = (
            f'table "{manifest.spec.table}" has the MergeRollupTask "{holder}" already; add levels to it, or delete it'
        )
        raise RollupConflictError(manifest.metadata.name, Problem("spec.table", text))


def _claim(metastore: Metastore, table: str) -> Node | None:
    return metastore.get(paths.task_metadata(MERGE_ROLLUP, table))


def _watermarks(node: Node, table: str) -> WatermarkRecord:
    return WatermarkRecord.from_bytes(node.data, paths.task_metadata(MERGE_ROLLUP, table))
