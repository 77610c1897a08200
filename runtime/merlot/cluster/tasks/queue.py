"""Queue of the tasks that minions run: created, run under a lease, retried, set aside (poisoned), cancelled, ended.

A task is a node. Its id is derived from its work, so that the same work is never queued twice. The runner of a task
holds the lease `lease_name(kind, id)`, and fences its writes with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from merlot.cluster import paths
from merlot.cluster.instances.leases import holder
from merlot.cluster.tasks.records import (
    AggregationRecord,
    EndedTask,
    LevelTotals,
    MergeTaskConfig,
    TaskHistory,
    TaskOutcome,
    TaskProgress,
    TaskRecord,
    TaskState,
    WatermarkRecord,
    Window,
)
from merlot.errors import ConflictError, CorruptionError, NotFoundError
from merlot.metastore.protocol import Check, Create, Delete, Metastore, Op, Put
from merlot.spec.tasks import KIND as MERGE_ROLLUP
from merlot.spec.tasks import Executor

__all__ = [
    "MERGE_ROLLUP",
    "AggregationRecord",
    "Backoff",
    "EndedTask",
    "LevelTotals",
    "MergeTaskConfig",
    "QueuedTask",
    "TaskHistory",
    "TaskOutcome",
    "TaskProgress",
    "TaskRecord",
    "TaskState",
    "WatermarkRecord",
    "Window",
    "cancel",
    "create_missing",
    "end",
    "fail",
    "find_task",
    "history",
    "lease_name",
    "list_readable",
    "list_tasks",
    "merge_config",
    "needs_spark",
    "owner_of",
    "progress",
    "retry",
    "shard_tasks",
    "stable_hash",
    "whole_of",
    "write_progress",
]

MAX_ATTEMPTS = 5
HISTORY_LENGTH = 50
MAX_ERROR_CHARS = 2_000
MAX_MULTI_BYTES = 512 * 1024
_ATTEMPTS = 20
_MOST_DOUBLINGS = 30
_PART = re.compile(r"\d+of\d+")


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task and the version that a compare-and-set must present."""

    record: TaskRecord
    version: int


def lease_name(kind: str, task_id: str) -> str:
    """Return the name of the lease that the runner of a task holds."""
    return f"task-{kind}-{task_id}"


def owner_of(metastore: Metastore, task: TaskRecord) -> str | None:
    """Return the runner of a task; None if nobody runs it."""
    return holder(metastore, lease_name(task.kind, task.id))


def stable_hash(*parts: object) -> str:
    """Return a hash of the parts, sixteen hexadecimal digits that are the same in every process."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode())
    return digest.hexdigest()[:16]


def merge_config(task: TaskRecord) -> MergeTaskConfig:
    """Return the config of a task of kind MergeRollupTask; raise CorruptionError if this version cannot read it."""
    try:
        return MergeTaskConfig.model_validate(task.config)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise CorruptionError(
            f"task cannot be read id={task.id} at={problem['loc']} problem={problem['msg']!r}"
        ) from error


def needs_spark(task: TaskRecord) -> bool:
    """Return True if running the task needs Spark. Undoing it does not, nor does setting it aside because this version
    cannot read it."""
    if task.kind != MERGE_ROLLUP or task.state is not TaskState.QUEUED:
        return False
    try:
        config = merge_config(task)
    except CorruptionError:
        return False
    return config.executor is Executor.SPARK and config.num_shards > 1


def config_json(config: MergeTaskConfig) -> dict[str, Any]:
    """Return the form that TaskRecord.config holds."""
    return config.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def shard_tasks(task: TaskRecord, shuffle: str, now_ms: int) -> tuple[TaskRecord, ...]:
    """Return a task for each shard that a shuffle has made. Shard tasks wait until the task that shuffled has ended:
    see `whole_of`."""
    config = merge_config(task)
    return tuple(
        TaskRecord(
            id=f"{task.id}-{shard}of{config.num_shards}",
            kind=task.kind,
            table=task.table,
            created_ms=now_ms,
            config=config_json(config.model_copy(update={"shard": shard, "shuffle": shuffle})),
        )
        for shard in range(config.num_shards)
    )


def whole_of(task_id: str) -> str | None:
    """Return the id of the task that a shard's task was split from; None for any other task."""
    whole, _, part = task_id.rpartition("-")
    return whole if _PART.fullmatch(part) else None


