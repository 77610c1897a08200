"""Restarts of servers by a real API server: whom brokers need, and whom a disruption budget keeps, stays."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, run_pods, server_word, table_word, watch_budgets
from tests.kube.sharing import SharedOperator
from tests.kube.test_operator import OWN, POOL, SHARED, flights, wait

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

NAMES = [f"{POOL}-{number}" for number in range(2)]
SERVERS = {name: f"Server_{name}_8098" for name in NAMES}
RESTART = {"metadata": {"annotations": {"merlot.dev/restarted-at": "now"}}}


@pytest.fixture
def running(running: SharedOperator, api: Api, controller: Controller) -> SharedOperator:
    """An operator of a Table with two servers that are up."""
    controller.tables = {"flights": table_word(replication=2, servers=words())}
    api.create("tables", flights(replication=2))
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    return running


def words(**more: Any) -> dict[str, Any]:
    """What the controller says of both servers, the second of which is marked."""
    return {SERVERS[NAMES[0]]: server_word(), SERVERS[NAMES[1]]: server_word(**more)}


def set_state(api: Api, pod: str, state: dict[str, Any], *, is_ready: bool = False) -> None:
    container = {"name": "server", "image": "x", "imageID": "", "ready": is_ready, "restartCount": 0, "state": state}
    ready = {"type": "Ready", "status": str(is_ready)}
    api.patch("pods", pod, {"status": {"conditions": [ready], "containerStatuses": [container]}}, "status")


def test_servers_that_load_are_neither_taken_for_idle_nor_out_of_service(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    uids = {name: api.get("pods", name)["metadata"]["uid"] for name in NAMES}
    for name in NAMES:
        set_state(api, name, {"running": {}})
    loading = {"segmentsLoading": 9, "replication": 2}
    controller.tables = {"flights": table_word(servers=words(assigned=8), **loading)}
    api.patch("tables", "flights", RESTART)
    wait(running, lambda: f"{SERVERS[NAMES[1]]}/drain" in controller.drains)
    wait(running, lambda: "brokers still need it" in api.condition("Progressing").get("message", ""))
    running.settle(8)
    assert {name: api.get("pods", name)["metadata"]["uid"] for name in NAMES} == uids
    controller.tables = {"flights": table_word(servers=words(assigned=8, draining=True, drained=True), **loading)}
    wait(running, lambda: api.get("pods", NAMES[1]), None)
    running.settle(4)
    assert api.get("pods", NAMES[0])["metadata"]["uid"] == uids[NAMES[0]]
    wait(running, lambda: "PodRestarted" in api.event_reasons())
    [told] = [one["message"] for one in api.list("events") if one["reason"] == "PodRestarted"]
    assert told == f"pod {NAMES[1]} is restarted: the annotation merlot.dev/restarted-at asks for it"


def test_disruption_budget_that_allows_no_more_holds_up_a_restart(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    """A drain of the other server's node has taken that one."""
    for name in NAMES:
        set_state(api, name, {"running": {}}, is_ready=True)
    watch_budgets(api, num_allowed=0)
    controller.tables = {"flights": table_word(replication=2, servers=words(draining=True, drained=True))}
    api.patch("tables", "flights", RESTART)
    wait(running, lambda: "disruption budget" in api.condition("Progressing").get("message", ""))
    assert api.get("pods", NAMES[1]) is not None
    watch_budgets(api)
    wait(running, lambda: api.get("pods", NAMES[1]), None)


def test_pod_that_crashes_is_replaced_at_once_whatever_the_budget_says(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    """It serves nobody, and a change of its manifest may be what mends it."""
    watch_budgets(api, num_allowed=0)
    for name in NAMES:
        set_state(api, name, {"waiting": {"reason": "CrashLoopBackOff"}})
    controller.is_up = False
    api.patch("tables", "flights", RESTART)
    wait(running, lambda: [one for one in NAMES if api.get("pods", one)], [])
