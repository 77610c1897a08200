"""Status of an upsert table's compactions, for operators to watch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from merlot.cluster.tasks.queue import QueuedTask
from merlot.cluster.tasks.records import MERGE_LEVEL, CompactionConfig, LevelTotals, TaskHistory, TaskState
from merlot.controller.status.upserts import rounded
from merlot.pinot.cluster_json import Json
from merlot.spec.upserting import CompactionSpec

MIN_FAILED_ATTEMPTS: Final = 3
"""Failed attempts after which a task counts as failing. Fewer are normal while a server or a store is away."""


def compaction_status(spec: CompactionSpec | None, history: TaskHistory, tasks: Sequence[QueuedTask]) -> Json | None:
    """Return the member `compaction` of a table's upserts; None if it has none. tasks: those that have not ended."""
    if spec is None:
        return None
    totals = history.totals.get(CompactionConfig.model_fields["level"].default, LevelTotals())
    merges = history.totals.get(MERGE_LEVEL, LevelTotals())
    failing = sorted(
        (task.record for task in tasks if task.record.attempts >= MIN_FAILED_ATTEMPTS or _is_poisoned(task)),
        key=lambda record: (-record.attempts, record.id),
    )
    return {
        "suspended": spec.suspend,
        "rewritten": rounded(totals.segments_after),
        "removed": rounded(totals.segments_before - totals.segments_after),
        "merged": rounded(merges.segments_before - merges.segments_after),
        "rowsRemoved": rounded(sum(level.rows_before - level.rows_after for level in (totals, merges))),
        "failing": len(failing),
        "error": _error_text(failing[0].config.get("segment", ""), failing[0].last_error) if failing else "",
    }


def _is_poisoned(task: QueuedTask) -> bool:
    return task.record.state is TaskState.POISONED


def _error_text(segment: object, error: str) -> str:
    return f"segment={segment} cause={error}"
