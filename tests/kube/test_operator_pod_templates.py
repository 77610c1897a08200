"""What Tables lay over their pods, as a real API server takes it."""

from __future__ import annotations

from typing import Any

import pytest
from operator_parts import Api, Operator, run_pods
from test_operator import OWN, POOL, SHARED, flights, wait

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

MEMORY = {"name": "segments", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
TOLERATION = {"key": "olap", "operator": "Exists", "effect": "NoSchedule"}


def with_template(role: str, **spec: Any) -> dict[str, Any]:
    return {"tenants": {role: {"podTemplate": {"metadata": {"annotations": {"team": "a"}}, "spec": spec}}}}


def spec_of(owner: Any) -> dict[str, Any]:
    return dict(owner["spec"]["template"]["spec"])


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
        api.create("tables", flights(**with_template("server", volumes=[{"name": "scratch", "emptyDri": {}}])))
        wait(operator, lambda: api.reason("Degraded"), "True/PoolNotApplied")
        assert "emptyDri" in api.condition("Degraded")["message"]
        assert api.get("statefulsets", POOL) is None
        api.create("tables", flights("wrong", **with_template("server", nodeSelector=["a list"])))
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
