"""One pass of a MergeRollupTask: cancel tasks that must not run, and queue what is to be done next. Blocks.

Tasks and watermarks are written in one transaction, which fails if the manifest, the segments or the watermarks are not
what the decision was based on. So any number of passes may run at once, in any process.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from merlot import telemetry
from merlot.cluster import paths
from merlot.cluster.manifests import rollups
from merlot.cluster.manifests.rollups import RollupRecord
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import QueuedTask, TaskState
from merlot.cluster.tasks.records import TaskRecord
from merlot.cluster.tasks.settings import is_outdated
from merlot.controller.merges.facts import RollupFacts, RollupReader, RollupTask
from merlot.controller.merges.tasks import is_task_of
from merlot.errors import ConflictError, NotFoundError
from merlot.metastore.protocol import Check, Delete, Metastore, Op

_LOG = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 700_000
"""Most bytes of tasks in one transaction. Further tasks wait for the next pass."""

_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class PassResult:
    """Outcome of a pass."""

    created: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    waits_for_room: bool = False
    """True if more can be done as soon as the table keeps fewer replacements."""


def run_pass(metastore: Metastore, reader: RollupReader, facts: RollupFacts, fence: Check | None = None) -> PassResult:
    """Look, decide and write; repeat if something changed meanwhile. Raise ConflictError if it keeps changing."""
    for attempt in range(_ATTEMPTS):
        cancelled = _cancel(metastore, facts, fence)
        if facts.problem is not None or facts.is_suspended:
            return PassResult(cancelled=cancelled)
        generated = reader.decide(facts)
        chosen = fitting(generated.tasks)
        if not chosen:
            return PassResult(cancelled=cancelled, waits_for_room=generated.waits_for_room)
        try:
            metastore.multi(_writes(facts, chosen, generated.watermarks, fence))
        except ConflictError:
            if attempt == _ATTEMPTS - 1 or _is_lost(metastore, fence):
                raise
            facts = reader.get(facts.name)
            continue
        for task in chosen:
            telemetry.CONTROLLER_MERGE_TASKS.labels(facts.record.table, str(task.config["level"])).inc()
            _LOG.info("merge task queued table=%s task=%s", facts.record.table, task.id)
        return PassResult(tuple(task.id for task in chosen), cancelled, generated.waits_for_room)
    raise AssertionError("unreachable")


def fitting(tasks: Sequence[TaskRecord]) -> list[TaskRecord]:
    """Return the first tasks, as many as fit one transaction, but at least one."""
    chosen: list[TaskRecord] = []
    size = 0
    for task in tasks:
        size += len(task.to_bytes())
        if chosen and size > MAX_QUEUED_BYTES:
            break
        chosen.append(task)
    return chosen


def clean_up(
    metastore: Metastore,
    declared: Mapping[str, RollupRecord],
    fence: Check | None,
    unreadable: Set[str] = frozenset(),
) -> None:
    """Remove what deleted MergeRollupTasks and tables left behind.

    Tasks of a MergeRollupTask that is gone are cancelled. Tasks of a table that is gone end, unless a minion has them;
    the table's deletion finds what they leave. The history goes for tables that have no MergeRollupTask and no task.
    `unreadable` names the MergeRollupTasks whose tables are not known."""
    readable, damaged = queue.list_readable(metastore, queue.MERGE_ROLLUP)
    queued = readable.values()
    existing = metastore.children(paths.TABLES) if queued else []
    for task in queued:
        if task.record.table not in existing and queue.owner_of(metastore, task.record) is None:
            _end_unrun(metastore, task, fence)
    for task in queued:
        is_orphan = task.record.config.get("rollup") not in declared.keys() | unreadable
        if is_orphan and task.record.state is not TaskState.CANCELLED:
            _cancel_one(metastore, task, fence)
    in_use = {str(record.table) for record in declared.values()} | {str(task.record.table) for task in queued}
    for table in metastore.children(paths.child(paths.TASK_HISTORY, queue.MERGE_ROLLUP)) if not unreadable else ():
        if table not in in_use and not any(is_task_of(task_id, table) for task_id in damaged):
            with contextlib.suppress(NotFoundError):
                metastore.delete(paths.task_history(queue.MERGE_ROLLUP, table))


def retry_failed(metastore: Metastore, facts: RollupFacts) -> tuple[str, ...]:
    """Retry all tasks that failed for good; return their ids."""
    failed = [task for task in facts.tasks if task.state is TaskState.POISONED]
    for task in failed:
        queue.retry(metastore, task.queued)
    return tuple(task.id for task in failed)


def _cancel(metastore: Metastore, facts: RollupFacts, fence: Check | None) -> tuple[str, ...]:
    """Cancel tasks that must not run; return their ids.

    Their manifest is suspended or has changed, their table is gone, or their segments are."""
    doomed = [task for task in facts.tasks if task.state is not TaskState.CANCELLED and _is_doomed(facts, task)]
    return tuple(task.id for task in doomed if _cancel_one(metastore, task.queued, fence))


def _cancel_one(metastore: Metastore, queued: QueuedTask, fence: Check | None) -> bool:
    """Cancel a task. Return False if it ended, or changed, in the meantime."""
    try:
        queue.cancel(metastore, queued, fence)
    except (ConflictError, NotFoundError):
        if _is_lost(metastore, fence):
            raise
        return False
    _LOG.info("merge task cancelled table=%s task=%s", queued.record.table, queued.record.id)
    return True


def _end_unrun(metastore: Metastore, task: QueuedTask, fence: Check | None) -> None:
    """Delete a task that no minion has. A minion that takes it at this moment finds no table, and then no task."""
    gone = Delete(paths.task(task.record.kind, task.record.id), task.version)
    with contextlib.suppress(ConflictError, NotFoundError):
        metastore.multi([gone] if fence is None else [fence, gone])
        _LOG.info("merge task ended, its table is gone table=%s task=%s", task.record.table, task.record.id)


def _is_doomed(facts: RollupFacts, task: RollupTask) -> bool:
    if task.state is TaskState.POISONED:
        return facts.is_obsolete(task) or task.config.revision != facts.record.revision
    return facts.is_suspended or facts.is_obsolete(task) or is_outdated(task.config, facts.spec)


def _writes(
    facts: RollupFacts, chosen: Sequence[TaskRecord], levels: Mapping[str, int], fence: Check | None
) -> list[Op]:
    assert facts.view is not None
    assert facts.table is not None
    watermarks = facts.watermarks.model_copy(
        update={
            "rollup": facts.name,
            "table_created_ms": facts.table.created_ms,
            "levels": levels,
            "last_run_ms": facts.now_ms,
        }
    )
    return [
        *([] if fence is None else [fence]),
        Check(paths.rollup_config(facts.name), facts.version),
        Check(paths.segments_root(facts.record.table), facts.view.version),
        *(queue.creation(task) for task in chosen),
        rollups.put_watermarks(facts.record.table, watermarks, facts.watermarks_version),
    ]


def _is_lost(metastore: Metastore, fence: Check | None) -> bool:
    if fence is None:
        return False
    node = metastore.get(fence.path)
    return node is None or node.version != fence.version
