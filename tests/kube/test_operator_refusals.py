"""What a quota, admission or a storage class refuses is told by conditions and events, and blocks nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, Operator, run_jobs, run_pods, server_word, table_word
from tests.kube.sharing import SharedOperator
from tests.kube.test_operator import BATCH, OWN, POOL, SHARED, flights, wait

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

DENIED = 'pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0'


@pytest.fixture
def running(running: SharedOperator, controller: Controller) -> SharedOperator:
    """An operator whose controller knows the table."""
    controller.tables = {"flights": table_word(servers={f"Server_{POOL}-0_8098": server_word()})}
    return running


def says(api: Api, owner: Any, message: str) -> None:
    """What Kubernetes' own controllers do when the API server refuses a pod."""
    about = {name: owner["metadata"][name] for name in ("name", "namespace", "uid")}
    event = {
        "metadata": {"generateName": "refused-"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedCreate",
        "message": f"Error creating: {message}",
        "lastTimestamp": "2999-01-01T00:00:00Z",
    }
    api.create("events", event)


def test_job_that_a_quota_refuses_is_told_and_made_once_there_is_room(api: Api, running: SharedOperator) -> None:
    quota = api.create("resourcequotas", {"metadata": {"name": "few"}, "spec": {"hard": {"count/jobs.batch": "0"}}})
    used = {"hard": quota["spec"]["hard"], "used": {"count/jobs.batch": "0"}}
    api.patch("resourcequotas", "few", {"status": used}, "status")
    api.create("tables", flights(ingestion={"batch": [BATCH]}))
    wait(running, lambda: api.reason("Degraded"), "True/BatchBlocked")
    assert "exceeded quota: few" in api.condition("Degraded")["message"]
    assert api.reason("TaskSucceeded") == "Unknown/BatchUnderWay"
    wait(running, lambda: "BatchBlocked" in api.event_reasons())
    assert api.list("jobs") == []
    # Nothing else waits for it.
    wait(running, lambda: api.get("statefulsets", POOL) is not None)
    api.delete("resourcequotas", "few")
    wait(running, lambda: len(api.list("jobs")), 1)
    run_jobs(api)
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")
    wait(running, lambda: api.get("tables", "flights")["status"]["lastBatch"], "all Running")


def test_job_without_pods_is_not_running_and_says_why(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights(ingestion={"batch": [BATCH]}))
    wait(running, lambda: len(api.list("jobs")), 1)
    assert api.get("tables", "flights")["status"]["lastBatch"] == "all Pending"
    says(api, api.list("jobs")[0], DENIED)
    wait(running, lambda: api.reason("Degraded"), "True/BatchBlocked")
    assert DENIED in api.condition("Degraded")["message"]
    run_jobs(api)
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")


def test_pods_that_are_refused_are_told_until_they_are_there(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights())
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    says(api, api.get("statefulsets", POOL), DENIED)
    wait(running, lambda: api.reason("Degraded"), "True/PodsRefused")
    assert DENIED in api.condition("Degraded")["message"]
    wait(running, lambda: "PodsRefused" in api.event_reasons())
    run_pods(api)
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": DENIED}
    api.patch("deployments", "merlot-broker", {"status": {"conditions": [failure]}}, "status")
    wait(running, lambda: api.reason("Degraded"), "True/PodsRefused")
    assert api.reason("Ready") == "True/Serving"
    api.patch("deployments", "merlot-broker", {"status": {"conditions": None}}, "status")
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")


def test_pod_that_never_ends_is_told(api: Api, running: SharedOperator) -> None:
    """Its node is gone: Kubernetes makes no other of its name."""
    api.create("tables", flights())
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    api.patch("pods", f"{POOL}-0", {"metadata": {"finalizers": ["test/held"]}})
    api.delete("pods", f"{POOL}-0")
    wait(running, lambda: api.reason("Degraded"), "True/PodStuck")
    api.patch("pods", f"{POOL}-0", {"metadata": {"finalizers": None}})
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")


def test_volumes_that_cannot_grow_hold_up_nothing_else(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights(tenants={"server": {"replicas": 1, "resources": {"storage": "10Gi"}}}))
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    live = api.get("statefulsets", POOL)
    [template] = live["spec"]["volumeClaimTemplates"]
    metadata = {"name": f"segments-{POOL}-0", "labels": template["metadata"]["labels"]}
    spec = {name: template["spec"][name] for name in ("accessModes", "resources")} | {"volumeName": "volume"}
    api.create("persistentvolumeclaims", {"metadata": metadata, "spec": spec})
    api.patch("persistentvolumeclaims", metadata["name"], {"status": {"phase": "Bound"}}, "status")
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    larger = {"replicas": 2, "resources": {"storage": "20Gi", "limits": {"memory": "3Gi"}}}
    api.patch("tables", "flights", {"spec": {"tenants": {"server": larger}}})
    wait(running, lambda: api.reason("Degraded"), "True/PoolNotApplied")
    assert "resize" in api.condition("Degraded")["message"]
    wait(running, lambda: api.get("statefulsets", POOL)["spec"]["replicas"], 2)
    changed = api.get("statefulsets", POOL)
    assert changed["metadata"]["uid"] == live["metadata"]["uid"]
    assert changed["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "3Gi"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"deepStore": {"uri": "file:///"}}, "spec.deepStore.uri: deep store is not allowed"),
        ({"deepStore": {"uri": "s3://another/merlot"}}, "spec.deepStore.uri: deep store is not allowed"),
        (
            {"ingestion": {"batch": [{**BATCH, "sourceUri": "file:///etc/passwd"}]}},
            "spec.ingestion.batch[0].sourceUri: source is not allowed",
        ),
        (
            {"ingestion": {"batch": [{**BATCH, "sourceUri": "s3://any/x?endpoint_override=169.254.169.254"}]}},
            "spec.ingestion.batch[0].sourceUri: source is not allowed",
        ),
    ],
)
def test_places_that_the_chart_does_not_allow_are_refused_and_reach_nobody(
    api: Api, running: SharedOperator, spec: dict[str, Any], field: str
) -> None:
    api.create("tables", flights(**spec))
    wait(running, lambda: api.reason("Accepted"), "False/NotAllowed")
    message = api.condition("Accepted")["message"]
    assert field in message
    assert "whoever runs Merlot may allow more by" in message
    assert api.list("jobs") == []
    assert api.get("statefulsets", POOL) is None
    api.patch("tables", "flights", {"spec": dict.fromkeys(spec)})
    wait(running, lambda: api.reason("Accepted").partition("/")[0], "True")


