"""Tasks of the kind UpsertCompactionTask, and the valid docs of their segments, as servers report them.

A server that sees such a task reports them once, in a node of the task's id. The minion deletes the node when the task
is done; the controller deletes nodes of tasks that are gone. The report stays true: a doc that a sealed row has
replaced stays replaced.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any, Final

from pydantic import ValidationError

from merlot.cluster import paths
from merlot.cluster.tasks.queue import QueuedTask, TaskRecord, list_tasks, stable_hash
from merlot.cluster.tasks.records import CompactionConfig, ValidDocsRecord
from merlot.errors import ConflictError, CorruptionError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.values.stored_text import stored_bytes

UPSERT_COMPACTION: Final = "UpsertCompactionTask"
MAX_DOCS: Final = 5_000_000
"""Largest number of docs of a compacted segment: the bitmap of more is too large for a node."""


def task_of(table: TableName, config: CompactionConfig, now_ms: int) -> TaskRecord:
    """Return the task. Its id follows from the version of the segment, so it is not queued twice."""
    return TaskRecord(
        id=f"{table}-{stable_hash(table, ','.join(config.segments))}",
        kind=UPSERT_COMPACTION,
        table=table,
        created_ms=now_ms,
        config=config_json(config),
    )


def config_json(config: CompactionConfig) -> dict[str, Any]:
    """Return the form that TaskRecord.config holds."""
    return config.model_dump(mode="json", by_alias=True)


def table_of(task_id: str) -> TableName:
    """Return the table of a task by the task's id, also if the task cannot be read."""
    return TableName(task_id.rpartition("-")[0])


def compaction_config(task: TaskRecord) -> CompactionConfig:
    """Return the config of a task; raise CorruptionError if this version cannot read it."""
    try:
        return CompactionConfig.model_validate(task.config)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise CorruptionError(f"task cannot be read id={task.id} problem={problem['msg']!r}") from error


def compactions_of(metastore: Metastore, table: TableName) -> list[QueuedTask]:
    """Return the table's tasks that have not ended."""
    if not metastore.children(paths.tasks(UPSERT_COMPACTION)):
        return []
    return [task for task in list_tasks(metastore, UPSERT_COMPACTION).values() if task.record.table == table]


def report_valid_docs(
    metastore: Metastore, task_id: str, segment: str, num_docs: int, bitmap: bytes, instance: InstanceId
) -> None:
    """Report which docs are valid, unless a server has done so."""
    docs = base64.b64encode(bitmap).decode()
    record = ValidDocsRecord(segment=segment, num_docs=num_docs, docs=docs, instance=instance)
    with suppress(ConflictError):
        metastore.create(paths.valid_docs(task_id), record.to_bytes())


def is_reported(metastore: Metastore, task_id: str) -> bool:
    """Return True if some server has reported the valid docs."""
    return metastore.get(paths.valid_docs(task_id)) is not None


def valid_docs(metastore: Metastore, task_id: str) -> tuple[ValidDocsRecord, bytes] | None:
    """Return the report of a server, and the bitmap; None if there is none yet. Raise CorruptionError if it cannot be
    read."""
    path = paths.valid_docs(task_id)
    node = metastore.get(path)
    if node is None:
        return None
    record = ValidDocsRecord.from_bytes(node.data, path)
    return record, stored_bytes(record.docs, f"report of valid docs at {path}")


def forget_valid_docs(metastore: Metastore, task_id: str) -> None:
    """Delete the report of a task that is gone."""
    with suppress(NotFoundError):
        metastore.delete(paths.valid_docs(task_id))
