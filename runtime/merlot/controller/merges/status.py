"""How far the merges of a table are, for people and programs: the JSON of `GET /rollups`. Pure.

STATE of a MergeRollupTask, the first that holds: Waiting (no table), Refused (the table cannot be merged), Suspended,
Failing (a task failed for good), Running, Pending (there is work; the schedule has not called yet), UpToDate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from merlot.cluster.tasks.queue import LevelTotals, TaskHistory, TaskProgress, TaskState
from merlot.controller.merges.facts import RollupFacts, RollupTask
from merlot.controller.merges.generator import Generated
from merlot.controller.merges.outlook import LevelOutlook
from merlot.controller.status.pinot_json import Json
from merlot.ids import raw_name
from merlot.spec.tasks import MergeLevel

RECENT_TASKS = 10
RUNNING_TASKS = 5
"""In the status as well."""
LAST_TASKS = 5
"""In the status of the cluster, which holds those of all tables."""


class RollupState(StrEnum):
    """See above."""

    WAITING = "Waiting"
    REFUSED = "Refused"
    SUSPENDED = "Suspended"
    FAILING = "Failing"
    RUNNING = "Running"
    PENDING = "Pending"
    UP_TO_DATE = "UpToDate"


Running = Mapping[str, TaskProgress | None]
"""Tasks that minions hold, and what they say of them, by id."""


def summary(facts: RollupFacts, generated: Generated | None, history: TaskHistory, running: Running) -> Json:
    """What changes with the state alone: nothing here moves while nothing happens."""
    state, message = _state(facts, generated)
    outlooks = () if generated is None else generated.levels
    by_level = {outlook.level.key: outlook for outlook in outlooks}
    return {
        "name": facts.name,
        "table": raw_name(facts.record.table),
        "revision": facts.record.revision,
        "state": state,
        "message": message,
        "mode": facts.spec.mode,
        "schedule": facts.spec.schedule,
        "suspend": facts.spec.suspend,
        "createdMs": facts.record.created_ms,
        "lastRunMs": facts.watermarks.last_run_ms,
        "lastError": _last_error(facts, history),
        "lastErrorMs": history.last_error_ms,
        "segmentsWithoutTime": 0 if generated is None else generated.without_time,
        "levels": [
            _level(level, by_level.get(level.key), _of_level(facts.tasks, level), history, state, running)
            for level in facts.spec.levels
        ],
        "running": _under_way(facts, running),
        "history": _ended(history, LAST_TASKS),
    }


def detail(body: Json, facts: RollupFacts, history: TaskHistory, running: Running) -> Json:
    """The summary with the tasks of the queue and the last ones that ended."""
    return {
        **body,
        "tasks": [_task(task, running) for task in facts.tasks],
        "history": _ended(history, RECENT_TASKS),
    }


def task_counts(tasks: Iterable[RollupTask], running: int) -> Json:
    """The `tasks` member of the cluster's status."""
    states = [task.state for task in tasks]
    queued = states.count(TaskState.QUEUED)
    return {
        "queued": max(0, queued - running),
        "running": running,
        "poisoned": states.count(TaskState.POISONED),
        "cancelled": states.count(TaskState.CANCELLED),
    }


def _ended(history: TaskHistory, number: int) -> list[Json]:
    return [one.model_dump(mode="json", by_alias=True) for one in history.tasks[:number]]


def _state(facts: RollupFacts, generated: Generated | None) -> tuple[RollupState, str]:
    failed = [task for task in facts.tasks if task.state is TaskState.POISONED]
    if facts.view is None or facts.table is None:
        return RollupState.WAITING, facts.problem or ""
    if facts.problem is not None:
        return RollupState.REFUSED, facts.problem
    if facts.is_suspended:
        return RollupState.SUSPENDED, "spec.suspend is true" if facts.spec.suspend else "the table is suspended"
    if failed:
        text = (
            f"{len(failed)} tasks failed for good and are set aside; see the error, then POST /rollups/{facts.name}/run"
        )
        return RollupState.FAILING, text
    if any(task.is_unfinished for task in facts.tasks):
        return RollupState.RUNNING, _waiting(facts, generated)
    if generated is not None and (generated.tasks or generated.waits_for_room):
        return RollupState.PENDING, _waiting(facts, generated)
    return RollupState.UP_TO_DATE, _left_alone(generated)


def _waiting(facts: RollupFacts, generated: Generated | None) -> str:
    """Why what could be merged now is not."""
    if generated is None or not generated.waits_for_room:
        return ""
    assert facts.view is not None
    return (
        f"{len(facts.view.lineage)} replacements are kept, which is as many as a table can; merges go on as the grace "
        "period of the oldest ends (merlot controller --replaced-grace)"
    )