def create_missing(metastore: Metastore, tasks: Sequence[TaskRecord], fence: Check) -> None:
    """Queue tasks of one kind that are not queued already.

    Each may name thousands of segments, so that one transaction may not hold all of them. No runner may begin one of
    the tasks before all are queued."""
    present = set(metastore.children(paths.tasks(tasks[0].kind)))
    chunk: list[Op] = []
    size = 0
    for op in (creation(task) for task in tasks if task.id not in present):
        if chunk and size + len(op.data) > MAX_MULTI_BYTES:
            metastore.multi([fence, *chunk])
            chunk, size = [], 0
        chunk.append(op)
        size += len(op.data)
    if chunk:
        metastore.multi([fence, *chunk])


def find_task(metastore: Metastore, kind: str, task_id: str) -> QueuedTask | None:
    """Return one task, or None."""
    path = paths.task(kind, task_id)
    node = metastore.get(path)
    return None if node is None else QueuedTask(TaskRecord.from_bytes(node.data, path), node.version)


def list_tasks(metastore: Metastore, kind: str) -> Mapping[str, QueuedTask]:
    """Return all tasks that have not ended, by id. Raise CorruptionError if this version cannot read one of them."""
    readable, unreadable = list_readable(metastore, kind)
    for error in unreadable.values():
        raise error
    return readable


def list_readable(metastore: Metastore, kind: str) -> tuple[Mapping[str, QueuedTask], Mapping[str, CorruptionError]]:
    """Return the tasks that this version can read, and what is wrong with the others, by id."""
    ids = metastore.children(paths.tasks(kind))
    task_paths = [paths.task(kind, task_id) for task_id in ids]
    readable: dict[str, QueuedTask] = {}
    unreadable: dict[str, CorruptionError] = {}
    for task_id, path, node in zip(ids, task_paths, metastore.get_many(task_paths), strict=True):
        if node is None:
            continue
        try:
            readable[task_id] = QueuedTask(TaskRecord.from_bytes(node.data, path), node.version)
        except CorruptionError as error:
            unreadable[task_id] = error
    return readable, unreadable


