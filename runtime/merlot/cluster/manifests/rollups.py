"""MergeRollupTasks as applied. A table has at most one: the node of the table's watermarks names it, and both nodes are
written in one transaction.

Deleting a MergeRollupTask deletes its watermarks. Merged segments stay merged, because their records name the level.
"""

from __future__ import annotations

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.manifests.store import ApplyOutcome, ApplyResult, Manifests
from merlot.cluster.records import ManifestRecord
from merlot.cluster.tasks.queue import MERGE_ROLLUP
from merlot.cluster.tasks.records import WatermarkRecord
from merlot.errors import ConflictError, InvalidInputError, NotFoundError
from merlot.ids import TableName, raw_name
from merlot.metastore.protocol import Create, Delete, Metastore, Node, Op, Put
from merlot.spec.manifest import ManifestProblem, dump, from_stored
from merlot.spec.tasks import MergeRollupTask

_ATTEMPTS = 20


class RollupRecord(ManifestRecord):
    """A MergeRollupTask as it was last applied."""

    table: TableName


ROLLUPS = Manifests(kind="MergeRollupTask", root=paths.ROLLUPS, path=paths.rollup_config, record=RollupRecord)

find_rollup = ROLLUPS.find
get_rollup = ROLLUPS.get
list_rollups = ROLLUPS.all
get_version = ROLLUPS.get_version
readable_versions = ROLLUPS.readable_versions


class RollupConflictError(InvalidInputError):
    """The manifest is valid, but cannot be applied to the present state."""

    def __init__(self, name: str, problem: ManifestProblem) -> None:
        super().__init__(f"MergeRollupTask cannot be applied name={name} problem={problem}")
        self.problems = (problem,)


def put_rollup(metastore: Metastore, manifest: MergeRollupTask, *, clock: Clock | None = None) -> RollupRecord:
    """Create or change a MergeRollupTask; raise RollupConflictError if its table changes, or has another
    MergeRollupTask already."""
    return apply_rollup(metastore, manifest, clock=clock).record


def apply_rollup(
    metastore: Metastore, manifest: MergeRollupTask, *, clock: Clock | None = None
) -> ApplyResult[RollupRecord]:
    """Apply a manifest as `put_rollup` does, and return the outcome too. Running it again changes nothing."""
    now_ms = (clock or SystemClock()).now_ms()

    def change(record: RollupRecord, version: int) -> ApplyResult[RollupRecord]:
        _check_same_table(record, manifest)
        return ROLLUPS.revise(metastore, record, version, dump(manifest), now_ms)

    return ROLLUPS.apply(metastore, manifest.metadata.name, lambda: _create(metastore, manifest, now_ms), change)


def check_rollup(metastore: Metastore, manifest: MergeRollupTask) -> ApplyOutcome:
    """Return what applying the manifest would do, without doing it. Raise RollupConflictError if it cannot be
    applied."""
    record = find_rollup(metastore, manifest.metadata.name)
    if record is not None:
        _check_same_table(record, manifest)
        return ApplyOutcome.UNCHANGED if record.manifest == dump(manifest) else ApplyOutcome.CONFIGURED
    _check_only_one(metastore, manifest, _watermarks_node(metastore, manifest.spec.table_name))
    return ApplyOutcome.CREATED


def delete_rollup(metastore: Metastore, name: str) -> None:
    """Delete a MergeRollupTask with its watermarks; the controller cancels its tasks. Raise NotFoundError if there is
    none."""
    for _ in range(_ATTEMPTS):
        path = paths.rollup_config(name)
        node = metastore.get(path)
        if node is None:
            raise NotFoundError(f"MergeRollupTask does not exist name={name}")
        record = ROLLUPS.read(name, node)
        ops: list[Op] = [Delete(path, node.version)]
        claim = _watermarks_node(metastore, record.table)
        if claim is not None and _read_watermarks(claim, record.table).rollup == name:
            ops.append(Delete(paths.task_metadata(MERGE_ROLLUP, record.table), claim.version))
        try:
            metastore.multi(ops)
            return
        except (ConflictError, NotFoundError):
            continue
    raise ConflictError(f"MergeRollupTask is written by too many to be deleted name={name}")


def spec_of(record: RollupRecord) -> MergeRollupTask:
    """Return the manifest of a record as a model."""
    return from_stored(record.manifest, MergeRollupTask)


def watermarks(metastore: Metastore, table: str) -> tuple[WatermarkRecord, int | None]:
    """Return the watermarks of the table's merges, and the node's version; empty watermarks and None if there is no
    node."""
    node = _watermarks_node(metastore, table)
    return (WatermarkRecord(), None) if node is None else (_read_watermarks(node, table), node.version)


def put_watermarks(table: str, record: WatermarkRecord, version: int | None) -> Op:
    """Return the op that writes the watermarks, unless the node has changed since it was read."""
    path = paths.task_metadata(MERGE_ROLLUP, table)
    return Create(path, record.to_bytes()) if version is None else Put(path, record.to_bytes(), version)


def _create(metastore: Metastore, manifest: MergeRollupTask, now_ms: int) -> RollupRecord:
    name, table = manifest.metadata.name, manifest.spec.table_name
    claim = _watermarks_node(metastore, table)
    _check_only_one(metastore, manifest, claim)
    record = RollupRecord(
        name=name, revision=1, table=table, manifest=dump(manifest), created_ms=now_ms, updated_ms=now_ms
    )
    claim_op = put_watermarks(table, WatermarkRecord(rollup=name), None if claim is None else claim.version)
    metastore.multi([Create(paths.rollup_config(name), record.to_bytes()), claim_op])
    return record


def _check_same_table(record: RollupRecord, manifest: MergeRollupTask) -> None:
    if record.table != manifest.spec.table_name:
        problem = ManifestProblem(
            "spec.table", f'cannot change; it is "{raw_name(record.table)}". Write another one instead'
        )
        raise RollupConflictError(record.name, problem)


def _check_only_one(metastore: Metastore, manifest: MergeRollupTask, claim: Node | None) -> None:
    if claim is None:
        return
    holder = _read_watermarks(claim, manifest.spec.table_name).rollup
    if holder and holder != manifest.metadata.name and find_rollup(metastore, holder) is not None:
        text = (
            f'table "{manifest.spec.table}" has the MergeRollupTask "{holder}" already; add levels to it, or delete it'
        )
        raise RollupConflictError(manifest.metadata.name, ManifestProblem("spec.table", text))


def _watermarks_node(metastore: Metastore, table: str) -> Node | None:
    return metastore.get(paths.task_metadata(MERGE_ROLLUP, table))


def _read_watermarks(node: Node, table: str) -> WatermarkRecord:
    return WatermarkRecord.from_bytes(node.data, paths.task_metadata(MERGE_ROLLUP, table))
