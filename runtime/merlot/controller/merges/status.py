"""Progress of a table's merges for users and programs: the JSON of `GET /rollups`. Pure.

The state of a MergeRollupTask is the first of these that holds: Waiting (no table), Refused (the table cannot be
merged), Suspended, Failing (a task failed for good), Running, Pending (merges are due, but the schedule has not begun a
run yet, or they wait until the table keeps fewer replacements), UpToDate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from merlot.cluster.tasks.queue import LevelTotals, TaskHistory, TaskProgress, TaskState
from merlot.controller.merges.facts import RollupFacts, RollupTask
from merlot.controller.merges.generator import Generated
from merlot.controller.merges.outlook import LevelOutlook
from merlot.ids import raw_name
from merlot.pinot.cluster_json import Json
from merlot.spec.tasks import MergeLevel

RECENT_TASKS = 10
"""Number of ended tasks in the detail."""
RUNNING_TASKS = 5
"""Number of running tasks that are listed."""
LAST_TASKS = 5
"""Number of ended tasks in the summary. The cluster's status has a summary of every MergeRollupTask."""


class RollupState(StrEnum):
    """State of a MergeRollupTask or of one of its levels. The module's docstring explains each."""

    WAITING = "Waiting"
    REFUSED = "Refused"
    SUSPENDED = "Suspended"
    FAILING = "Failing"
    RUNNING = "Running"
    PENDING = "Pending"
    UP_TO_DATE = "UpToDate"


Running = Mapping[str, TaskProgress | None]
"""Tasks that minions hold, by id, with the progress that they report."""


def summary(facts: RollupFacts, generated: Generated | None, history: TaskHistory, running: Running) -> Json:
    """Return the JSON of a MergeRollupTask without its queue. It has no member that changes while nothing happens, such
    as the time of the next run."""
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
            _level(level, by_level.get(level.key), _tasks_of_level(facts.tasks, level), history, state, running)
            for level in facts.spec.levels
        ],
        "running": _running_tasks(facts, running),
        "history": _ended_tasks(history, LAST_TASKS),
    }


def detail(summarized: Json, facts: RollupFacts, history: TaskHistory, running: Running) -> Json:
    """Return the summary, with the tasks of the queue and with more of the tasks that ended."""
    return {
        **summarized,
        "tasks": [_task(task, running) for task in facts.tasks],
        "history": _ended_tasks(history, RECENT_TASKS),
    }


def task_counts(tasks: Iterable[RollupTask], num_running: int) -> Json:
    """Return the member `tasks` of the cluster's status."""
    states = [task.state for task in tasks]
    queued = states.count(TaskState.QUEUED)
    return {
        "queued": max(0, queued - num_running),
        "running": num_running,
        "poisoned": states.count(TaskState.POISONED),
        "cancelled": states.count(TaskState.CANCELLED),
    }


def _ended_tasks(history: TaskHistory, number: int) -> list[Json]:
    return [task.model_dump(mode="json", by_alias=True) for task in history.tasks[:number]]


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
        return RollupState.RUNNING, _room_message(facts, generated)
    if generated is not None and (generated.tasks or generated.waits_for_room):
        return RollupState.PENDING, _room_message(facts, generated)
    return RollupState.UP_TO_DATE, _skipped_message(generated)


def _room_message(facts: RollupFacts, generated: Generated | None) -> str:
    """Return a message if merges that are due wait until the table keeps fewer replacements; empty if none waits."""
    if generated is None or not generated.waits_for_room:
        return ""
    assert facts.view is not None
    return (
        f"{len(facts.view.lineage)} replacements are kept, which is as many as a table can; merges go on as the grace "
        "period of the oldest ends (merlot controller --replaced-grace)"
    )


def _skipped_message(generated: Generated | None) -> str:
    """Return a message about segments that are not merged because of their times; empty if there are none."""
    if generated is None:
        return ""
    too_wide = max((outlook.too_wide for outlook in generated.levels), default=0)
    messages = []
    if generated.without_time:
        messages.append(f"{generated.without_time} segments are left alone: their times are not known; annotate them")
    if too_wide:
        messages.append(f"{too_wide} segments are left alone: they reach into too many buckets; is their time right?")
    return "; ".join(messages)


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


def _running_tasks(facts: RollupFacts, running: Running) -> list[Json]:
    """Return the progress of running tasks, rounded, since the whole status is written again with each change."""
    entries = []
    for task in facts.tasks:
        progress = running.get(task.id)
        if progress is None or task.state is not TaskState.QUEUED:
            continue
        percent = 100 * progress.rows // progress.rows_total // 10 * 10 if progress.rows_total else None
        entry = {"id": task.id, "level": task.config.level, "minion": progress.owner, "phase": progress.phase}
        entries.append({**entry, "percent": percent, "startedMs": progress.started_ms})
    return entries[:RUNNING_TASKS]


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
    progress = running.get(task.id)
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
    return shown | ({"progress": progress.model_dump(mode="json", by_alias=True)} if progress is not None else {})


def _tasks_of_level(tasks: Iterable[RollupTask], level: MergeLevel) -> list[RollupTask]:
    return [task for task in tasks if task.config.level.lower() == level.key]


def _last_error(facts: RollupFacts, history: TaskHistory) -> str:
    """Return the last error of a task in the queue; if none has one, that of the task that failed last."""
    queue_errors = (task.queued.record.last_error for task in facts.tasks if task.queued.record.last_error)
    return next(queue_errors, history.last_error)