def _left_alone(generated: Generated | None) -> str:
    """What could be merged but for its times."""
    if generated is None:
        return ""
    too_wide = max((outlook.too_wide for outlook in generated.levels), default=0)
    told = []
    if generated.without_time:
        told.append(f"{generated.without_time} segments are left alone: their times are not known; annotate them")
    if too_wide:
        told.append(f"{too_wide} segments are left alone: they reach into too many buckets; is their time right?")
    return "; ".join(told)


def _level(
    level: MergeLevel,
    outlook: LevelOutlook | None,
    tasks: list[RollupTask],
    history: TaskHistory,
    state: RollupState,
    running: Running,
) -> Json:
    outlook = outlook or LevelOutlook(level=level)
    totals = history.totals.get(level.name, LevelTotals())
    return {
        "name": level.name,
        "mergeType": level.merge_type,
        "bucketTimePeriod": level.bucket_time_period,
        "bufferTimePeriod": level.buffer_time_period,
        "watermarkMs": outlook.watermark_ms,
        "delay": outlook.delay,
        "progress": _progress(outlook),
        "bucketsDone": outlook.buckets_done,
        "bucketsToDo": outlook.buckets_to_do,
        "segments": outlook.num_segments,
        "sizeBytes": outlook.num_bytes,
        "segmentsBehindWatermark": outlook.late_segments,
        "docsBehindWatermark": outlook.late_docs,
        "segmentsTooWide": outlook.too_wide,
        "state": _level_state(outlook, tasks, state),
        "tasksQueued": sum(task.state is TaskState.QUEUED for task in tasks),
        "tasksRunning": sum(task.state is TaskState.QUEUED and task.id in running for task in tasks),
        "tasksPoisoned": sum(task.state is TaskState.POISONED for task in tasks),
        "attempts": max((task.queued.record.attempts for task in tasks), default=0),
        "lastError": next((task.queued.record.last_error for task in tasks if task.queued.record.last_error), ""),
        "merged": totals.model_dump(mode="json", by_alias=True),
    }


def _progress(outlook: LevelOutlook) -> str:
    total = outlook.buckets_done + outlook.buckets_to_do
    return f"{outlook.buckets_done}/{total}" if total else ""


def _under_way(facts: RollupFacts, running: Running) -> list[Json]:
    """How far tasks are, roughly: the status that this is a part of is written anew with each change."""
    shown = []
    for task in facts.tasks:
        said = running.get(task.id)
        if said is None or task.state is not TaskState.QUEUED:
            continue
        percent = 100 * said.rows // said.rows_total // 10 * 10 if said.rows_total else None
        one = {"id": task.id, "level": task.config.level, "minion": said.owner, "phase": said.phase}
        shown.append({**one, "percent": percent, "startedMs": said.started_ms})
    return shown[:RUNNING_TASKS]


def _level_state(outlook: LevelOutlook, tasks: list[RollupTask], state: RollupState) -> RollupState:
    if state in (RollupState.WAITING, RollupState.REFUSED, RollupState.SUSPENDED):
        return state
    if any(task.state is TaskState.POISONED for task in tasks):
        return RollupState.FAILING
    if tasks:
        return RollupState.RUNNING
    return RollupState.PENDING if outlook.buckets_to_do else RollupState.UP_TO_DATE


def _task(task: RollupTask, running: Running) -> Json:
    record, config = task.queued.record, task.config
    said = running.get(task.id)
    is_running = task.id in running
    shown = {
        "id": task.id,
        "level": config.level,
        "state": "RUNNING" if is_running and task.state is TaskState.QUEUED else str(task.state),
        "windows": [list(window) for window in config.windows],
        "segments": len(config.inputs),
        "rows": config.num_records,
        "sizeBytes": config.num_bytes,
        "attempts": record.attempts,
        "lastError": record.last_error,
        "createdMs": record.created_ms,
        "notBeforeMs": record.not_before_ms,
    }
    return shown | ({"progress": said.model_dump(mode="json", by_alias=True)} if said is not None else {})


def _of_level(tasks: Iterable[RollupTask], level: MergeLevel) -> list[RollupTask]:
    return [task for task in tasks if task.config.level.lower() == level.key]


def _last_error(facts: RollupFacts, history: TaskHistory) -> str:
    """Of a task that is being tried again, or of the last one that was given up."""
    open_errors = (task.queued.record.last_error for task in facts.tasks if task.queued.record.last_error)
    return next(open_errors, history.last_error)
