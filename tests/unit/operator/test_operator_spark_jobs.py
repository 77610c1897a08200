"""Which Jobs there shall be, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from merlot.spec.ingestion import BatchIngestion
from merlot.spec.status import BatchRun
from merlot_operator.config import Config
from merlot_operator.desired import batch_runs
from merlot_operator.desired.batch_runs import BatchFacts, BatchPlan
from merlot_operator.kube.events import timestamp
from merlot_operator.manifests.batch import WRONG_INPUT, BatchPod, job

NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000
SOURCE = {"name": "all", "sourceUri": "s3://bucket/*.parquet", "format": "PARQUET"}


def batch(**more: Any) -> BatchIngestion:
    return BatchIngestion.model_validate(SOURCE | more)


def plan(
    *batches: BatchIngestion,
    runs: tuple[dict[str, Any], ...] = (),
    jobs: Mapping[str, Any] | None = None,
    pods: tuple[Any, ...] = (),
    now_ms: int = NOON,
    **more: Any,
) -> BatchPlan:
    facts = {
        "uid": "u1",
        "table": "flights",
        "created_ms": NOON - HOUR,
        "is_suspended": False,
        "obstacle": None,
        "refused": {},
    }
    given = {"batches": batches, "runs": runs, "jobs": jobs or {}, "pods": pods, "now_ms": now_ms}
    return batch_runs.plan(BatchFacts(**facts | given | more))  # type: ignore[arg-type]


def ended(kind: str, **more: Any) -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "lastTransitionTime": "2026-11-21T11:30:00Z", **more}
    return {"spec": {}, "status": {"startTime": "2026-11-21T11:00:00Z", "succeeded": 1, "conditions": [condition]}}


def under_way(run: Mapping[str, Any], **status: Any) -> dict[str, Any]:
    """The jobs of a run that has not ended."""
    metadata = {"name": run["job"], "creationTimestamp": timestamp(NOON)}
    return {run["job"]: {"metadata": metadata, "spec": {}, "status": status}}


def driver(job: str, message: str) -> dict[str, Any]:
    terminated = {"message": message, "finishedAt": "2026-11-21T11:30:00Z"}
    status = {"containerStatuses": [{"name": "driver", "state": {"terminated": terminated}}]}
    return {"metadata": {"name": f"{job}-x", "labels": {"batch.kubernetes.io/job-name": job}}, "status": status}


def test_run_is_written_down_before_its_job_is_made() -> None:
    first = plan(batch())
    [run] = first.runs
    assert run["state"] == "Pending"
    assert first.started == ((batch(), run["job"]),)
    assert plan(batch(), runs=first.runs) == first


def test_name_depends_on_table_batch_and_moment_alone() -> None:
    [name] = {plan(batch()).runs[0]["job"] for _ in range(3)}
    assert name.startswith("flights-all-")
    assert name != plan(batch(), uid="u2").runs[0]["job"]
    assert name != plan(batch(rerun="2")).runs[0]["job"]
    assert len(plan(batch(name="a" * 63), table="b" * 63).runs[0]["job"]) <= batch_runs.MAX_JOB_NAME


def test_report_is_copied_from_the_driver() -> None:
    [run] = plan(batch()).runs
    report = {"rowsIn": 10, "rowsOut": 9, "badRows": {"count": 1}, "segments": 3, "bytes": 4096}
    jobs = {run["job"]: ended("Complete")}
    done = plan(batch(), runs=(run,), jobs=jobs, pods=(driver(run["job"], json.dumps(report)),))
    [seen] = done.runs
    assert (seen["state"], seen["attempts"]) == ("Succeeded", 1)
    assert (seen["started"], seen["finished"]) == ("2026-11-21T11:00:00Z", "2026-11-21T11:30:00Z")
    assert (seen["rowsIn"], seen["rowsOut"], seen["badRows"], seen["segments"], seen["bytes"]) == (10, 9, 1, 3, 4096)
    assert not done.started


@pytest.mark.parametrize("message", ["[" * 4_000, json.dumps({"rowsIn": 10**100, "rowsOut": -1, "bytes": True})])
def test_a_report_that_no_driver_writes_leaves_counts_out(message: str) -> None:
    [run] = plan(batch()).runs
    [seen] = plan(batch(), runs=(run,), jobs={run["job"]: ended("Complete")}, pods=(driver(run["job"], message),)).runs
    assert seen["state"] == "Succeeded"
    assert seen.keys().isdisjoint({"rowsIn", "rowsOut", "bytes"})


def test_what_a_run_did_to_the_table_is_copied_from_the_driver() -> None:
    [run] = plan(batch()).runs
    effects = {"segmentsReplaced": 1, "segmentsRemoved": 2, "rowsReplaced": 12, "rowsRemoved": 48}
    report = {"rowsOut": 24, **effects, "rowsBefore": 60, "rowsAfter": 24}
    pods = (driver(run["job"], json.dumps(report)),)
    [seen] = plan(batch(), runs=(run,), jobs={run["job"]: ended("Complete")}, pods=pods).runs
    assert {name: seen[name] for name in report} == report
    assert BatchRun.model_validate(seen).rows_after == 24, "the status has room for all of it"


def test_a_driver_that_was_killed_says_how_it_ended() -> None:
    [run] = plan(batch()).runs
    killed = driver(run["job"], "")
    killed["status"]["containerStatuses"][0]["state"]["terminated"] |= {"exitCode": 137, "reason": "OOMKilled"}
    jobs = {run["job"]: ended("Failed", reason="BackoffLimitExceeded", message="Job has reached the limit")}
    [seen] = plan(batch(), runs=(run,), jobs=jobs, pods=(killed,)).runs
    assert seen["message"] == "BackoffLimitExceeded: the driver ended with exit code 137 (OOMKilled)"


def test_a_run_that_is_tried_again_says_why_until_it_succeeds() -> None:
    [run] = plan(batch()).runs
    pods = (driver(run["job"], json.dumps({"error": "deep store failed action=write"})),)
    [again] = plan(batch(), runs=(run,), jobs=under_way(run, active=1, failed=1), pods=pods).runs
    assert (again["state"], again["attempts"]) == ("Running", 2)
    assert again["message"] == "it is tried again after: deep store failed action=write"
    [done] = plan(batch(), runs=(again,), jobs={run["job"]: ended("Complete")}, pods=pods).runs
    assert (done["state"], "message" in done) == ("Succeeded", False)


@pytest.mark.parametrize(
    ("retries", "num_failed", "code", "is_told"),
    [
        (0, 0, 1, False),
        (0, 1, 1, False),
        (1, 0, 1, True),
        (1, 1, 1, True),
        (1, 2, 1, False),
        (3, 1, WRONG_INPUT, False),
    ],
)
def test_a_run_that_failed_is_said_to_be_tried_again_only_if_it_will_be(
    retries: int, num_failed: int, code: int, is_told: bool
) -> None:
    """The pod ends a moment before the Job counts it, and before the Job ends."""
    config = Config(metastore="zk://z", deep_store="s3://b", runtime_image="r", spark_image="s")
    declared = batch(job={"retries": retries})
    [run] = plan(declared).runs
    made = job(
        BatchPod(
            namespace="n",
            job=run["job"],
            table="flights",
            owner={},
            manifest={},
            batch=declared,
            deep_store="s3://b",
            secrets=[],
            is_suspended=False,
        ),
        config,
    )
    made["metadata"]["creationTimestamp"] = timestamp(NOON)
    failed = driver(run["job"], json.dumps({"error": "deep store failed action=write"}))
    failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = code
    jobs = {run["job"]: {**made, "status": {"failed": num_failed}}}
    [seen] = plan(declared, runs=(run,), jobs=jobs, pods=(failed,)).runs
    assert (seen["state"], "message" in seen) == ("Running", is_told)


def test_what_succeeded_is_not_repeated_though_its_job_is_gone_or_its_size_changed() -> None:
    run = {**plan(batch()).runs[0], "state": "Succeeded"}
    for one in (batch(), batch(job={"executors": 5}), batch(job={"keep": "2d"})):
        again = plan(one, runs=(run,))
        assert again.runs == (run,)
        assert not again.started


def test_changed_batch_runs_again_and_stops_the_run_before() -> None:
    old = {**plan(batch()).runs[0], "state": "Running"}
    new = plan(batch(filter="month = 1"), runs=(old,), jobs=under_way(old, active=1))
    assert new.obsolete == (old["job"],)
    assert [run["state"] for run in new.runs] == ["Pending"]
    assert new.runs[0]["job"] != old["job"]
    done = {**old, "state": "Succeeded"}
    assert [run["state"] for run in plan(batch(filter="month = 1"), runs=(done,)).runs] == ["Pending", "Succeeded"]


def test_failed_run_is_tried_again_only_after_an_edit() -> None:
    [run] = plan(batch()).runs
    jobs = {run["job"]: ended("Failed", reason="BackoffLimitExceeded", message="too many")}
    pods = (driver(run["job"], json.dumps({"error": "no such file"})),)
    failed = plan(batch(), runs=(run,), jobs=jobs, pods=pods)
    [seen] = failed.runs
    assert seen["state"] == "Failed"
    assert seen["message"] == "BackoffLimitExceeded: no such file"
    assert not plan(batch(), runs=failed.runs).started
    assert plan(batch(job={"retries": 5}), runs=failed.runs).started


@pytest.mark.parametrize("kind", ["Failed", "Complete"])
def test_run_goes_on_until_its_drivers_end_is_known_too(kind: str) -> None:
    """Jobs and pods have watches of their own: the Job's may be ahead."""
    [run] = plan(batch()).runs
    jobs = {run["job"]: ended(kind, reason="PodFailurePolicy", lastTransitionTime=timestamp(NOON - 1_000))}
    pod = {**driver(run["job"], ""), "status": {}}
    for pods in ((), (pod,)):
        [early] = plan(batch(), runs=(run,), jobs=jobs, pods=pods).runs
        assert early["state"] == "Running"
        [late] = plan(batch(), runs=(early,), jobs=jobs, pods=pods, now_ms=NOON + 60_000).runs
        assert late["state"] == {"Failed": "Failed", "Complete": "Succeeded"}[kind]
        reported = (driver(run["job"], json.dumps({"error": "no such file", "rowsIn": 7})),)
        [seen] = plan(batch(), runs=(early,), jobs=jobs, pods=reported).runs
        assert seen["rowsIn"] == 7
        assert "no such file" in seen.get("message", "no such file")


