"""The operator as a process against a real API server: what it makes of Tables, and that it leaves well alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, Operator, eventually, run_pods, server_word, table_word
from tests.kube.sharing import SharedOperator

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights" / "table.yaml"
SHARED = {
    *(f"serviceaccounts/{name}" for name in ("merlot", "merlot-spark-driver", "merlot-spark-executor")),
    *(f"networkpolicies/merlot-{name}" for name in ("batch", "broker", "controller", "minion", "server")),
    *(f"deployments/merlot-{name}" for name in ("broker", "controller", "minion")),
    *(f"services/merlot-{name}" for name in ("broker", "controller")),
    *(f"poddisruptionbudgets/merlot-{name}" for name in ("broker", "controller")),
    "rolebindings/merlot-spark-driver",
}
POOL = "merlot-server-flights"
OWN = {f"statefulsets/{POOL}", f"services/{POOL}", f"poddisruptionbudgets/{POOL}"}
BATCH = {"name": "all", "sourceUri": "s3://bucket/flights/*.parquet", "format": "PARQUET"}


def flights(name: str = "flights", **spec: Any) -> dict[str, Any]:
    """The example's Table with other settings."""
    document = yaml.safe_load(FLIGHTS.read_text())
    document["metadata"]["name"] = name
    document["spec"] |= spec
    return dict(document)


def wait(operator: Operator | SharedOperator, claim: Callable[[], Any], expected: Any = True) -> None:
    eventually(claim, expected, log=lambda: operator.log)


def test_table_becomes_a_cluster_that_is_ready_when_everything_answers(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    api.create("tables", flights())
    wait(running, api.children, SHARED | OWN)
    wait(running, lambda: api.reason("Ready"), "False/NoBroker")
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "False/ControllerUnavailable")
    controller.tables = {"flights": table_word(servers={f"Server_{POOL}-0_8098": server_word()})}
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    assert api.reason("Accepted") == "True/Valid"
    assert api.reason("ConfigInSync") == "True/AllPods"
    assert api.reason("SegmentsAvailable") == "True/AllLoaded"
    assert api.reason("Degraded") == "False/AsDeclared"
    table = api.get("tables", "flights")
    status = table["status"]
    assert status["observedGeneration"] == table["metadata"]["generation"]
    assert (status["segments"], status["totalDocs"], status["size"]) == (3, 336_776, "9.1 MiB")
    assert (status["brokers"], status["servers"], status["serverReplicas"]) == ("1/1", "1/1", 1)
    assert "Ready" in {condition["type"] for condition in status["conditions"]}
    wait(running, lambda: "Serving" in api.event_reasons())


def test_second_pass_writes_nothing_and_a_restart_only_whose_the_namespace_is(
    api: Api, controller: Controller, operator: Operator
) -> None:
    controller.tables = {"flights": table_word()}
    with operator:
        api.create("tables", flights(ingestion={"batch": [BATCH]}))
        wait(operator, lambda: len(api.children()), len(SHARED | OWN) + 1)
        run_pods(api)
        wait(operator, lambda: api.reason("Ready"), "True/Serving")
        operator.settle()
        before = api.versions()
        operator.settle()
        assert api.versions() == before
    with operator:
        operator.settle()
        assert operator.metric("merlot_operator_writes") == 1
        assert api.versions() == before
        assert api.get("leases", "merlot-operator")["spec"]["holderIdentity"] in operator.log