def test_places_that_are_not_allowed_any_more_start_no_batch_and_stop_nothing(
    api: Api, settings: dict[str, str], controller: Controller, tmp_path: Path
) -> None:
    """As after an upgrade from a version that asked nobody."""
    table = flights(ingestion={"batch": [{**BATCH, "sourceUri": "file:///incoming/*.csv", "format": "CSV"}]})
    with Operator(settings | {"MERLOT_SOURCE_PREFIXES": "file:///incoming"}, tmp_path / "before.log") as before:
        api.create("tables", table)
        wait(before, lambda: api.reason("Accepted"), "True/Valid")
        wait(before, lambda: len(api.children()), len(SHARED | OWN))
        assert api.list("jobs") == [], "the controller does not know the table yet"
    with Operator(settings, tmp_path / "after.log") as after:
        wait(after, lambda: api.reason("Accepted"), "False/NotAllowed")
        controller.tables = {"flights": table_word(servers={f"Server_{POOL}-0_8098": server_word()})}
        run_pods(api)
        wait(after, lambda: api.reason("Ready"), "True/Serving")
        [run] = api.get("tables", "flights")["status"]["batches"]
        assert run["state"] == "Waiting"
        assert "source is not allowed uri=file:///incoming/*.csv" in run["message"]
        after.settle()
        assert api.list("jobs") == []
    with Operator(settings | {"MERLOT_SOURCE_PREFIXES": "file:///incoming"}, tmp_path / "again.log") as again:
        wait(again, lambda: api.reason("Accepted"), "True/Valid")
        wait(again, lambda: len(api.list("jobs")), 1)


