"""The operator works with the rights that the chart grants, and no others: it runs with that account's token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, Operator, eventually, run_pods, server_word, table_word, write_kubeconfig
from tests.kube.test_chart import STORE, documents, render

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights" / "table.yaml"
RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
BATCH = {"name": "all", "sourceUri": "s3://bucket/*.parquet", "format": "PARQUET", "job": {"executors": 2}}
NEVER = {"secrets", "nodes", "pods/exec", "serviceaccounts/token", "clusterroles", "roles"}


CLUSTER_WIDE = pytest.param(
    "cluster-wide",
    marks=pytest.mark.slow("test_chart compares these rights with those used; test_chart_values uses them"),
)


@pytest.fixture(params=["namespaced", CLUSTER_WIDE])
def granted(request: pytest.FixtureRequest, helm: Path, api: Api) -> Iterator[str]:
    """The chart's rights are there, and nothing else of it; token of the operator's account."""
    values = {**STORE, "scope": {"clusterWide": request.param == "cluster-wide"}}
    done = render(helm, values, f"--namespace={api.namespace}")
    assert done.returncode == 0, done.stderr
    rights = [one for one in documents(done.stdout) if one["kind"] in RIGHTS and "-crds" not in one["metadata"]["name"]]
    api.apply(rights)
    yield api.account_token("merlot-operator")
    api.remove(rights)


def test_a_whole_life_needs_nothing_else(
    granted: str, api: Api, controller: Controller, settings: dict[str, str], tmp_path: Path, request: Any
) -> None:
    is_cluster_wide = "cluster-wide" in request.node.name
    kubeconfig = write_kubeconfig(tmp_path / "account", api.url, granted)
    environment = {
        **settings,
        "KUBECONFIG": str(kubeconfig),
        "MERLOT_NAMESPACE": "" if is_cluster_wide else api.namespace,
    }
    document = yaml.safe_load(FLIGHTS.read_text())
    document["spec"] |= {
        "ingestion": {"batch": [BATCH]},
        "deletionPolicy": "Retain",
        "tenants": {"server": {"replicas": 2}},
    }
    servers = {f"Server_merlot-server-flights-{number}_8098": server_word() for number in range(2)}
    with Operator(environment, tmp_path / "operator.log", program="tests.kube.quick_operator") as operator:
        log = lambda: operator.log  # noqa: E731
        api.create("tables", document)
        eventually(lambda: api.get("statefulsets", "merlot-server-flights") is not None, log=log)
        eventually(lambda: api.get("deployments", "merlot-minion") is not None, log=log)
        run_pods(api)
        controller.tables = {"flights": table_word(servers=servers)}
        eventually(lambda: api.reason("Ready"), "True/Serving", log=log)
        eventually(lambda: len(api.list("jobs")), 1, log=log)
        api.create("mergerolluptasks", _rollup())
        eventually(lambda: api.reason("Accepted", plural="mergerolluptasks"), "True/Valid", log=log)
        changed = {"spec": {"tenants": {"server": {"resources": {"limits": {"memory": "2Gi"}}}}}}
        api.patch("tables", "flights", changed)
        controller.tables = {"flights": table_word(2, {name: server_word(2, drained=True) for name in servers})}
        eventually(lambda: "PodRestarted" in api.event_reasons() or len(api.list("pods")) < 4, log=log)
        api.delete("mergerolluptasks", "flights")
        # No controller deletes files here.
        api.patch("tables", "flights", {"metadata": {"annotations": {"merlot.dev/force-delete": "true"}}})
        api.delete("tables", "flights")
        eventually(lambda: (api.get("tables", "flights"), api.children()), (None, set()), log=log)
        # In a namespace Kopf may ask for what only a whole cluster can grant, and does without.
        refused = [line for line in operator.log.splitlines() if "forbidden" in line.lower()]
        assert [line for line in refused if "at the cluster scope" not in line] == []
        assert not (is_cluster_wide and refused)


def test_what_is_granted_is_little(helm: Path, tmp_path: Path) -> None:
    for one in documents(render(helm, STORE).stdout):
        for rule in one.get("rules", ()):
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            is_bounded = "resourceNames" in rule or set(rule["verbs"]) <= {"create"}
            assert is_bounded or not NEVER & set(rule["resources"]), one["metadata"]["name"]


def test_nobody_else_gets_more(granted: str, merlot_api: Any, api: Api) -> None:
    """The operator may hand out the drivers' role, and no other."""
    account = f"--as=system:serviceaccount:{api.namespace}:merlot-operator"
    # Not `admin`: its rules are gathered by a controller, and without one it is empty, which anybody may hand out.
    binding = ("create", "rolebinding", "other", "--clusterrole=cluster-admin", f"--namespace={api.namespace}")
    done = merlot_api(*binding, "--serviceaccount=default:default", account)
    assert done.returncode != 0
    assert "attempting to grant RBAC permissions not currently held" in done.stderr
    for verb, kind in (("get", "secrets"), ("create", "pods"), ("create", "pods/exec"), ("delete", "namespaces")):
        answer = merlot_api("auth", "can-i", verb, kind, f"--namespace={api.namespace}", account)
        assert answer.stdout.strip() == "no", (verb, kind)


def _rollup() -> dict[str, Any]:
    level = {"name": "monthly", "bucketTimePeriod": "1mo", "bufferTimePeriod": "0d"}
    return {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "MergeRollupTask",
        "metadata": {"name": "flights"},
        "spec": {"table": "flights", "levels": [level]},
    }