def creation(task: TaskRecord) -> Create:
    """Return the op that queues a task; it conflicts if the task exists."""
    return Create(paths.task(task.kind, task.id), task.to_bytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Attempts at a task, and the pauses between them in milliseconds; each is twice as long as the one before."""

    most_attempts: int = MAX_ATTEMPTS
    first_ms: int = 5_000
    longest_ms: int = 300_000

    def pause_ms(self, attempts: int) -> int:
        """Return the pause after this number of attempts."""
        return min(self.longest_ms, self.first_ms << min(max(attempts - 1, 0), _MOST_DOUBLINGS))


_BACKOFF: Final = Backoff()


def fail(
    metastore: Metastore,
    task: QueuedTask,
    error: str,
    now_ms: int,
    fence: Check,
    backoff: Backoff = _BACKOFF,
) -> TaskRecord:
    """Note a failed attempt: retry after a growing pause, or set the task aside after the last attempt. Return the task
    as it is now."""
    record = task.record
    attempts = record.attempts + 1
    is_poisoned = attempts >= backoff.most_attempts
    changed = record.model_copy(
        update={
            "attempts": attempts,
            "last_error": error[:MAX_ERROR_CHARS],
            "not_before_ms": now_ms + backoff.pause_ms(attempts),
            "state": TaskState.POISONED if is_poisoned else record.state,
        }
    )
    put = Put(paths.task(record.kind, record.id), changed.to_bytes(), task.version)
    if not is_poisoned:
        metastore.multi([fence, put])
        return changed
    ended = EndedTask(
        id=record.id,
        outcome=TaskOutcome.POISONED,
        level=str(record.config.get("level", "")),
        ended_ms=now_ms,
        attempts=attempts,
        error=changed.last_error,
    )
    _write_with_history(metastore, record, ended, [fence, put])
    return changed


def end(metastore: Metastore, task: QueuedTask, ended: EndedTask, fence: Check) -> None:
    """Delete a task that is done and note it in the table's history, in one transaction.

    Raise ConflictError if the task was changed (cancelled) meanwhile, or the fence is lost."""
    deletion = Delete(paths.task(task.record.kind, task.record.id), task.version)
    _write_with_history(metastore, task.record, ended, [fence, deletion])
    with contextlib.suppress(NotFoundError):
        metastore.delete(paths.task_progress(task.record.kind, task.record.id))


def cancel(metastore: Metastore, task: QueuedTask, fence: Check | None = None) -> None:
    """Request that a task be undone; its runner sees the change of its node."""
    if task.record.state is TaskState.CANCELLED:
        return
    changed = task.record.model_copy(update={"state": TaskState.CANCELLED, "not_before_ms": -1})
    put = Put(paths.task(task.record.kind, task.record.id), changed.to_bytes(), task.version)
    metastore.multi([put] if fence is None else [fence, put])


def retry(metastore: Metastore, task: QueuedTask) -> None:
    """Put a task that was set aside back into the queue, with all of its attempts."""
    update = {"state": TaskState.QUEUED, "attempts": 0, "broken_off": (), "not_before_ms": -1}
    changed = task.record.model_copy(update=update)
    metastore.put(paths.task(task.record.kind, task.record.id), changed.to_bytes(), task.version)


def progress(metastore: Metastore, kind: str, task_id: str) -> TaskProgress | None:
    """Return the progress that the task's runner last wrote; None if it wrote none."""
    path = paths.task_progress(kind, task_id)
    node = metastore.get(path)
    return None if node is None else TaskProgress.from_bytes(node.data, path)


def write_progress(metastore: Metastore, kind: str, task_id: str, record: TaskProgress) -> None:
    """Write the progress of a task; the last writer wins. Best effort: nothing is written after too many conflicts."""
    path = paths.task_progress(kind, task_id)
    for _ in range(_ATTEMPTS):
        node = metastore.get(path)
        try:
            if node is None:
                metastore.create(path, record.to_bytes())
            else:
                metastore.put(path, record.to_bytes(), node.version)
            return
        except (ConflictError, NotFoundError):
            continue


def history(metastore: Metastore, kind: str, table: str) -> TaskHistory:
    """Return the table's ended tasks."""
    path = paths.task_history(kind, table)
    node = metastore.get(path)
    return TaskHistory() if node is None else TaskHistory.from_bytes(node.data, path)


def _write_with_history(metastore: Metastore, task: TaskRecord, ended: EndedTask, ops: Sequence[Op]) -> None:
    """Apply the ops and add a task to the history. All tasks of a table share the history: if another task
    writes to it meanwhile, it is read again."""
    path = paths.task_history(task.kind, task.table)
    for _ in range(_ATTEMPTS):
        node = metastore.get(path)
        if node is None:
            with contextlib.suppress(ConflictError):
                metastore.create(path, TaskHistory().to_bytes())
            continue
        record = _with_ended(TaskHistory.from_bytes(node.data, path), ended)
        try:
            metastore.multi([*ops, Put(path, record.to_bytes(), node.version)])
            return
        except ConflictError:
            current = metastore.get(path)
            if current is not None and current.version == node.version:
                raise
    raise ConflictError(f"history is written by too many at once table={task.table}")


def _with_ended(record: TaskHistory, ended: EndedTask) -> TaskHistory:
    update: dict[str, Any] = {"tasks": (ended, *record.tasks)[:HISTORY_LENGTH]}
    if ended.outcome is TaskOutcome.SUCCEEDED:
        update["totals"] = {**record.totals, ended.level: record.totals.get(ended.level, LevelTotals()).plus(ended)}
    if ended.error:
        update |= {"last_error": ended.error, "last_error_ms": ended.ended_ms}
    return record.model_copy(update=update)
