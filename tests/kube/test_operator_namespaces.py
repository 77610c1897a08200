"""Several namespaces: one that the operator loses its rights in holds up no other, and is taken up again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, Operator, eventually, run_pods, write_kubeconfig
from tests.kube.test_chart import STORE, documents, environment, render
from tests.kube.test_chart_rights import RIGHTS
from tests.kube.test_operator import flights

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]


@pytest.fixture
def served(helm: Path, api: Api, other: Api, controller: Controller, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment of an operator of both, whose rights are there."""
    values = {**STORE, "scope": {"namespaces": [api.namespace, other.namespace]}}
    rendered = documents(render(helm, values, f"--namespace={api.namespace}").stdout)
    rights = [one for one in rendered if one["kind"] in RIGHTS and "-crds" not in str(one["metadata"])]
    api.apply(rights)
    yield environment(rendered) | {
        "KUBECONFIG": str(write_kubeconfig(tmp_path / "account", api.url, api.account_token("merlot-operator"))),
        "MERLOT_METASTORE": f"sqlite://{tmp_path}/{{namespace}}.db",
        "MERLOT_CONTROLLER_URL": controller.url,
        "MERLOT_LOG_FORMAT": "line",
    }
    api.remove(rights)


def taken_away(place: Api) -> dict[str, Any]:
    """The operator has no rights there any more; the binding that gave it some."""
    binding = place.get("rolebindings", "merlot-operator")
    place.delete("rolebindings", "merlot-operator")
    return {"metadata": {"name": "merlot-operator"}, "roleRef": binding["roleRef"], "subjects": binding["subjects"]}


def test_a_namespace_that_is_forbidden_is_left_out_until_it_is_back(
    api: Api, other: Api, served: dict[str, str], tmp_path: Path
) -> None:
    with Operator(served, tmp_path / "operator.log", program="tests.kube.watchful_operator") as operator:
        log = lambda: operator.log  # noqa: E731
        for place in (api, other):
            place.create("tables", flights())
            eventually(lambda: place.reason("Accepted"), "True/Valid", log=log)  # noqa: B023
        binding = taken_away(other)
        eventually(lambda: f"left out: namespace {other.namespace}" in operator.readiness(), log=log)
        assert operator.metric("merlot_operator_namespace_served") == 1
        # Kopf alone would end after the sixth.
        eventually(lambda: "Request attempt #8 failed; will retry" in operator.log, log=log)
        api.create("tables", flights("more"))
        eventually(lambda: api.reason("Accepted", "more"), "True/Valid", log=log)
        other.create("rolebindings", binding)
        other.create("tables", flights("more"))
        eventually(lambda: other.reason("Accepted", "more"), "True/Valid", log=log)
        assert "left out" not in operator.readiness()
        assert operator.exit_code() is None


def test_a_namespace_that_is_not_there_at_the_start_is_taken_up_later(
    api: Api, other: Api, served: dict[str, str], tmp_path: Path
) -> None:
    binding = taken_away(other)
    with Operator(served, tmp_path / "operator.log", program="tests.kube.watchful_operator") as operator:
        log = lambda: operator.log  # noqa: E731
        for place in (api, other):
            place.create("tables", flights())
        eventually(lambda: api.reason("Accepted"), "True/Valid", log=log)
        assert other.get("tables", "flights").get("status") is None
        other.create("rolebindings", binding)
        eventually(lambda: other.reason("Accepted"), "True/Valid", log=log)


def test_a_namespace_that_goes_holds_no_table_once_its_first_pod_is_deleted(
    merlot_api: Any, api: Api, other: Api, served: dict[str, str], tmp_path: Path
) -> None:
    """With the pods Kubernetes begins, and then deletes the operator's rights as well as the Tables."""
    with Operator(served, tmp_path / "operator.log") as operator:
        log = lambda: operator.log  # noqa: E731
        for place in (api, other):
            place.create("tables", flights(deletionPolicy="Delete"))
            eventually(lambda: "revision" in (place.get("tables", "flights").get("status") or {}), log=log)  # noqa: B023
        eventually(lambda: other.get("deployments", "merlot-broker") is not None, log=log)
        run_pods(other)
        merlot_api.check("delete", "namespace", other.namespace, "--wait=false")
        other.delete("pods", "merlot-broker-0")
        eventually(lambda: other.get("tables", "flights")["metadata"].get("finalizers"), None, log=log)
        taken_away(other)
        api.patch("tables", "flights", {"spec": {"limits": {"timeoutMs": 5000}}})
        eventually(lambda: api.get("tables", "flights")["status"]["revision"], 2, log=log)
        assert other.get("tables", "flights")["metadata"].get("finalizers") is None, "it was not put back"
