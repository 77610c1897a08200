"""Merges that take Spark against a real API server: a Job per task, whatever becomes of Job and operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, Operator, table_word
from tests.kube.test_operator import flights, wait

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

TASK = {"id": "flights.monthly.2013-01-01.0123456789ab", "table": "flights"}


def names(api: Api) -> list[str]:
    return [one["metadata"]["name"] for one in api.list("jobs")]


def uid(api: Api) -> str:
    """Of the only Job; empty if there is none."""
    jobs = api.list("jobs")
    return jobs[0]["metadata"]["uid"] if len(jobs) == 1 else ""


def end(api: Api, name: str) -> None:
    """What the Job controller says of pods that failed too often."""
    now = "2026-01-01T00:00:00Z"
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("FailureTarget", "Failed")]
    api.patch("jobs", name, {"status": {"startTime": now, "failed": 7, "conditions": conditions}}, "status")


def test_a_task_for_spark_has_a_job_until_it_is_over(
    api: Api, controller: Controller, settings: dict[str, str], tmp_path: Path
) -> None:
    controller.tables = {"flights": table_word()}
    controller.spark_tasks = [TASK]
    controller.tasks = {"queued": 1}
    with Operator(settings, tmp_path / "first.log") as operator:
        api.create("tables", flights())
        wait(operator, lambda: len(names(api)), 1)
        job = api.list("jobs")[0]
        assert job["metadata"]["ownerReferences"][0]["name"] == "flights"
        assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "merlot-spark:1"
        assert _replicas(api) == 0, "nothing for a minion without Spark"
        wait(operator, lambda: "MergeStarted" in api.event_reasons())
        operator.settle()
        assert uid(api) == job["metadata"]["uid"]
    with Operator(settings, tmp_path / "second.log") as operator:
        operator.settle()
        assert uid(api) == job["metadata"]["uid"], "another operator makes no other one"
        end(api, job["metadata"]["name"])
        wait(operator, lambda: uid(api) not in ("", job["metadata"]["uid"]))
        assert names(api) == [job["metadata"]["name"]], "the task is there still, and has a Job of the same name"
        api.delete("jobs", job["metadata"]["name"])
        wait(operator, lambda: len(names(api)), 1)
        controller.spark_tasks = []
        wait(operator, lambda: names(api), [])
        api.delete("tables", "flights")
        wait(operator, lambda: api.get("tables", "flights"), None)


def _replicas(api: Api) -> Any:
    return api.get("deployments", "merlot-minion")["spec"]["replicas"]
