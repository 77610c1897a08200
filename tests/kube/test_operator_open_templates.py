"""Tables whose CRD lets them say of their pods whatever Kubernetes takes: the operator decides then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.operator_parts import Api, Operator, eventually
from tests.kube.test_operator import POOL, flights, wait
from tests.kube.test_operator_pod_templates import INIT, spec_of, templated

from merlot_operator.crds import definitions

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
    pytest.mark.usefixtures("open_templates"),
]


@pytest.fixture(scope="module")
def open_templates(merlot_api: Any, namespaces: Any) -> Iterator[None]:
    """As if another release had installed its CRDs so."""
    probe = templated("server", {"spec": {"hostPID": True}}, "probe")
    found = {one["spec"]["names"]["kind"]: one for one in definitions(unrestricted=True)}
    restricted = yaml.load((ROOT / "crds" / "table.yaml").read_text(), Loader=yaml.CSafeLoader)
    with namespaces("own-") as api:
        try:
            api.apply([found["Table"]])
            eventually(lambda: api.refusal("tables", probe), "")
            yield
        finally:
            api.apply([restricted])
            eventually(lambda: "hostPID" in api.refusal("tables", probe))


def test_operator_refuses_what_its_own_release_does_not_allow(api: Api, operator: Operator) -> None:
    """The CRD is one for all releases: another one left templates unrestricted. A watch that is older than the CRD
    goes on without what the CRD did not have: this operator's are not."""
    with operator:
        api.create("tables", templated("server", {"spec": {"hostPID": True, "serviceAccountName": "merlot-operator"}}))
        wait(operator, lambda: api.reason("Accepted"), "False/Invalid")
        message = api.condition("Accepted")["message"]
        assert "spec.tenants.server.podTemplate.spec.serviceAccountName: unknown field" in message
        assert "only with podTemplates.unrestricted of the chart" in message
        events = lambda: [one["message"] for one in api.list("events") if one["reason"] == "Invalid"]  # noqa: E731
        wait(operator, lambda: any("serviceAccountName" in text for text in events()))
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
