"""Whatever the chart is told, its operator starts with the rights that the chart grants, and takes up Tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, Operator, eventually, write_kubeconfig
from tests.kube.test_chart import STORE, documents, environment, render
from tests.kube.test_chart_rights import FLIGHTS, RIGHTS

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

NO_EXECUTORS = {"spark": {"executors": False}}
ALL = {"scope": {"clusterWide": True}}
LIST = {"scope": {"namespaces": ["FIRST", "SECOND"]}}
"""Stand for the namespaces of the test."""
VALUES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "no executors": NO_EXECUTORS,
    "no network policies": {"networkPolicies": False},
    "a list": LIST,
    "a list, no executors": LIST | NO_EXECUTORS,
    "cluster-wide": ALL,
    "cluster-wide, no executors": ALL | NO_EXECUTORS,
}


OTHERS = pytest.mark.slow("test_what_is_granted_is_what_the_operator_uses has the same parts of the chart")


@pytest.mark.parametrize(
    "name",
    [
        "as it comes",
        "no network policies",
        "a list, no executors",
        "cluster-wide",
        *(pytest.param(name, marks=OTHERS) for name in ("no executors", "a list", "cluster-wide, no executors")),
    ],
)
def test_a_table_is_taken_up_with_the_rights_that_the_chart_grants(
    helm: Path, api: Api, other: Api, controller: Controller, tmp_path: Path, name: str
) -> None:
    text = yaml.safe_dump({**STORE, **VALUES[name]}).replace("FIRST", api.namespace).replace("SECOND", other.namespace)
    done = render(helm, yaml.safe_load(text), f"--namespace={api.namespace}")
    assert done.returncode == 0, done.stderr
    rendered = documents(done.stdout)
    rights = [one for one in rendered if one["kind"] in RIGHTS and "-crds" not in one["metadata"]["name"]]
    api.apply(rights)
    settings = environment(rendered) | {
        "KUBECONFIG": str(write_kubeconfig(tmp_path / "account", api.url, api.account_token("merlot-operator"))),
        "MERLOT_METASTORE": f"sqlite://{tmp_path}/{{namespace}}.db",
        "MERLOT_CONTROLLER_URL": controller.url,
    }
    served = [api, other] if "SECOND" in str(VALUES[name]) or "cluster-wide" in name else [api]
    try:
        with Operator(settings, tmp_path / "operator.log") as operator:
            for place in served:
                place.create("tables", yaml.safe_load(FLIGHTS.read_text()))
                eventually(lambda: place.reason("Accepted"), "True/Valid", log=lambda: operator.log)  # noqa: B023
                bindings = [one["metadata"]["name"] for one in place.list("rolebindings")]
                assert ("merlot-spark-driver" in bindings) == ("no executors" not in name)
                assert bool(place.list("networkpolicies")) == (name != "no network policies")
    finally:
        api.remove(rights)
