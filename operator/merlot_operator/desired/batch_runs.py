"""Batch runs: which Jobs there shall be, and how they ended. Pure.

The status is the log. A run is written there before its Job is created, and a run that ended there is never repeated,
so neither a restart of the operator nor the Job's removal after a while runs anything twice. A run without a Job gets
one (again): publishing the same segments twice is publishing them once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merlot.spec.ingestion import BatchIngestion
from merlot.spec.status import BatchRunState as State
from merlot.values import schedules
from merlot.values.periods import DAY_MS
from merlot_operator.kube import pods as pod_facts
from merlot_operator.kube.events import ms_of, timestamp
from merlot_operator.kube.kinds import Object, digest, fit, is_deleting, name_of

KEPT_RUNS = 5
"""Number of runs that the status keeps per batch source, the newest first."""
MAX_JOB_NAME = 41
"""Longest name of a Job. Executors are named after the driver's pod, which has the Job's name and six characters, in at
most 47."""
NO_POD_MS = 60_000
REPORT_MS = 20_000
"""Time in milliseconds after a Job's end within which the end of its driver's pod becomes visible."""
DEFAULT_RETRIES = 6
"""Retries of a Job whose spec names no number."""

ACTIVE = (State.PENDING, State.RUNNING, State.SUSPENDED)
_EFFECTS = ("segmentsReplaced", "segmentsRemoved", "rowsReplaced", "rowsRemoved", "rowsBefore", "rowsAfter")
"""Fields for what a run did to the table, named alike in its report and its status."""
Run = dict[str, Any]
"""A BatchRun as the status holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """Facts about a Table's batches."""

    uid: str
    table: str
    created_ms: int
    batches: Sequence[BatchIngestion]
    runs: Sequence[Run]
    """Runs in the status."""
    jobs: Mapping[str, Object]
    pods: Sequence[Object]
    refused: Mapping[str, str]
    """Jobs that get no pod, each with the reason."""
    is_suspended: bool
    obstacle: str | None
    """Reason why no run can start now."""
    now_ms: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Runs for the status; Jobs to have, and Jobs to delete."""

    runs: tuple[Run, ...]
    started: tuple[tuple[BatchIngestion, str], ...]
    """Batch and Job name of each active run: the Job is created if it does not exist."""
    obsolete: tuple[str, ...]
    """Jobs of runs that a changed spec replaced."""
    next_ms: int | None
    """Time of the next run by a schedule, when to look again."""


def plan(facts: BatchFacts) -> BatchPlan:
    """Plan the runs of all batch sources of a Table."""
    runs: list[Run] = []
    started: list[tuple[BatchIngestion, str]] = []
    obsolete: list[str] = []
    due: list[int] = []
    for batch in facts.batches:
        observed = [_observed(run, facts) for run in facts.runs if run["name"] == batch.name]
        current, replaced = _without_replaced(observed, batch, facts)
        obsolete += [run["job"] for run in replaced]
        slot = _slot(batch, current, facts)
        if _wants_run(batch, slot, current, facts):
            current = [_new_run(batch, slot, facts), *(run for run in current if run["state"] != State.WAITING)]
        runs += _trimmed(current)
        started += [(batch, run["job"]) for run in current if run["state"] in ACTIVE]
        if batch.schedule is not None:
            due.append(schedules.parse(batch.schedule).next(facts.now_ms))
    declared = {batch.name for batch in facts.batches}
    gone = [run for run in facts.runs if run["name"] not in declared]
    obsolete += [run["job"] for run in gone if run["state"] in ACTIVE]
    return BatchPlan(tuple(runs), tuple(started), tuple(obsolete), min(due, default=None))


def content_of(batch: BatchIngestion) -> str:
    """Return a hash of what a batch builds."""
    return digest(batch.model_dump(mode="json", by_alias=True, exclude={"job", "schedule"}, exclude_defaults=True))


def job_name(batch: BatchIngestion, slot: str | None, facts: BatchFacts) -> str:
    """Return the name of the Job: derived from the Table, the batch with all its settings, and the moment of its
    schedule."""
    settings = batch.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    suspended = dict(settings.get("job", {}))
    suspended.pop("suspend", None)
    hash_ = digest([facts.uid, settings | {"job": suspended}, slot])
    return f"{fit(f'{facts.table}-{batch.name}', MAX_JOB_NAME - len(hash_) - 1)}-{hash_}"


def _wants_run(batch: BatchIngestion, slot: str | None, runs: Sequence[Run], facts: BatchFacts) -> bool:
    if any(run["state"] in ACTIVE for run in runs) or facts.is_suspended or batch.job.suspend:
        return False
    if batch.schedule is not None:
        return slot is not None
    name, content = job_name(batch, slot, facts), content_of(batch)
    done = [run for run in runs if run["state"] != State.WAITING]
    return not any(
        run["job"] == name or (run["content"] == content and run["state"] == State.SUCCEEDED) for run in done
    )


def _new_run(batch: BatchIngestion, slot: str | None, facts: BatchFacts) -> Run:
    run = {"name": batch.name, "job": job_name(batch, slot, facts), "content": content_of(batch)}
    if slot is not None:
        run["slot"] = slot
    if facts.obstacle is not None:
        return {**run, "state": State.WAITING.value, "message": facts.obstacle}
    return {**run, "state": State.PENDING.value}


def _slot(batch: BatchIngestion, runs: Sequence[Run], facts: BatchFacts) -> str | None:
    """Return the last moment of the schedule that has come and has no run; None if there is none. Earlier missed
    moments are skipped."""
    if batch.schedule is None:
        return None
    schedule = schedules.parse(batch.schedule)
    slots = [ms_of(run["slot"]) for run in runs if run.get("slot") and run["state"] != State.WAITING]
    anchor = max([facts.created_ms, *slots])
    recent = max(anchor, facts.now_ms - DAY_MS)
    start = recent if schedule.next(recent) <= facts.now_ms else anchor
    slot = None
    while (moment := schedule.next(start)) <= facts.now_ms:
        slot = start = moment
    return None if slot is None else timestamp(slot)


def _without_replaced(runs: Sequence[Run], batch: BatchIngestion, facts: BatchFacts) -> tuple[list[Run], list[Run]]:
    """Split `runs` in two: those that stay, and active runs that the spec no longer describes, which make room for a
    new one."""
    content = content_of(batch)
    replaced = [run for run in runs if run["state"] in ACTIVE and run["content"] != content]
    return [run for run in runs if run not in replaced], replaced


def _trimmed(runs: list[Run]) -> list[Run]:
    return runs[:KEPT_RUNS]


def _observed(run: Run, facts: BatchFacts) -> Run:
    """Return the run with the state of its Job."""
    job = facts.jobs.get(run["job"])
    if run["state"] not in ACTIVE or job is None:
        return run
    status = job.get("status", {})
    seen = dict(run)
    seen.pop("message", None)
    if "startTime" in status:
        seen["started"] = status["startTime"]
    seen["attempts"] = sum(status.get(name, 0) for name in ("active", "succeeded", "failed"))
    ended = next((condition for condition in status.get("conditions") or () if is_end(condition)), None)
    if ended is None:
        return seen | _under_way(job, facts)
    report = _report(run["job"], facts.pods)
    if not report and _is_report_awaited(run["job"], ended, facts):
        return seen | {"state": State.RUNNING.value}
    seen |= _counts(report)
    seen["finished"] = status.get("completionTime") or ended["lastTransitionTime"]
    seen["state"] = (State.SUCCEEDED if ended["type"] == "Complete" else State.FAILED).value
    if ended["type"] == "Failed":
        cause = report.get("error") or ended.get("message") or ended.get("reason") or "the Job failed"
        seen["message"] = f"{ended.get('reason', 'Failed')}: {cause}"[:2000]
    return seen


def lacks_pods(job: Object, pods: Sequence[Object]) -> bool:
    """Return True if a Job that should run has no pod."""
    status = job.get("status", {})
    is_over = any(map(is_end, status.get("conditions") or ())) or bool(job["spec"].get("suspend"))
    return not (is_over or is_deleting(job) or status.get("active") or _pods_of(job, pods))


def _pods_of(job: Object, pods: Sequence[Object]) -> list[Object]:
    """Return the pods of a Job: the driver, whose name begins with the Job's, and executors, whose names begin with the
    driver's."""
    return [pod for pod in pods if name_of(pod).startswith(f"{name_of(job)}-")]