def test_run_whose_pods_cannot_start_says_why_until_they_do() -> None:
    [run] = plan(batch()).runs
    jobs = under_way(run, active=1)
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    stuck = {"containerStatuses": [{"name": "executor", "restartCount": 0, "state": {"waiting": waiting}}]}
    executor = {"metadata": {"name": f"{run['job']}-abcde-exec-1"}, "status": stuck}
    other = {"metadata": {"name": "flights-other-1"}, "status": stuck}
    [blocked] = plan(batch(), runs=(run,), jobs=jobs, pods=(executor,)).runs
    assert (blocked["state"], "Back-off pulling image" in blocked["message"]) == ("Running", True)
    [healed] = plan(batch(), runs=(blocked,), jobs=jobs, pods=(other,)).runs
    assert "message" not in healed


def test_run_without_a_pod_is_not_running_and_says_why() -> None:
    [run] = plan(batch()).runs
    [fresh] = plan(batch(), runs=(run,), jobs=under_way(run)).runs
    assert (fresh["state"], "message" in fresh) == ("Pending", False)
    [refused] = plan(batch(), runs=(run,), jobs=under_way(run), refused={run["job"]: "exceeded quota"}).runs
    assert (refused["state"], refused["message"]) == ("Pending", "exceeded quota")
    [overdue] = plan(batch(), runs=(run,), jobs=under_way(run), now_ms=NOON + HOUR).runs
    assert (overdue["state"], "has no pod since" in overdue["message"]) == ("Pending", True)
    started = {"metadata": {"name": f"{run['job']}-abcde"}, "status": {}}
    [running] = plan(batch(), runs=(overdue,), jobs=under_way(run), pods=(started,)).runs
    assert (running["state"], "message" in running) == ("Running", False)