def test_deleted_and_edited_children_come_back(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights())
    wait(running, api.children, SHARED | OWN)
    for child in sorted(SHARED | OWN):
        api.delete(*child.split("/"))
    wait(running, api.children, SHARED | OWN)
    api.patch("deployments", "merlot-broker", {"spec": {"replicas": 7}})
    wait(running, lambda: api.get("deployments", "merlot-broker")["spec"]["replicas"], 1)
    container = {"name": "server", "image": "somebody/else:1"}
    template = {"spec": {"template": {"spec": {"containers": [container]}}}}
    api.patch("statefulsets", POOL, template)
    wait(running, lambda: _image(api.get("statefulsets", POOL)), "merlot-runtime:1")
    api.patch("services", POOL, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
    wait(running, api.children, SHARED | OWN)


def _image(owner: Any) -> str:
    return str(owner["spec"]["template"]["spec"]["containers"][0]["image"])


def test_deleted_table_leaves_nothing(api: Api, controller: Controller, running: SharedOperator) -> None:
    api.create("tables", flights(ingestion={"batch": [BATCH]}))
    controller.tables = {"flights": table_word()}
    wait(running, lambda: len(api.list("jobs")), 1)
    assert api.get("tables", "flights")["metadata"]["finalizers"] == ["merlot.dev/cleanup"]
    api.delete("tables", "flights")
    wait(running, lambda: api.get("tables", "flights"), None)
    wait(running, api.children, set())


def test_other_tables_keep_what_they_share_with_a_deleted_one(api: Api, running: SharedOperator) -> None:
    tenant = {"tenants": {"server": {"name": "shared", "replicas": 2}}}
    for name in ("one", "two"):
        api.create("tables", flights(name, **tenant))
    pool = {f"{plural}/merlot-tenant-shared" for plural in ("statefulsets", "services", "poddisruptionbudgets")}
    wait(running, api.children, SHARED | pool)
    api.delete("tables", "one")
    wait(running, lambda: api.get("tables", "one"), None)
    running.settle()
    assert api.children() == SHARED | pool
    api.delete("tables", "two")
    wait(running, api.children, set())


def test_change_that_a_live_table_cannot_take_is_refused_with_its_path(api: Api, running: SharedOperator) -> None:
    """CEL cannot compare lists of columns: that one was taken away is found by the operator."""
    api.create("tables", flights())
    wait(running, lambda: api.get("tables", "flights").get("status", {}).get("revision"), 1)
    fields = [one for one in flights()["spec"]["schema"]["fields"] if one["name"] != "minute"]
    api.patch("tables", "flights", {"spec": {"schema": {"fields": fields}}})
    wait(running, lambda: api.reason("Accepted"), "False/ChangeRefused")
    assert "column 'minute' is gone" in api.condition("Accepted")["message"]
    api.create("tables", flights("other"))
    wait(running, lambda: api.get("tables", "other").get("status", {}).get("revision"), 1)
    api.patch("tables", "flights", {"spec": {"schema": flights()["spec"]["schema"]}})
    wait(running, lambda: api.reason("Accepted"), "True/Valid")
    wait(running, lambda: "ChangeRefused" in api.event_reasons())


def test_problem_between_fields_is_named_by_its_path(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights(indexing={"inverted": ["carrier"], "noDictionary": ["carrier"]}))
    wait(running, lambda: api.reason("Accepted"), "False/Invalid")
    assert "spec.indexing.inverted[0]" in api.condition("Accepted")["message"]
    api.patch("tables", "flights", {"spec": {"indexing": {"noDictionary": None}}})
    wait(running, lambda: api.reason("Accepted"), "True/Valid")


def test_controller_that_is_away_is_told_and_healed(api: Api, controller: Controller, running: SharedOperator) -> None:
    controller.tables = {"flights": table_word()}
    api.create("tables", flights())
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    controller.is_up = False
    wait(running, lambda: api.reason("Degraded"), "True/ControllerUnavailable")
    assert api.reason("Ready") == "True/Serving"
    assert api.get("tables", "flights")["status"]["segments"] == 3
    controller.is_up = True
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")


def test_pod_that_cannot_start_says_why(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights())
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    run_pods(api, is_ready=False)
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "merlot-runtime:1"'}
    container = {"name": "server", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    states = {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}
    api.patch("pods", f"{POOL}-0", {"status": states}, "status")
    wait(running, lambda: api.reason("Degraded"), "True/ImageNotFound")
    assert "Back-off pulling image" in api.condition("Degraded")["message"]
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": None}
    api.patch("pods", f"{POOL}-0", {"status": ready}, "status")
    wait(running, lambda: api.reason("Degraded") != "True/ImageNotFound")
    wait(running, lambda: "ImageNotFound" in api.event_reasons())


def test_servers_shrink_only_when_their_segments_have_moved(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    server = f"Server_{POOL}-1_8098"
    api.create("tables", flights(tenants={"server": {"replicas": 2}}))
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    run_pods(api)
    controller.tables = {"flights": table_word(servers={server: server_word()})}
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    api.patch("tables", "flights", {"spec": {"tenants": {"server": {"replicas": 1}}}})
    wait(running, lambda: f"{server}/drain?leaving=true" in controller.drains)
    wait(running, lambda: "segments move" in api.condition("Progressing").get("message", ""))
    running.settle(4)
    assert api.get("statefulsets", POOL)["spec"]["replicas"] == 2
    gone = server_word(assigned=0, draining=True, leaving=True, drained=True)
    controller.tables = {"flights": table_word(servers={server: gone})}
    wait(running, lambda: api.get("statefulsets", POOL)["spec"]["replicas"], 1)


def test_new_image_restarts_one_drained_pod_after_the_other(
    api: Api, controller: Controller, operator: Operator, settings: dict[str, str], tmp_path: Path
) -> None:
    names = [f"{POOL}-{number}" for number in range(2)]
    servers = {name: f"Server_{name}_8098" for name in names}
    controller.tables = {"flights": table_word(replication=2, servers={one: server_word() for one in servers.values()})}
    with operator:
        api.create("tables", flights(replication=2))
        wait(operator, lambda: len(api.children()), len(SHARED | OWN))
        run_pods(api)
        wait(operator, lambda: api.reason("Ready"), "True/Serving")
        uids = {name: api.get("pods", name)["metadata"]["uid"] for name in names}
    with Operator({**settings, "MERLOT_RUNTIME_IMAGE": "merlot-runtime:2"}, tmp_path / "second.log") as second:
        for name, other in (reversed(names), names):
            wait(second, lambda name=name: f"{servers[name]}/drain" in controller.drains)
            wait(second, lambda: api.reason("RestartPending"), "True/SettingsChanged")
            second.settle(4)
            assert api.get("pods", name)["metadata"]["uid"] == uids[name]
            words = {servers[name]: server_word(draining=True, drained=True), servers[other]: server_word()}
            controller.tables = {"flights": table_word(replication=2, servers=words)}
            wait(second, lambda name=name: api.get("pods", name), None)
            second.settle(4)
            assert api.get("pods", other) is not None
            words = {server: server_word() for server in servers.values()}
            controller.tables = {"flights": table_word(replication=2, servers=words)}
            controller.drains.clear()
            run_pods(api)
        wait(second, lambda: api.reason("RestartPending"), "False/UpToDate")
        assert {_image(api.get("statefulsets", POOL)), _image(api.get("deployments", "merlot-broker"))} == {
            "merlot-runtime:2"
        }
        wait(operator, lambda: "PodRestarted" in api.event_reasons())


def test_new_version_of_the_operator_restarts_nothing(
    api: Api, controller: Controller, operator: Operator, settings: dict[str, str], tmp_path: Path
) -> None:
    controller.tables = {"flights": table_word()}
    with operator:
        api.create("tables", flights())
        wait(operator, lambda: len(api.children()), len(SHARED | OWN))
        run_pods(api)
        wait(operator, lambda: api.reason("Ready"), "True/Serving")
        operator.settle()
    before, templates = api.versions(), _templates(api)
    with Operator(settings, tmp_path / "later.log", program="tests.kube.upgraded_operator") as later:
        later.settle()
        assert _templates(api) == templates
        unchanged = {name: version for name, version in api.versions().items() if name.startswith("pods/")}
        assert unchanged.items() <= before.items()
        # A set's template is for pods that start anyway: nobody but the operator deletes pods of one with OnDelete.
        assert _grace(api.get("statefulsets", POOL)) == 67
        more = {"broker": {"resources": {"limits": {"memory": "2Gi"}}}}
        api.patch("tables", "flights", {"spec": {"tenants": more}})
        wait(later, lambda: _grace(api.get("deployments", "merlot-broker")), 52)


def _templates(api: Api) -> dict[str, Any]:
    """What Kubernetes would roll by itself if it changed."""
    return {one["metadata"]["name"]: one["spec"]["template"] for one in api.list("deployments")}


def _grace(owner: Any) -> int:
    return int(owner["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])


def test_table_that_moves_to_a_tenant_keeps_its_servers_until_the_segments_have_moved(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    server = f"Server_{POOL}-0_8098"
    api.create("tables", flights())
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    run_pods(api)
    controller.tables = {"flights": table_word(servers={server: server_word()})}
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    api.patch("tables", "flights", {"spec": {"tenants": {"server": {"name": "shared"}}}})
    wait(running, lambda: api.get("statefulsets", "merlot-tenant-shared") is not None)
    running.settle()
    assert api.get("statefulsets", POOL) is not None
    controller.tables = {"flights": table_word(2, servers={server: server_word(assigned=0)})}
    wait(running, lambda: api.get("statefulsets", POOL), None)


def test_suspended_table_stops_and_comes_back(api: Api, controller: Controller, running: SharedOperator) -> None:
    controller.tables = {"flights": table_word()}
    api.create("tables", flights(tenants={"server": {"replicas": 3}}))
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "True/Serving")
    api.patch("tables", "flights", {"spec": {"suspend": True}})
    wait(running, lambda: api.get("statefulsets", POOL)["spec"]["replicas"], 0)
    run_pods(api)
    wait(running, lambda: api.reason("Ready"), "False/Suspended")
    assert not controller.drains
    api.patch("tables", "flights", {"spec": {"suspend": False}})
    wait(running, lambda: api.get("statefulsets", POOL)["spec"]["replicas"], 3)


def test_volume_grows_claim_by_claim_and_the_set_is_made_anew_around_its_pods(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    controller.tables = {"flights": table_word()}
    api.create("tables", flights(tenants={"server": {"replicas": 1, "resources": {"storage": "10Gi"}}}))
    wait(running, lambda: len(api.children()), len(SHARED | OWN))
    [template] = api.get("statefulsets", POOL)["spec"]["volumeClaimTemplates"]
    metadata = {"name": f"segments-{POOL}-0", "labels": template["metadata"]["labels"]}
    spec = {name: template["spec"][name] for name in ("accessModes", "resources")}
    spec |= {"storageClassName": "grows", "volumeName": "volume"}
    api.create("persistentvolumeclaims", {"metadata": metadata, "spec": spec})
    api.patch("persistentvolumeclaims", metadata["name"], {"status": {"phase": "Bound"}}, "status")
    run_pods(api)
    pod, uid = api.get("pods", f"{POOL}-0"), api.get("statefulsets", POOL)["metadata"]["uid"]
    with _growing_class(api):
        api.patch("tables", "flights", {"spec": {"tenants": {"server": {"resources": {"storage": "20Gi"}}}}})
        wait(running, lambda: _size(api.get("persistentvolumeclaims", metadata["name"])), "20Gi")
        # Nobody collects orphans here: the finalizer that asks for it is taken off by hand.
        wait(running, lambda: api.get("statefulsets", POOL)["metadata"].get("finalizers"), ["orphan"])
        api.patch("statefulsets", POOL, {"metadata": {"finalizers": None}})
        wait(running, lambda: (api.get("statefulsets", POOL) or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid)
    [template] = api.get("statefulsets", POOL)["spec"]["volumeClaimTemplates"]
    assert _size(template) == "20Gi"
    assert api.get("pods", f"{POOL}-0")["metadata"]["uid"] == pod["metadata"]["uid"]
    wait(running, lambda: "PoolRecreated" in api.event_reasons())


def _size(claim: Any) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])


def _growing_class(api: Api) -> Any:
    from contextlib import contextmanager

    @contextmanager
    def there() -> Iterator[None]:
        url = f"{api.url}/apis/storage.k8s.io/v1/storageclasses"
        body = {"metadata": {"name": "grows"}, "provisioner": "test/none", "allowVolumeExpansion": True}
        api._checked(api._session.post(url, json=body))
        try:
            yield
        finally:
            api._checked(api._session.delete(f"{url}/grows"))

    return there()


def test_stranger_of_the_same_name_is_not_taken_over(api: Api, running: SharedOperator) -> None:
    foreign = {"metadata": {"name": "merlot-broker"}, "spec": {"ports": [{"port": 1}]}}
    api.create("services", foreign)
    api.create("tables", flights())
    wait(running, lambda: api.reason("Degraded"), "True/ClusterNotApplied")
    assert "is not the operator's" in api.condition("Degraded")["message"]
    wait(running, api.children, (SHARED - {"services/merlot-broker"}) | OWN)
    api.delete("services", "merlot-broker")
    wait(running, api.children, SHARED | OWN)
    wait(running, lambda: api.reason("Degraded") != "True/ClusterNotApplied")


def test_an_upsert_table_is_run_like_any_other_while_it_waits_for_its_config(api: Api, running: SharedOperator) -> None:
    spec = flights()["spec"]
    schema = {**spec["schema"], "primaryKey": ["flight", "time_hour"]}
    api.create("tables", flights(upsert={"configRef": "latest"}, schema=schema))
    wait(running, lambda: api.reason("UpsertConfigured"), "False/NoUpsertConfig")
    wait(running, lambda: api.reason("Accepted"), "True/Valid")
    wait(running, api.children, SHARED | OWN)
