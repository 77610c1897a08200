"""What goes wrong has a condition, a reason and an event, holds up no other table, and heals without its cause.

Kubelets' part is played: what they write to a pod's status is what they write. Tables that cannot be accepted, shared
state that is away and batches that fail are in the tests next to this one.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, run_pods, server_word, table_word
from tests.kube.sharing import SharedOperator
from tests.kube.test_operator import BATCH, flights, wait
from tests.kube.test_operator_rollups import rollup
from tests.kube.test_operator_rollups import word as merges

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

SERVER = "merlot-server-flights-0"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": None}
NOT_READY = {"type": "Ready", "status": "False"}


def container(waiting: dict[str, str], last_words: str = "") -> dict[str, Any]:
    """The status of a pod whose container waits."""
    status = {"name": "server", "image": "x", "imageID": "", "ready": False, "restartCount": 1}
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": last_words}} if last_words else {}
    one = {**status, "state": {"waiting": waiting}, "lastState": ended}
    return {"phase": "Pending", "conditions": [NOT_READY], "containerStatuses": [one]}


MISSING = 'secret "flights-store" not found'
BACK_OFF = 'Back-off pulling image "merlot-runtime:1"'
NO_NODE = "0/1 nodes are available: 1 Insufficient memory"
LAST_WORDS = "error: cannot listen address=0.0.0.0:8098"
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_NODE}
TROUBLES = {
    "missing secret": (
        container({"reason": "CreateContainerConfigError", "message": MISSING}),
        "ConfigMissing",
        MISSING,
    ),
    "wrong image": (container({"reason": "ImagePullBackOff", "message": BACK_OFF}), "ImageNotFound", BACK_OFF),
    "crash": (container({"reason": "CrashLoopBackOff"}, LAST_WORDS), "Crashing", LAST_WORDS),
    "no node": ({"phase": "Pending", "conditions": [NOT_READY, UNSCHEDULED]}, "Unschedulable", NO_NODE),
}


def serve(api: Api, controller: Controller, operator: SharedOperator) -> None:
    """Two tables with a server each, and both answer."""
    for name in ("flights", "other"):
        api.create("tables", flights(name))
    wait(operator, lambda: len(api.list("statefulsets")), 2)
    wait(operator, lambda: api.get("deployments", "merlot-broker") is not None)
    run_pods(api)
    controller.tables = {name: word(name) for name in ("flights", "other")}
    for name in ("flights", "other"):
        wait(operator, lambda name=name: api.reason("Ready", name), "True/Serving")


def word(table: str, **more: Any) -> dict[str, Any]:
    """The controller's word on a table that has one server."""
    return table_word(servers={f"Server_merlot-server-{table}-0_8098": server_word(**more)})


def other_goes_on(api: Api, operator: SharedOperator) -> None:
    """The other table answers, and takes a change."""
    before = api.get("tables", "other")["status"]["revision"]
    api.patch("tables", "other", {"spec": {"limits": {"timeoutMs": 1000 + before}}})
    wait(operator, lambda: api.get("tables", "other")["status"]["revision"], before + 1)
    assert api.reason("Ready", "other") == "True/Serving"
    assert api.reason("Degraded", "other") == "False/AsDeclared"


@pytest.mark.parametrize("trouble", TROUBLES)
def test_pod_that_does_not_run(api: Api, controller: Controller, running: SharedOperator, trouble: str) -> None:
    status, reason, words = TROUBLES[trouble]
    serve(api, controller, running)
    api.patch("pods", SERVER, {"status": status}, "status")
    controller.tables = controller.tables | {"flights": word("flights", live=False)}
    wait(running, lambda: api.reason("Degraded"), f"True/{reason}")
    assert words in api.condition("Degraded")["message"]
    wait(running, lambda: api.reason("Ready"), "False/NoServer")
    wait(running, lambda: reason in api.event_reasons())
    other_goes_on(api, running)
    api.patch("pods", SERVER, {"status": READY}, "status")
    controller.tables = controller.tables | {"flights": word("flights")}
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")
    wait(running, lambda: api.reason("Ready"), "True/Serving")


def test_batch_whose_driver_cannot_start(api: Api, controller: Controller, running: SharedOperator) -> None:
    serve(api, controller, running)
    api.patch("tables", "flights", {"spec": {"ingestion": {"batch": [BATCH]}}})
    wait(running, lambda: len(api.list("jobs")), 1)
    [job] = api.list("jobs")
    template = job["spec"]["template"]
    driver = {"metadata": {"name": f"{job['metadata']['name']}-x", "labels": template["metadata"]["labels"]}}
    spec = {name: value for name, value in template["spec"].items() if not name.startswith("serviceAccount")}
    status = container({"reason": "CreateContainerConfigError", "message": MISSING})
    api.create("pods", {**driver, "spec": spec, "status": status})
    wait(running, lambda: api.reason("Degraded"), "True/BatchBlocked")
    assert MISSING in api.condition("Degraded")["message"]
    assert MISSING in api.condition("TaskSucceeded")["message"]
    assert api.reason("Ready") == "True/Serving"
    wait(running, lambda: "BatchBlocked" in api.event_reasons())
    other_goes_on(api, running)
    api.patch("pods", driver["metadata"]["name"], {"status": READY}, "status")
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")


def test_minion_that_cannot_start_is_told_by_what_it_would_do(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    def degraded() -> str:
        return api.reason("Degraded", "merge", "mergerolluptasks")

    api.create("mergerolluptasks", rollup())
    serve(api, controller, running)
    controller.tasks = {"queued": 1, "running": 0}
    controller.rollups = {"merge": merges("Running")}
    wait(running, lambda: api.get("deployments", "merlot-minion")["spec"]["replicas"], 1)
    wait(running, degraded, "False/AsDeclared")
    run_pods(api)
    back_off = container({"reason": "ImagePullBackOff", "message": BACK_OFF})
    api.patch("pods", "merlot-minion-0", {"status": back_off}, "status")
    wait(running, degraded, "True/ImageNotFound")
    assert api.reason("Ready") == "True/Serving"
    api.patch("pods", "merlot-minion-0", {"status": READY}, "status")
    wait(running, degraded, "False/AsDeclared")


def test_segments_for_which_the_disk_has_no_room(api: Api, controller: Controller, running: SharedOperator) -> None:
    full = {"flights_2013-07-04@7": "cannot store segment file=/var/lib/merlot/x: No space left on device"}
    serve(api, controller, running)
    troubles = {"segmentsFailed": 1, "segmentsUnavailable": 1}
    controller.tables |= {"flights": word("flights", loaded=2, numErrors=1, errors=full) | troubles}
    wait(running, lambda: api.reason("Degraded"), "True/SegmentsFailed")
    assert "No space left on device" in api.condition("Degraded")["message"]
    wait(running, lambda: api.reason("Ready"), "False/SegmentsUnavailable")
    assert api.reason("SegmentsAvailable") == "False/SegmentsUnavailable"
    wait(running, lambda: "SegmentsFailed" in api.event_reasons())
    other_goes_on(api, running)
    controller.tables |= {"flights": word("flights")}
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")
    wait(running, lambda: api.reason("Ready"), "True/Serving")