def test_refused_change_changes_nothing_and_takes_nothing_from_service(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    api.create("tables", flights(ingestion={"batch": [BATCH]}))
    wait(running, lambda: len(api.list("jobs")), 1)
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    fields = [one for one in flights()["spec"]["schema"]["fields"] if one["name"] != "minute"]
    tenants = {"server": {"name": "other", "replicas": 5}, "broker": {"replicas": 4}}
    wrong = {"schema": {"fields": fields}, "tenants": tenants, "deletionPolicy": "Delete", "suspend": True}
    api.patch("tables", "flights", {"spec": wrong})
    wait(running, lambda: api.reason("Accepted"), "False/ChangeRefused")
    running.settle()
    assert api.reason("Ready") == "True/Serving"
    assert api.reason("ConfigInSync") == "False/NotAccepted"
    live = api.get("statefulsets", POOL)
    assert live["spec"]["replicas"] == 1
    assert api.get("statefulsets", "merlot-tenant-other") is None
    assert api.get("deployments", "merlot-broker")["spec"]["replicas"] == 1
    [job] = api.list("jobs")
    assert not job["spec"]["suspend"]
    # A batch of the accepted spec ends while the change is refused.
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    api.patch("jobs", job["metadata"]["name"], {"status": _ended(ended)}, "status")
    wait(running, lambda: api.reason("TaskSucceeded"), "True/AllBatches")
    api.patch("tables", "flights", {"spec": {"schema": flights()["spec"]["schema"], "suspend": False}})
    wait(running, lambda: api.reason("Accepted"), "True/Valid")
    wait(running, lambda: (api.get("statefulsets", "merlot-tenant-other") or live)["spec"]["replicas"], 5)
    wait(running, lambda: api.get("deployments", "merlot-broker")["spec"]["replicas"], 4)


def _ended(condition: dict[str, Any]) -> dict[str, Any]:
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:00Z"}
    criteria = {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**times, "active": 0, "succeeded": 1, "conditions": [criteria, condition]}


def test_a_star_tree_that_columns_cannot_have_is_refused_with_its_path(api: Api, running: SharedOperator) -> None:
    """All that is wrong is named at once, and what was accepted before stays in force."""
    fields = [*flights()["spec"]["schema"]["fields"], {"name": "stops", "type": "STRING", "multiValue": True}]
    schema = {**flights()["spec"]["schema"], "fields": fields}
    api.create("tables", flights(schema=schema))
    wait(running, lambda: api.reason("Accepted"), "True/Valid")
    order, pairs = ["carrier", "stops", "karrier"], ["SUM__distance", "SUN__distance", "MAX__nothing", "AVG__stops"]
    tree = {"dimensionsSplitOrder": order, "functionColumnPairs": pairs}
    api.patch("tables", "flights", {"spec": {"indexing": {"starTreeIndexConfigs": [tree]}}})
    wait(running, lambda: api.reason("Accepted"), "False/Invalid")
    said, path = api.condition("Accepted")["message"], "spec.indexing.starTreeIndexConfigs[0]"
    for words in (
        'dimensionsSplitOrder[1]: column "stops" is multi-valued',
        'dimensionsSplitOrder[2]: no column "karrier" in spec.schema.fields; did you mean carrier?',
        'functionColumnPairs[1]: unknown function "SUN"; did you mean SUM?',
        'functionColumnPairs[2]: no column "nothing"',
        'functionColumnPairs[3]: column "stops" is multi-valued',
    ):
        assert f"{path}.{words}" in said
    assert api.get("tables", "flights")["status"]["revision"] == 1
    wait(running, lambda: "Invalid" in api.event_reasons())
    right = {"dimensionsSplitOrder": ["carrier"], "functionColumnPairs": ["SUM__distance"]}
    api.patch("tables", "flights", {"spec": {"indexing": {"starTreeIndexConfigs": [right]}}})
    wait(running, lambda: api.reason("Accepted"), "True/Valid")


def test_table_that_was_never_accepted_gets_no_servers(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights(indexing={"inverted": ["carrier"], "noDictionary": ["carrier"]}))
    wait(running, lambda: api.reason("Accepted"), "False/Invalid")
    running.settle()
    assert api.children() == SHARED
    api.patch("tables", "flights", {"spec": {"indexing": {"noDictionary": None}}})
    wait(running, api.children, SHARED | OWN)


def test_no_server_asked_for_stops_all_of_them_at_once(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    """As `kubectl scale` and autoscalers ask for it: volumes stay, nothing is moved."""
    api.create("tables", flights(tenants={"server": {"replicas": 2}}))
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    api.patch("tables", "flights", {"spec": {"tenants": {"server": {"replicas": 0}}}})
    wait(running, lambda: api.get("statefulsets", POOL)["spec"]["replicas"], 0)
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "False/ScaledToZero")
    wait(running, lambda: api.reason("Progressing"), "False/Settled")
    assert api.reason("Degraded") == "False/AsDeclared"
    assert not controller.drains
    api.patch("tables", "flights", {"spec": {"tenants": {"server": {"replicas": 2}}}})
    wait(running, lambda: api.get("statefulsets", POOL)["spec"]["replicas"], 2)
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "True/Serving")
