"""Tasks of the kind UpsertCompactionTask, and which docs of their segments are valid, as servers tell.

A server that sees such a task tells once, in a node of the task's id, and takes it away when the task is no more. What
it tells is true for good: a doc that was replaced by a sealed row stays replaced.
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

UPSERT_COMPACTION: Final = "UpsertCompactionTask"
MAX_DOCS: Final = 5_000_000
"""Of a segment that is compacted: the bits of more are too large for a node."""


def task_of(table: TableName, config: CompactionConfig, now_ms: int) -> TaskRecord:
    """The task, whose id follows from the version of the segment: it is not queued twice."""
    return TaskRecord(
        id=f"{table}-{stable_hash(table, ','.join(config.segments))}",
        kind=UPSERT_COMPACTION,
        table=table,
        created_ms=now_ms,
        config=config_json(config),
    )


def config_json(config: CompactionConfig) -> dict[str, Any]:
    """The form that TaskRecord.config holds."""
    return config.model_dump(mode="json", by_alias=True)


def compaction_config(task: TaskRecord) -> CompactionConfig:
    """What the task does; raises CorruptionError if it is none that this version knows."""
    try:
        return CompactionConfig.model_validate(task.config)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise CorruptionError(f"task cannot be read id={task.id} problem={problem['msg']!r}") from error


def compactions_of(metastore: Metastore, table: TableName) -> list[QueuedTask]:
    """The table's tasks that have not ended."""
    if not metastore.children(paths.tasks(UPSERT_COMPACTION)):
        return []
    return [one for one in list_tasks(metastore, UPSERT_COMPACTION).values() if one.record.table == table]


def tell_valid_docs(
    metastore: Metastore, task_id: str, segment: str, num_docs: int, bitmap: bytes, instance: InstanceId
) -> None:
    """Say which docs are valid, unless somebody has."""
    docs = base64.b64encode(bitmap).decode()
    record = ValidDocsRecord(segment=segment, num_docs=num_docs, docs=docs, instance=instance)
    with suppress(ConflictError):
        metastore.create(paths.valid_docs(task_id), record.to_bytes())


def is_told(metastore: Metastore, task_id: str) -> bool:
    """Whether some server has said."""
    return metastore.get(paths.valid_docs(task_id)) is not None


def valid_docs(metastore: Metastore, task_id: str) -> tuple[ValidDocsRecord, bytes] | None:
    """What a server has said, and the bitmap; None if nobody has yet."""
    path = paths.valid_docs(task_id)
    node = metastore.get(path)
    if node is None:
        return None
    record = ValidDocsRecord.from_bytes(node.data, path)
    return record, base64.b64decode(record.docs)


def forget_valid_docs(metastore: Metastore, task_id: str) -> None:
    """The task is no more."""
    with suppress(NotFoundError):
        metastore.delete(paths.valid_docs(task_id))
