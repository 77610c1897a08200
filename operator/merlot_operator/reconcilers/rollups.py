"""Reconcile one MergeRollupTask: write its config to shared state, and the progress of its merges to its status."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from merlot.cluster.manifests import rollups as shared_rollups
from merlot.errors import InvalidInputError, MerlotError, UnavailableError
from merlot.spec import manifest
from merlot.spec.tasks import MergeRollupTask
from merlot_operator.context import ReconcileContext
from merlot_operator.controllers.statuses import ClusterStatus
from merlot_operator.kube import pods as pod_facts
from merlot_operator.kube.events import timestamp_or_none
from merlot_operator.kube.kinds import (
    COMPONENT,
    PODS,
    RETRY,
    ROLLUPS,
    TABLES,
    Object,
    annotations_of,
    as_written,
    is_deleting,
    name_of,
)
from merlot_operator.manifests.parts import MINION
from merlot_operator.reconcilers.finalizers import ensure_finalizer, forget
from merlot_operator.status.conditions import Condition, Json
from merlot_operator.status.reporting import write_status
from merlot_operator.status.table_facts import Refusal

_LOG = logging.getLogger(__name__)

WAITING_S = 5.0
UP_TO_DATE, FAILING = "UpToDate", "Failing"
UNKNOWN_TASK = "the controller does not know it yet"
LEVEL_FIELDS = (
    *("progress", "bucketsDone", "bucketsToDo", "segments", "sizeBytes", "segmentsBehindWatermark"),
    *("tasksQueued", "tasksRunning", "tasksPoisoned", "lastError"),
)


async def reconcile_rollup(context: ReconcileContext, namespace: str, name: str) -> float | None:
    """Run one pass. Return in how many seconds to look again, or None if the object is gone."""
    body = context.store.get(ROLLUPS, namespace, name)
    if body is None:
        return None
    if is_deleting(body):
        await forget(context, body, shared_rollups.delete_rollup)
        return None
    body = await ensure_finalizer(context, body)
    refusal, problem, revision = None, None, body.get("status", {}).get("revision")
    try:
        task = manifest.load_document(as_written(body), MergeRollupTask)
        record = await context.metastores.call(namespace, lambda store: shared_rollups.put_rollup(store, task))
        revision = record.revision
    except manifest.ManifestError as error:
        refusal = Refusal("Invalid", "; ".join(map(str, error.problems)))
    except InvalidInputError as error:
        refusal = Refusal("Refused", str(error))
    except MerlotError as error:
        problem = f"{error}; see that ZooKeeper runs at {context.config.metastore_of(namespace)}"
    has_table = context.store.get(TABLES, namespace, body["spec"]["table"]) is not None
    cluster = context.statuses.of(namespace)
    minions = context.store.with_label(PODS, namespace, COMPONENT, MINION)
    conditions = rollup_conditions(name, has_table, refusal, problem, cluster, minions)
    status = rollup_status(body, revision, cluster) | await _retried(context, body)
    await write_status(context, body, conditions, status)
    return WAITING_S if problem else context.config.resync_s


async def _retried(context: ReconcileContext, body: Object) -> Json:
    """Retry failed tasks if the annotation asks for it; return the annotation's value that was acted upon. If the
    controller does not answer, the next pass asks again."""
    name, namespace = name_of(body), body["metadata"]["namespace"]
    wanted, done = annotations_of(body).get(RETRY, ""), (body.get("status") or {}).get("retriedAt", "")
    if wanted and wanted != done and name in context.statuses.of(namespace).rollups:
        try:
            await context.statuses.retry_rollup(namespace, name)
        except UnavailableError as error:
            _LOG.warning("tasks are not retried yet rollup=%s/%s cause=%s", namespace, name, error)
        else:
            await context.events.normal(body, "Retried", "tasks that failed for good are tried again")
            done = wanted
    return {"retriedAt": done} if done else {}


def rollup_conditions(
    name: str,
    has_table: bool,
    refusal: Refusal | None,
    problem: str | None,
    cluster: ClusterStatus,
    minions: Sequence[Object] = (),
) -> list[Condition]:
    """Return all conditions. Pure."""
    answer = cluster.rollups.get(name)
    state = "" if answer is None else str(answer["state"])
    message = "" if answer is None else _message(name, answer)
    accepted = (
        Condition("Accepted", True, "Valid")
        if refusal is None
        else Condition("Accepted", False, refusal.reason, refusal.message)
    )
    return [
        accepted,
        _ready(has_table, refusal, problem, cluster, (state, message)),
        Condition("Progressing", state in ("Running", "Pending"), state or "Waiting"),
        _degraded(refusal, problem, (state, message), pod_facts.problems(minions)),
        Condition("TaskSucceeded", _succeeded(state), state or "Waiting", message),
    ]


def rollup_status(body: Object, revision: int | None, cluster: ClusterStatus) -> Json:
    """Return the status without its conditions. Pure."""
    answer = cluster.rollups.get(name_of(body))
    status: Json = {"table": body["spec"]["table"]}
    if revision is not None:
        status["revision"] = revision
    if answer is None:
        retained = (
            *("state", "message", "level", "watermark", "delay", "progress", "nextRun", "running"),
            *("lastRun", "lastError", "levels", "history"),
        )
        before = {} if cluster.is_known else body.get("status") or {}
        return status | {name: before[name] for name in retained if name in before}
    levels = [_level(level) for level in answer["levels"]]
    now = next((level for level in levels if level["state"] != UP_TO_DATE), levels[-1] if levels else {})
    status |= {
        "state": answer["state"],
        "message": _message(name_of(body), answer) if answer["state"] == FAILING else answer.get("message"),
        "level": now.get("name"),
        "watermark": now.get("watermark"),
        "delay": now.get("delay"),
        "progress": now.get("progress"),
        "nextRun": timestamp_or_none(answer.get("nextRunMs")),
        "running": [_running(task) for task in answer.get("running") or ()],
        "lastRun": timestamp_or_none(answer.get("lastRunMs")),
        "lastError": answer.get("lastError"),
        "levels": levels,
        "history": [_run(task) for task in answer.get("history") or ()],
    }
    return {name: value for name, value in status.items() if value not in (None, "", [])}


def _message(name: str, answer: Mapping[str, Any]) -> str:
    """Return the controller's message; for tasks that failed for good, what to do with kubectl."""
    if answer["state"] != FAILING:
        return str(answer.get("message") or answer.get("lastError") or "")
    num_failed = sum(level.get("tasksPoisoned") or 0 for level in answer["levels"])
    step = f'kubectl annotate rollup {name} {RETRY}="$(date)" --overwrite'
    return f"{num_failed} tasks failed for good: {answer.get('lastError') or 'see the history'}; to try again: {step}"


