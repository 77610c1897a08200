"""What Tables lay over their pods, as a real API server takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from operator_parts import Api, Operator, run_pods
from test_operator import OWN, POOL, SHARED, flights, wait
from tests.hostile_templates import all_at_once, refused, taken
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


@pytest.mark.usefixtures("open_templates")
def test_operator_refuses_what_its_own_release_does_not_allow(api: Api, operator: Operator) -> None:
    """The CRD is one for all releases: another one left templates unrestricted."""
    with operator:
        api.create("tables", templated("server", {"spec": {"hostPID": True, "serviceAccountName": "merlot-operator"}}))
        wait(operator, lambda: api.reason("Accepted"), "False/Invalid")
        message = api.condition("Accepted")["message"]
        assert "spec.tenants.server.podTemplate.spec.serviceAccountName: unknown field" in message
        assert "only with podTemplates.unrestricted of the chart" in message
        events = [one["message"] for one in api.list("events") if one["reason"] == "Invalid"]
        assert [text for text in events if "serviceAccountName" in text]
        operator.settle()
        assert api.get("statefulsets", POOL) is None
        accepted = flights("other")
        api.create("tables", accepted)
        wait(operator, lambda: api.get("statefulsets", "merlot-server-other") is not None)
        # A change that is refused changes nothing.
        before = spec_of(api.get("statefulsets", "merlot-server-other"))
        tenants = {"server": {"podTemplate": {"spec": {"hostPID": True}}}}
        api.patch("tables", "other", {"spec": {"tenants": tenants, "replication": 2}})
        wait(operator, lambda: api.reason("Accepted", "other"), "False/Invalid")
        operator.settle()
        assert spec_of(api.get("statefulsets", "merlot-server-other")) == before


@pytest.mark.usefixtures("open_templates")
def test_pods_may_be_anything_where_the_chart_leaves_them_unrestricted(
    api: Api, settings: dict[str, str], tmp_path: Path
) -> None:
    with Operator(settings | {"MERLOT_POD_TEMPLATES": "unrestricted"}, tmp_path / "open.log") as operator:
        account = {"serviceAccountName": "team", "securityContext": {"runAsUser": 7}, "initContainers": [INIT]}
        api.create("tables", templated("server", {"spec": account}))
        wait(operator, lambda: api.get("statefulsets", POOL) is not None)
        made = spec_of(api.get("statefulsets", POOL))
        assert (made["serviceAccountName"], made["securityContext"]["runAsUser"]) == ("team", 7)
        assert [one["name"] for one in made["initContainers"]] == ["init"]


def test_secret_that_is_not_meant_for_tables_is_refused(api: Api, settings: dict[str, str], tmp_path: Path) -> None:
    store = {"uri": "s3://lake/flights", "secretRef": "database-password"}
    with Operator(settings | {"MERLOT_DEEP_STORE_PREFIXES": "s3://lake"}, tmp_path / "lake.log") as operator:
        api.create("tables", flights(deepStore=store))
        wait(operator, lambda: api.reason("Accepted"), "False/Invalid")
        message = api.condition("Accepted")["message"]
        assert message.startswith("spec.deepStore.secretRef: ")
        assert "deepStore.tableSecrets" in message
        operator.settle()
        assert "database-password" not in str([api.list(plural) for plural in ("deployments", "statefulsets", "jobs")])
        api.patch("tables", "flights", {"spec": {"deepStore": {"secretRef": "merlot-lake"}}})
        wait(operator, lambda: api.reason("Accepted"), "True/Valid")
        wait(operator, lambda: "merlot-lake" in str(api.get("statefulsets", POOL)))


def test_servers_and_brokers_get_what_is_laid_over_them_once(api: Api, operator: Operator) -> None:
    tenants = with_template("server", nodeSelector={"disk": "nvme"}, tolerations=[TOLERATION], volumes=[MEMORY])
    # The API server drops empty texts: what it does not take over is not applied for ever.
    tenants["tenants"] |= with_template("broker", priorityClassName="")["tenants"]
    with operator:
        api.create("tables", flights(**tenants))
        wait(operator, api.children, SHARED | OWN)
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
        operator.settle()
        before = api.versions()
        operator.settle()
        assert api.versions() == before


def test_claim_with_the_pools_label_and_a_name_of_its_own_is_left_alone(api: Api, operator: Operator) -> None:
    restored = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "segments-restored",
            "labels": {"merlot.dev/pool": POOL, "app.kubernetes.io/managed-by": "merlot-operator"},
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    with operator:
        api.create("persistentvolumeclaims", restored)
        api.create("tables", flights())
        wait(operator, lambda: api.get("statefulsets", POOL) is not None)
        operator.settle()
        assert "pass failed" not in operator.log
        assert api.get("persistentvolumeclaims", "segments-restored") is not None


def test_template_that_kubernetes_refuses_is_told_and_healed(api: Api, operator: Operator) -> None:
    with operator:
        api.create("tables", flights(**with_template("server", tolerations=[{"operator": "Perhaps"}])))
        wait(operator, lambda: api.reason("Degraded"), "True/PoolNotApplied")
        assert "Perhaps" in api.condition("Degraded")["message"]
        assert api.get("statefulsets", POOL) is None
        api.create("tables", flights("wrong", **with_template("server", affinity={"nodeAffinity": ["a list"]})))
        wait(operator, lambda: api.reason("Degraded", "wrong"), "True/PoolNotApplied")
        api.delete("tables", "wrong")
        wait(operator, lambda: api.get("tables", "wrong"), None)
        api.create("tables", flights("other"))
        wait(operator, lambda: api.get("statefulsets", "merlot-server-other") is not None)
        api.patch("tables", "flights", {"spec": {"tenants": None}})
        wait(operator, lambda: api.get("statefulsets", POOL) is not None)
        wait(operator, lambda: api.reason("Degraded") != "True/PoolNotApplied")


def test_servers_that_get_a_volume_of_their_own_are_made_anew_around_their_pods(api: Api, operator: Operator) -> None:
    with operator:
        api.create("tables", flights())
        wait(operator, api.children, SHARED | OWN)
        run_pods(api)
        uid = api.get("statefulsets", POOL)["metadata"]["uid"]
        pod = api.get("pods", f"{POOL}-0")["metadata"]["uid"]
        api.patch("tables", "flights", {"spec": with_template("server", volumes=[MEMORY])})
        # Nobody collects orphans here: the finalizer that asks for it is taken off by hand.
        wait(operator, lambda: api.get("statefulsets", POOL)["metadata"].get("finalizers"), ["orphan"])
        assert api.get("pods", f"{POOL}-0")["metadata"]["uid"] == pod
        api.patch("statefulsets", POOL, {"metadata": {"finalizers": None}})
        wait(operator, lambda: (api.get("statefulsets", POOL) or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid)
        assert "PoolRecreated" in api.event_reasons()
