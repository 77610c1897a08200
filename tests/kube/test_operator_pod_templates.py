"""What Tables lay over their pods, as a real API server takes it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.hostile_templates import all_at_once, refused, taken
from tests.kube.operator_parts import Api, run_pods
from tests.kube.sharing import SharedOperator
from tests.kube.test_operator import OWN, POOL, SHARED, flights, wait
from tests.unit.operator.pool_parts import CONFIG

from merlot_operator.restrictions import problems

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

ROLES = ("server", "broker")
INIT = {"name": "init", "image": "init"}
MEMORY = {"name": "segments", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
TOLERATION = {"key": "olap", "operator": "Exists", "effect": "NoSchedule"}


def with_template(role: str, **spec: Any) -> dict[str, Any]:
    return {"tenants": {role: {"podTemplate": {"metadata": {"annotations": {"team": "a"}}, "spec": spec}}}}


def templated(role: str, template: Any, name: str = "flights") -> dict[str, Any]:
    return flights(name, tenants={role: {"podTemplate": template}})


def spec_of(owner: Any) -> dict[str, Any]:
    return dict(owner["spec"]["template"]["spec"])


@pytest.mark.parametrize("role", ROLES)
def test_template_that_says_what_a_pod_may_do_is_refused_at_apply(api: Api, role: str) -> None:
    found = {name: api.refusal("tables", templated(role, template)) for name, (template, _) in refused(role).items()}
    assert [name for name, text in found.items() if f"spec.tenants.{role}.podTemplate." not in text] == []
    assert [name for name, (_, field) in refused(role).items() if field not in found[name]] == []


@pytest.mark.parametrize("role", ROLES)
def test_template_that_says_where_pods_run_is_kept_whole(api: Api, role: str) -> None:
    assert api.refusal("tables", templated(role, taken(role))) == ""
    made = api.create("tables", templated(role, taken(role)))
    assert made["spec"]["tenants"][role]["podTemplate"] == taken(role)


@pytest.mark.parametrize("role", ROLES)
def test_client_that_asks_for_no_validation_stores_nothing_that_is_refused(api: Api, role: str) -> None:
    spec = {**all_at_once(role)["spec"], "containers": [{"name": role, "image": "evil"}]}
    made = api.create("tables", templated(role, {"spec": spec}))
    kept = made["spec"]["tenants"][role]["podTemplate"]
    assert list(problems(made["spec"], CONFIG)) == []
    assert kept["spec"]["nodeSelector"] == {"disk": "nvme"}
    assert "evil" not in str(kept)


def test_secret_that_is_not_meant_for_tables_is_refused(api: Api, running: SharedOperator) -> None:
    store = {"uri": "s3://lake/flights", "secretRef": "database-password"}
    api.create("tables", flights(deepStore=store))
    wait(running, lambda: api.reason("Accepted"), "False/Invalid")
    message = api.condition("Accepted")["message"]
    assert message.startswith("spec.deepStore.secretRef: ")
    assert "deepStore.tableSecrets" in message
    running.settle()
    assert "database-password" not in str([api.list(plural) for plural in ("deployments", "statefulsets", "jobs")])
    api.patch("tables", "flights", {"spec": {"deepStore": {"secretRef": "merlot-lake"}}})
    wait(running, lambda: api.reason("Accepted"), "True/Valid")
    wait(running, lambda: "merlot-lake" in str(api.get("statefulsets", POOL)))


def test_servers_and_brokers_get_what_is_laid_over_them_once(api: Api, running: SharedOperator) -> None:
    tenants = with_template("server", nodeSelector={"disk": "nvme"}, tolerations=[TOLERATION], volumes=[MEMORY])
    # The API server drops empty texts: what it does not take over is not applied for ever.
    tenants["tenants"] |= with_template("broker", priorityClassName="")["tenants"]
    api.create("tables", flights(**tenants))
    wait(running, api.children, SHARED | OWN)
    servers, brokers = api.get("statefulsets", POOL), api.get("deployments", "merlot-broker")
    assert servers["spec"].get("volumeClaimTemplates", []) == []
    assert spec_of(servers)["nodeSelector"] == {"disk": "nvme"}
    assert spec_of(servers)["tolerations"] == [TOLERATION]
    assert MEMORY in spec_of(servers)["volumes"]
    for owner in (servers, brokers):
        metadata = owner["spec"]["template"]["metadata"]
        assert metadata["annotations"]["team"] == "a"
        assert metadata["labels"].items() >= owner["spec"]["selector"]["matchLabels"].items()
    run_pods(api)
    running.settle()
    before = api.versions()
    running.settle()
    assert api.versions() == before


def test_claim_with_the_pools_label_and_a_name_of_its_own_is_left_alone(api: Api, running: SharedOperator) -> None:
    restored = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "segments-restored",
            "labels": {"merlot.dev/pool": POOL, "app.kubernetes.io/managed-by": "merlot-operator"},
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    api.create("persistentvolumeclaims", restored)
    api.create("tables", flights())
    wait(running, lambda: api.get("statefulsets", POOL) is not None)
    running.settle()
    assert "pass failed" not in running.log
    assert api.get("persistentvolumeclaims", "segments-restored") is not None


def test_template_that_kubernetes_refuses_is_told_and_healed(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights(**with_template("server", tolerations=[{"operator": "Perhaps"}])))
    wait(running, lambda: api.reason("Degraded"), "True/PoolNotApplied")
    assert "Perhaps" in api.condition("Degraded")["message"]
    assert api.get("statefulsets", POOL) is None
    api.create("tables", flights("wrong", **with_template("server", affinity={"nodeAffinity": ["a list"]})))
    wait(running, lambda: api.reason("Degraded", "wrong"), "True/PoolNotApplied")
    api.delete("tables", "wrong")
    wait(running, lambda: api.get("tables", "wrong"), None)
    api.create("tables", flights("other"))
    wait(running, lambda: api.get("statefulsets", "merlot-server-other") is not None)
    api.patch("tables", "flights", {"spec": {"tenants": None}})
    wait(running, lambda: api.get("statefulsets", POOL) is not None)
    wait(running, lambda: api.reason("Degraded") != "True/PoolNotApplied")


def test_servers_that_get_a_volume_of_their_own_are_made_anew_around_their_pods(
    api: Api, running: SharedOperator
) -> None:
    api.create("tables", flights())
    wait(running, api.children, SHARED | OWN)
    run_pods(api)
    uid = api.get("statefulsets", POOL)["metadata"]["uid"]
    pod = api.get("pods", f"{POOL}-0")["metadata"]["uid"]
    api.patch("tables", "flights", {"spec": with_template("server", volumes=[MEMORY])})
    # Nobody collects orphans here: the finalizer that asks for it is taken off by hand.
    wait(running, lambda: api.get("statefulsets", POOL)["metadata"].get("finalizers"), ["orphan"])
    assert api.get("pods", f"{POOL}-0")["metadata"]["uid"] == pod
    api.patch("statefulsets", POOL, {"metadata": {"finalizers": None}})
    wait(running, lambda: (api.get("statefulsets", POOL) or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid)
    wait(running, lambda: "PoolRecreated" in api.event_reasons())