def _under_way(job: Object, facts: BatchFacts) -> dict[str, str]:
    """Return state and message of a run whose Job has not ended."""
    if job["spec"].get("suspend"):
        return {"state": State.SUSPENDED.value}
    if not lacks_pods(job, facts.pods):
        problem = next(iter(pod_facts.problems(_pods_of(job, facts.pods), now_ms=facts.now_ms)), None)
        failed = _report(name_of(job), facts.pods).get("error")
        before = f"it is tried again after: {failed}" if failed and _is_retried(job, facts.pods) else None
        message = before if problem is None else problem.message
        return {"state": State.RUNNING.value, **({} if message is None else {"message": message[:2000]})}
    since = job.get("status", {}).get("startTime") or job["metadata"].get("creationTimestamp")
    refused = facts.refused.get(name_of(job))
    if refused is not None:
        return {"state": State.PENDING.value, "message": refused[:2000]}
    if since is not None and facts.now_ms - ms_of(since) > NO_POD_MS:
        text = f"its Job has no pod since {since}; see `kubectl describe job {name_of(job)}`"
        return {"state": State.PENDING.value, "message": text}
    return {"state": State.PENDING.value}


def is_end(condition: Mapping[str, Any]) -> bool:
    """Return True if a condition of a Job says that it has ended."""
    return condition["type"] in ("Complete", "Failed") and condition["status"] == "True"


