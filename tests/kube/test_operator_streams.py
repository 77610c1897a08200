"""A Table with a stream on a real API server: condition, events, columns, hosts it may name, what may change of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, run_pods, server_word, table_word
from tests.kube.sharing import SharedOperator
from tests.kube.test_operator import POOL, flights, wait

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

SERVER = f"Server_{POOL}-0_8098"
STREAM = {
    "type": "kafka",
    "topic": "flights",
    "properties": {"bootstrap.servers": "kafka.shop.svc:9092"},
    "secretRef": "merlot-kafka",
}
CONSUMED = {"partitions": 2, "consumed": 2, "catchingUp": 0, "lag": 0, "lagMs": 0, "bad": 0, "numLost": 0}
WORD = {**CONSUMED, "paused": False, "looked": True, "problem": "", "error": "", "worst": [], "lost": []}


@pytest.fixture
def running(running: SharedOperator, controller: Controller) -> SharedOperator:
    """An operator that lets Tables name one host."""
    says(controller)
    return running


def says(controller: Controller, server: dict[str, Any] | None = None, **stream: Any) -> None:
    word = {**WORD, "handingOver": {}, **stream}
    controller.tables = {"flights": table_word(servers={SERVER: server or server_word()}, stream=word)}


def failing(problem: str) -> dict[str, Any]:
    worst = {"partition": 1, "state": "ERROR", "lag": 120, "lagMs": 0, "problem": problem, "error": "told by a server"}
    return {"consumed": 1, "worst": [worst]}


def events(api: Api, reason: str) -> list[Any]:
    return [one for one in api.list("events") if one["reason"] == reason]


def test_the_condition_follows_the_stream_and_tells_why(
    api: Api, controller: Controller, running: SharedOperator, kubectl: Any
) -> None:
    api.create("tables", flights(ingestion={"stream": STREAM}))
    wait(running, lambda: api.reason("Consuming"), "True/Consuming")
    says(controller, **failing("REFUSED"))
    wait(running, lambda: api.reason("Consuming"), "False/CredentialsRefused")
    assert "partition 1: told by a server" in api.condition("Consuming")["message"]
    wait(running, lambda: bool(events(api, "CredentialsRefused")))
    [told] = events(api, "CredentialsRefused")[:1]
    assert told["type"] == "Warning"
    status = api.get("tables", "flights")["status"]["stream"]
    assert (status["consumed"], status["lag"], status["lastError"]) == (1, "0s", "told by a server")
    assert status["behind"][0]["problem"] == "CredentialsRefused"
    says(controller, paused=True, consumed=0)
    wait(running, lambda: api.reason("Consuming"), "False/Paused")
    wait(running, lambda: [one["type"] for one in events(api, "Paused")], ["Normal"])
    assert api.condition("Degraded").get("reason") != "Paused"
    says(controller, lag=1_200_000, lagMs=300_000, numLost=330, lost=[[1, 120, 450]])
    wait(running, lambda: api.reason("Consuming"), "True/MessagesLost")
    assert "offsets 120 to 449" in api.condition("Consuming")["message"]
    wait(running, lambda: [one["type"] for one in events(api, "MessagesLost")], ["Warning"])
    columns = kubectl.check("get", "tables", "-n", api.namespace, "-o", "wide").splitlines()
    assert {"STREAM", "LAG"} <= set(columns[0].split())
    assert {"MessagesLost", "5m/1200000"} <= set(columns[1].split())
    assert api.get("tables", "flights")["status"]["stream"]["lostMessages"] == 330


def test_servers_get_the_secret_and_the_hosts(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights(ingestion={"stream": STREAM}))
    wait(running, lambda: api.get("statefulsets", POOL) is not None)
    spec = api.get("statefulsets", POOL)["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert {"--secrets-dir=/etc/merlot/streams", "--stream-hosts=kafka.shop.svc:9092"} <= set(container["args"])
    [mount] = [one for one in container["volumeMounts"] if one["mountPath"].startswith("/etc/merlot/streams")]
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/merlot/streams/merlot-kafka", True)
    [volume] = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "merlot-kafka"
    assert volume["secret"]["optional"] is True


def test_a_host_that_is_not_allowed_is_refused_by_its_name(api: Api, running: SharedOperator) -> None:
    evil = {**STREAM, "properties": {"bootstrap.servers": "kafka.shop.svc:9092,evil.example:9092"}}
    api.create("tables", flights(ingestion={"stream": evil}))
    wait(running, lambda: api.reason("Accepted"), "False/NotAllowed")
    message = api.condition("Accepted")["message"]
    assert "spec.ingestion.stream.properties.bootstrap.servers: host is not allowed host=evil.example:9092" in message
    assert "streams.hosts of the chart" in message
    assert api.get("statefulsets", POOL) is None
    api.patch("tables", "flights", {"spec": {"ingestion": {"stream": STREAM}}})
    wait(running, lambda: api.reason("Accepted"), "True/Valid")


def test_a_server_is_restarted_when_it_has_handed_over(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    """Though its table keeps one copy, which nobody waits for otherwise."""
    api.create("tables", flights(ingestion={"stream": STREAM}))
    wait(running, lambda: api.get("statefulsets", POOL) is not None)
    run_pods(api)
    says(controller, server=server_word(draining=True), handingOver={SERVER: 2})
    uid = api.get("pods", f"{POOL}-0")["metadata"]["uid"]
    api.patch("tables", "flights", {"metadata": {"annotations": {"merlot.dev/restarted-at": "2026-01-01T00:00:00Z"}}})
    wait(running, lambda: "hands over what it consumes" in str(api.get("tables", "flights")["status"].get("plan")))
    running.settle()
    assert api.get("pods", f"{POOL}-0")["metadata"]["uid"] == uid
    says(controller, server=server_word(draining=True))
    wait(running, lambda: bool(events(api, "PodRestarted")))