def _level(answer: Mapping[str, Any]) -> Json:
    level: Json = {
        "name": answer["name"],
        "state": answer["state"],
        "watermark": timestamp_or_none(answer.get("watermarkMs")),
    }
    level["delay"] = answer.get("delay")
    level |= {name: answer.get(name) for name in LEVEL_FIELDS}
    return {name: value for name, value in level.items() if value not in (None, "")}


def _running(answer: Mapping[str, Any]) -> Json:
    """Return the status entry of a task that a minion works on."""
    task = {name: answer.get(name) for name in ("id", "level", "minion", "phase", "percent")}
    task["started"] = timestamp_or_none(answer.get("startedMs"))
    return {name: value for name, value in task.items() if value not in (None, "")}


def _run(answer: Mapping[str, Any]) -> Json:
    """Return the status entry of a task that has ended."""
    windows, started_ms, ended_ms = answer.get("windows") or (), answer.get("startedMs"), answer.get("endedMs")
    run: Json = {"id": answer["id"], "outcome": answer["outcome"], "level": answer.get("level")}
    if windows:
        run |= {"start": timestamp_or_none(windows[0][0]), "end": timestamp_or_none(windows[-1][1])}
    if started_ms is not None and ended_ms is not None and 0 <= started_ms <= ended_ms:
        run["seconds"] = round((ended_ms - started_ms) / 1000)
    run |= {
        "finished": timestamp_or_none(ended_ms),
        "attempts": answer.get("attempts"),
        "error": str(answer.get("error") or "")[:2000],
    }
    for what in ("segments", "rows", "bytes"):
        run |= {f"{what}In": answer.get(f"{what}Before"), f"{what}Out": answer.get(f"{what}After")}
    return {name: value for name, value in run.items() if value not in (None, "")}


def _ready(
    has_table: bool, refusal: Refusal | None, problem: str | None, cluster: ClusterStatus, said: tuple[str, str]
) -> Condition:
    state, message = said
    if refusal is not None:
        return Condition("Ready", False, "NotAccepted", "it is not accepted; see condition Accepted")
    if problem is not None:
        return Condition("Ready", False, "MetastoreUnavailable", problem)
    if not has_table:
        return Condition("Ready", False, "NoTable", "waits for its Table: apply it")
    if not state:
        return Condition("Ready", False, "ControllerUnavailable", cluster.problem or UNKNOWN_TASK)
    if state in ("Waiting", "Refused", "Suspended", FAILING):
        return Condition("Ready", False, state, message)
    return Condition("Ready", True, state, message)


def _degraded(
    refusal: Refusal | None, problem: str | None, said: tuple[str, str], troubles: Sequence[pod_facts.PodProblem]
) -> Condition:
    state, message = said
    if refusal is not None:
        return Condition("Degraded", True, refusal.reason, refusal.message)
    if problem is not None:
        return Condition("Degraded", True, "MetastoreUnavailable", problem)
    if state in (FAILING, "Refused"):
        return Condition("Degraded", True, state, message)
    if state == "Running" and troubles:
        return Condition("Degraded", True, troubles[0].reason, troubles[0].message)
    return Condition("Degraded", False, "AsDeclared")


def _succeeded(state: str) -> bool | None:
    return {UP_TO_DATE: True, FAILING: False}.get(state)
