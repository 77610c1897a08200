"""Batches become Jobs, and what the Jobs say becomes status; shared state that is away; minions by their queue."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, Operator, eventually, run_pods, table_word
from tests.kube.sharing import SharedOperator
from tests.kube.test_operator import BATCH, OWN, SHARED, flights, wait

from merlot.cluster.manifests.tables import find_table
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.spec import manifest
from merlot_spark.build_job import EXIT_WRONG_INPUT
from merlot_spark.zookeeper import ZooKeeper

REFUSED = "the batch would replace rows that it may not hold segments=1: flights_2013-01-01: 12 rows -> 6 rows"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]


def test_batch_runs_once_and_its_report_is_kept(
    api: Api, controller: Controller, operator: Operator, settings: dict[str, str], tmp_path: Path
) -> None:
    with operator:
        api.create("tables", flights(ingestion={"batch": [{**BATCH, "job": {"executors": 2}}]}))
        wait(operator, lambda: _run(api).get("state"), "Waiting")
        assert "waits for the controller" in _run(api)["message"]
        controller.tables = {"flights": table_word()}
        wait(operator, lambda: len(api.list("jobs")), 1)
        [job] = api.list("jobs")
        assert job["metadata"]["name"] == _run(api)["job"]
        assert job["metadata"]["ownerReferences"][0]["name"] == "flights"
        effects = {"segmentsReplaced": 1, "segmentsRemoved": 0, "rowsReplaced": 12, "rowsRemoved": 0}
        effects |= {"rowsBefore": 12, "rowsAfter": 336_776}
        report = {"rowsIn": 336_776, "rowsOut": 336_776, "segments": 366, "bytes": 9_000_000, **effects}
        _end(api, job, "Complete", report)
        wait(operator, lambda: _run(api)["state"], "Succeeded")
        run = _run(api)
        assert {name: run[name] for name in effects} == effects
        assert (run["rowsIn"], run["segments"], run["attempts"]) == (336_776, 366, 1)
        assert api.reason("TaskSucceeded") == "True/AllBatches"
        assert api.get("tables", "flights")["status"]["lastBatch"] == "all Succeeded"
        api.delete("jobs", job["metadata"]["name"])
    with Operator(settings, tmp_path / "second.log") as second:
        second.settle()
        assert api.list("jobs") == []
        api.patch("tables", "flights", {"spec": {"ingestion": {"batch": [{**BATCH, "rerun": "please"}]}}})
        wait(second, lambda: len(api.list("jobs")), 1)
        assert [run["state"] for run in api.get("tables", "flights")["status"]["batches"]][-1] == "Succeeded"


def test_failed_batch_says_why_and_heals_by_an_edit(api: Api, controller: Controller, running: SharedOperator) -> None:
    controller.tables = {"flights": table_word()}
    api.create("tables", flights(ingestion={"batch": [BATCH]}))
    wait(running, lambda: len(api.list("jobs")), 1)
    [job] = api.list("jobs")
    [rule] = [one for one in job["spec"]["podFailurePolicy"]["rules"] if "onExitCodes" in one]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [EXIT_WRONG_INPUT])
    _end(api, job, "Failed", {"error": REFUSED}, exit_code=EXIT_WRONG_INPUT)
    wait(running, lambda: api.reason("TaskSucceeded"), "False/BatchFailed")
    assert REFUSED in api.condition("TaskSucceeded")["message"]
    assert REFUSED in _run(api)["message"]
    wait(running, lambda: "BatchFailed" in api.event_reasons())
    assert all(REFUSED in one["message"] for one in api.list("events") if one["reason"] == "BatchFailed")
    source = {**BATCH, "replaceRows": True}
    api.patch("tables", "flights", {"spec": {"ingestion": {"batch": [source]}}})
    wait(running, lambda: len(api.list("jobs")), 2)
    [second] = [one for one in api.list("jobs") if one["metadata"]["name"] != job["metadata"]["name"]]
    _end(api, second, "Complete", {"rowsIn": 1, "rowsOut": 1, "segments": 1})
    wait(running, lambda: api.reason("TaskSucceeded"), "True/AllBatches")


def test_suspended_batch_stops_its_job(api: Api, controller: Controller, running: SharedOperator) -> None:
    controller.tables = {"flights": table_word()}
    api.create("tables", flights(ingestion={"batch": [BATCH]}))
    wait(running, lambda: len(api.list("jobs")), 1)
    api.patch("tables", "flights", {"spec": {"suspend": True}})
    wait(running, lambda: api.list("jobs")[0]["spec"]["suspend"], True)
    wait(running, lambda: _run(api)["state"], "Suspended")
    api.patch("tables", "flights", {"spec": {"suspend": False}})
    wait(running, lambda: api.list("jobs")[0]["spec"]["suspend"], False)


def test_driver_reads_the_table_and_the_executors_template_from_its_own_pod(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    controller.tables = {"flights": table_word()}
    api.create("tables", flights(ingestion={"batch": [{**BATCH, "job": {"executors": 2, "cores": 3}}]}))
    wait(running, lambda: len(api.list("jobs")), 1)
    [job] = api.list("jobs")
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    [table] = manifest.load(annotations["merlot.dev/manifest"])
    assert table.spec.ingestion.batch[0].source_uri == BATCH["sourceUri"]
    executor = yaml.safe_load(annotations["merlot.dev/executor-template"])
    api.create("pods", {**executor, "metadata": {"name": "executor"}, "spec": _filled(executor["spec"])})
    driver = job["spec"]["template"]["spec"]
    assert driver["serviceAccountName"] == "merlot-spark-driver"
    arguments = driver["containers"][0]["args"]
    assert "--conf=spark.executor.instances=2" in arguments
    assert "--conf=spark.driver.bindAddress=$(POD_IP)" in arguments


def test_shared_state_that_is_away_is_told_and_healed(
    api: Api, controller: Controller, settings: dict[str, str], tmp_path: Path
) -> None:
    controller.tables = {"flights": table_word()}
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        url = f"zk://{zookeeper.hosts}/merlot"
        with Operator({**settings, "MERLOT_METASTORE": url}, tmp_path / "operator.log") as operator:
            api.create("tables", flights())
            wait(operator, lambda: len(api.children()), len(SHARED | OWN))
            run_pods(api)
            wait(operator, lambda: api.reason("Ready"), "True/Serving")
            zookeeper.stop()
            api.patch("tables", "flights", {"spec": {"limits": {"timeoutMs": 5000}}})
            wait(operator, lambda: api.reason("Degraded"), "True/MetastoreUnavailable")
            assert api.reason("ConfigInSync") == "False/MetastoreUnavailable"
            assert "see that ZooKeeper runs" in api.condition("Degraded")["message"]
            api.delete("services", "merlot-broker")
            wait(operator, lambda: api.get("services", "merlot-broker") is not None)
            wait(operator, lambda: "MetastoreUnavailable" in api.event_reasons())
            zookeeper.start()
            wait(operator, lambda: api.get("tables", "flights")["status"]["revision"], 2)
            controller.tables = {"flights": table_word(2)}
            wait(operator, lambda: api.reason("ConfigInSync"), "True/AllPods")
            api.delete("tables", "flights")
            wait(operator, lambda: api.get("tables", "flights"), None)
        metastore = ZooKeeperMetastore(f"{zookeeper.hosts}/merlot")
        try:
            assert find_table(metastore, "flights") is None
        finally:
            metastore.close()


def test_deletion_waits_for_shared_state_unless_told_not_to(api: Api, settings: dict[str, str], tmp_path: Path) -> None:
    away = {**settings, "MERLOT_METASTORE": "zk://127.0.0.1:1/merlot"}
    with Operator(away, tmp_path / "operator.log") as operator:
        api.create("tables", flights())
        wait(operator, lambda: api.reason("Ready"), "False/MetastoreUnavailable")
        api.delete("tables", "flights")
        wait(operator, lambda: "CleanupWaits" in api.event_reasons())
        assert api.get("tables", "flights") is not None
        api.patch("tables", "flights", {"metadata": {"annotations": {"merlot.dev/force-delete": "true"}}})
        wait(operator, lambda: api.get("tables", "flights"), None)
        wait(operator, api.children, set())


def test_minions_follow_their_queue_and_stay_for_its_next_task(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    def replicas() -> int:
        return int((api.get("deployments", "merlot-minion") or {"spec": {"replicas": -1}})["spec"]["replicas"])

    api.create("tables", flights())
    wait(running, replicas, 0)
    controller.tasks = {"queued": 7, "running": 0}
    wait(running, replicas, 2)
    controller.tasks = {"queued": 0, "running": 0}
    running.settle()
    assert replicas() == 2


def _run(api: Api) -> dict[str, Any]:
    """The newest run in the status."""
    runs = api.get("tables", "flights").get("status", {}).get("batches") or [{}]
    return dict(runs[0])


def _filled(spec: dict[str, Any]) -> dict[str, Any]:
    """As Spark fills it in."""
    return {**spec, "containers": [{**spec["containers"][0], "image": "merlot-spark:1"}]}


def _end(api: Api, job: Any, kind: str, report: dict[str, Any], *, exit_code: int = 0) -> None:
    """What kubelet and the Job's controller do at a driver's end."""
    name = job["metadata"]["name"]
    template = job["spec"]["template"]
    labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": name}
    spec = {key: value for key, value in template["spec"].items() if not key.startswith("serviceAccount")}
    terminated = {"exitCode": exit_code, "message": json.dumps(report), "finishedAt": "2026-01-01T00:10:00Z"}
    container = {"name": "driver", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    statuses = [{**container, "state": {"terminated": terminated}}]
    pod = {"metadata": {"name": f"{name}-1", "labels": labels}, "spec": spec}
    api.create("pods", {**pod, "status": {"phase": "Succeeded", "containerStatuses": statuses}})
    times = {"startTime": "2026-01-01T00:00:00Z"}
    conditions = [_ended(kind)]
    if kind == "Complete":
        times["completionTime"] = "2026-01-01T00:10:00Z"
        counts = {"succeeded": 1, "uncountedTerminatedPods": {}}
        conditions.insert(0, _ended("SuccessCriteriaMet"))
    else:
        counts = {"failed": 1, "uncountedTerminatedPods": {}}
        conditions.insert(0, _ended("FailureTarget"))
    api.patch("jobs", name, {"status": {**times, **counts, "conditions": conditions}}, "status")
    eventually(lambda: api.get("jobs", name)["status"]["conditions"][-1]["type"], kind)


def _ended(kind: str) -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = dict.fromkeys(("lastTransitionTime", "lastProbeTime"), now)
    return {"type": kind, "status": "True", "reason": "Ended", "message": "", **times}