def _report(job: str, pods: Sequence[Object]) -> dict[str, Any]:
    """Return the termination message of a Job's last driver, or how that ended if it had no time to write one."""
    reports: list[tuple[str, dict[str, Any]]] = []
    for pod in _drivers(job, pods):
        for ended in _ends(pod):
            report = _parsed(ended.get("message") or "") or _exit_report(ended)
            if report:
                reports.append((f"{ended.get('finishedAt', '')} {name_of(pod)}", report))
    return max(reports, key=lambda item: item[0])[1] if reports else {}


def _is_report_awaited(job: str, ended: Mapping[str, Any], facts: BatchFacts) -> bool:
    """Return True if the end of the Job became visible before that of its driver, since each has a watch of its own."""
    is_recent = facts.now_ms - ms_of(ended["lastTransitionTime"]) < REPORT_MS
    return is_recent and not any(map(_ends, _drivers(job, facts.pods)))


def _drivers(job: str, pods: Sequence[Object]) -> list[Object]:
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == job]


def _ends(pod: Object) -> list[dict[str, Any]]:
    """Return the terminated states of the pod's containers that have ended."""
    states = [container.get("state") or {} for container in pod.get("status", {}).get("containerStatuses") or ()]
    return [state["terminated"] for state in states if state.get("terminated")]


def _is_retried(job: Object, pods: Sequence[Object]) -> bool:
    """Return True if Kubernetes makes another pod after those that failed: the Job's own end comes a moment after
    theirs."""
    codes = [state.get("exitCode", 0) for pod in _drivers(name_of(job), pods) for state in _ends(pod)]
    rules = job["spec"].get("podFailurePolicy", {}).get("rules", ())
    fatal = {code for rule in rules if rule["action"] == "FailJob" for code in rule["onExitCodes"]["values"]}
    num_failed = max(job.get("status", {}).get("failed") or 0, sum(code != 0 for code in codes))
    return fatal.isdisjoint(codes) and num_failed <= job["spec"].get("backoffLimit", DEFAULT_RETRIES)


def _exit_report(ended: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report for a container that left no message, for the most part because it was killed."""
    code = ended.get("exitCode", 0)
    return {"error": f"the driver ended with exit code {code} ({ended.get('reason', 'Error')})"} if code else {}


def _parsed(message: str) -> dict[str, Any]:
    try:
        report = json.loads(message)
    except (ValueError, RecursionError):
        lines = message.strip().splitlines()
        return {"error": lines[-1][:1000]} if lines else {}
    return report if isinstance(report, dict) else {"error": str(report)}


def _counts(report: Mapping[str, Any]) -> dict[str, int]:
    bad = report.get("badRows")
    counts = {
        "rowsIn": report.get("rowsIn"),
        "rowsOut": report.get("rowsOut"),
        "badRows": bad.get("count") if isinstance(bad, Mapping) else bad,
        "segments": report.get("segments"),
        "bytes": report.get("bytes"),
        **{name: report.get(name) for name in _EFFECTS},
    }
    # Anybody who makes pods in the namespace may write a report; the API server takes counts of 64 bits only.
    return {name: value for name, value in counts.items() if type(value) is int and 0 <= value < 2**63}