def test_words_that_are_no_report_are_shown_as_they_are() -> None:
    [run] = plan(batch()).runs
    pods = (driver(run["job"], "Traceback …\nMemoryError: no room\n"),)
    [seen] = plan(batch(), runs=(run,), jobs={run["job"]: ended("Failed", reason="Oops")}, pods=pods).runs
    assert seen["message"] == "Oops: MemoryError: no room"


def test_job_that_vanished_before_its_end_was_seen_is_made_again() -> None:
    run = {**plan(batch()).runs[0], "state": "Running"}
    assert plan(batch(), runs=(run,)).started == ((batch(), run["job"]),)


def test_run_waits_and_says_for_what() -> None:
    waiting = plan(batch(), obstacle="waits for the controller")
    assert [(run["state"], run["message"]) for run in waiting.runs] == [("Waiting", "waits for the controller")]
    assert not waiting.started
    assert [run["state"] for run in plan(batch(), runs=waiting.runs).runs] == ["Pending"]


def test_suspended_table_starts_nothing() -> None:
    assert plan(batch(), is_suspended=True) == BatchPlan((), (), (), None)
    assert not plan(batch(job={"suspend": True})).started


def test_schedule_runs_once_per_moment_and_skips_those_that_were_missed() -> None:
    hourly = batch(schedule="0 * * * *")
    first = plan(hourly, created_ms=NOON - 5 * HOUR)
    assert [run["slot"] for run in first.runs] == ["2026-11-21T12:00:00Z"]
    assert first.next_ms == NOON + HOUR
    done = {**first.runs[0], "state": "Succeeded"}
    assert not plan(hourly, runs=(done,), now_ms=NOON + HOUR // 2).started
    later = plan(hourly, runs=(done,), now_ms=NOON + HOUR)
    assert [run["slot"] for run in later.runs] == ["2026-11-21T13:00:00Z", "2026-11-21T12:00:00Z"]


def test_schedule_waits_for_the_run_before() -> None:
    hourly = batch(schedule="0 * * * *")
    running = {**plan(hourly, created_ms=NOON - HOUR).runs[0], "state": "Running"}
    jobs = under_way(running, active=1)
    assert [run["slot"] for run in plan(hourly, runs=(running,), jobs=jobs, now_ms=NOON + 3 * HOUR).runs] == [
        "2026-11-21T12:00:00Z"
    ]


def test_new_schedule_waits_for_its_first_moment() -> None:
    assert not plan(batch(schedule="30 12 * * *")).runs


def test_rare_schedule_is_found_however_long_ago_its_moment_was() -> None:
    yearly = batch(schedule="0 0 1 1 *")
    [run] = plan(yearly, created_ms=NOON - 2 * 366 * 24 * HOUR).runs
    assert run["slot"] == "2026-01-01T00:00:00Z"


def test_history_is_short() -> None:
    hourly = batch(schedule="0 * * * *")
    runs: tuple[dict[str, Any], ...] = ()
    for hour in range(10):
        found = plan(hourly, runs=runs, now_ms=NOON + hour * HOUR)
        runs = tuple({**run, "state": "Succeeded"} for run in found.runs)
    assert len(runs) == batch_runs.KEPT_RUNS


def test_source_that_was_taken_away_takes_its_run_along() -> None:
    running = {**plan(batch()).runs[0], "state": "Running"}
    gone = plan(runs=(running,))
    assert gone.runs == ()
    assert gone.obsolete == (running["job"],)
