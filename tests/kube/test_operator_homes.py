"""Namespaces of a list have shared state and files of their own; who had them elsewhere before stays there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, Operator, eventually
from tests.kube.test_operator import flights

from merlot.cluster.fence import take
from merlot.cluster.manifests.tables import find_table, put_table
from merlot.cluster.records import OperatorRecord
from merlot.metastore.protocol import Metastore
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.spec.manifest import load_document

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

T = TypeVar("T")
STORE = "s3://bucket/merlot?region=x"


@pytest.fixture
def root(zookeeper: str) -> str:
    """Hosts and chroot of the installation."""
    return zookeeper


@pytest.fixture
def both(settings: dict[str, str], api: Api, other: Api, root: str) -> dict[str, str]:
    """Environment of an operator of two namespaces."""
    namespaces = f"{api.namespace},{other.namespace}"
    return {**settings, "MERLOT_NAMESPACE": namespaces, "MERLOT_METASTORE": f"zk://{root}", "MERLOT_DEEP_STORE": STORE}


def ask(hosts: str, question: Callable[[Metastore], T]) -> T:
    """Look at, or change, what is in a chroot."""
    metastore = ZooKeeperMetastore(hosts)
    try:
        return question(metastore)
    finally:
        metastore.close()


def was_published(namespace: str, name: str = "flights") -> Callable[[Metastore], object]:
    """As an operator did that gave a list of namespaces no chroots of their own."""
    document = flights(name)
    document["metadata"]["namespace"] = namespace
    return lambda metastore: put_table(metastore, load_document(document))


def place_of(api: Api) -> tuple[str, str]:
    """Where a namespace's controller is told that state and files are."""
    arguments = api.get("deployments", "merlot-controller")["spec"]["template"]["spec"]["containers"][0]["args"]
    given = dict(one.split("=", 1) for one in arguments if "=" in one)
    return given["--zk"], given["--deep-store"]


def wait_published(operator: Operator, *places: Api) -> None:
    for api in places:
        eventually(lambda: "revision" in api.get("tables", "flights").get("status", {}), log=lambda: operator.log)  # noqa: B023
        eventually(lambda: api.get("deployments", "merlot-controller") is not None, log=lambda: operator.log)  # noqa: B023


def test_two_namespaces_with_a_table_of_one_name_share_nothing(
    api: Api, other: Api, both: dict[str, str], root: str, tmp_path: Path
) -> None:
    with Operator(both, tmp_path / "operator.log") as operator:
        for place in (api, other):
            place.create("tables", flights())
        wait_published(operator, api, other)
        for place in (api, other):
            own = f"{root}/{place.namespace}"
            assert place_of(place) == (own, f"s3://bucket/merlot/{place.namespace}?region=x")
            record = ask(own, lambda metastore: find_table(metastore, "flights"))
            assert record is not None
            assert record.manifest["metadata"]["namespace"] == place.namespace
            assert record.revision == 1
        other.delete("tables", "flights")
        eventually(lambda: other.get("tables", "flights"), None, log=lambda: operator.log)
        assert ask(f"{root}/{other.namespace}", lambda metastore: find_table(metastore, "flights")) is None
        assert ask(f"{root}/{api.namespace}", lambda metastore: find_table(metastore, "flights")) is not None


@pytest.mark.parametrize("is_running", [False, True], ids=["its pods are gone", "its pods run"])
def test_an_installation_of_one_namespace_stays_where_it_is_when_others_come(
    api: Api, other: Api, both: dict[str, str], root: str, tmp_path: Path, is_running: bool
) -> None:
    ask(root, was_published(api.namespace))
    alone = {**both, "MERLOT_NAMESPACE": api.namespace}
    api.create("tables", flights())
    with Operator(alone, tmp_path / "alone.log") as operator:
        wait_published(operator, api)
    if not is_running:
        api.delete("deployments", "merlot-controller")
    with Operator(both, tmp_path / "both.log") as operator:
        other.create("tables", flights())
        wait_published(operator, api, other)
        operator.settle()
        assert place_of(api) == (root, STORE)
        assert place_of(other) == (f"{root}/{other.namespace}", f"s3://bucket/merlot/{other.namespace}?region=x")
        api.delete("tables", "flights")
        eventually(lambda: (api.get("tables", "flights"), api.children()), (None, set()), log=lambda: operator.log)
        api.create("tables", flights())
        wait_published(operator, api)
        assert place_of(api) == (root, STORE), "what it retained is there"


def test_namespaces_that_share_their_state_are_told_and_can_part(
    api: Api, other: Api, both: dict[str, str], root: str, tmp_path: Path
) -> None:
    ask(root, was_published(api.namespace))
    ask(root, was_published(other.namespace, "more"))
    with Operator(both, tmp_path / "operator.log") as operator:
        log = lambda: operator.log  # noqa: E731
        api.create("tables", flights())
        for name in ("flights", "more"):
            other.create("tables", flights(name))
        eventually(lambda: api.reason("Degraded"), "True/StateShared", log=log)
        eventually(lambda: other.reason("Degraded", "more"), "True/StateShared", log=log)
        assert other.namespace in api.condition("Degraded")["message"]
        assert place_of(api) == place_of(other) == (root, STORE)
        eventually(lambda: other.reason("Accepted"), "False/ChangeRefused", log=log)
        assert api.namespace in other.condition("Accepted")["message"]
        for name in ("flights", "more"):
            other.delete("tables", name)
            eventually(lambda: other.get("tables", name), None, log=log)  # noqa: B023
        eventually(other.children, set(), log=log)
        record = ask(root, lambda metastore: find_table(metastore, "flights"))
        assert record is not None, "it is the other namespace's"
        eventually(lambda: "StateShared" in api.reason("Degraded"), False, log=log)
        other.create("tables", flights())
        wait_published(operator, other)
        assert place_of(other)[0] == f"{root}/{other.namespace}"


@pytest.mark.parametrize("is_owner", [True, False], ids=["the namespace is its own", "another one serves it"])
def test_an_operator_whose_fence_another_one_took_writes_only_where_the_namespace_is_its_own(
    api: Api, controller: Controller, both: dict[str, str], root: str, tmp_path: Path, is_owner: bool
) -> None:
    own = f"{root}/{api.namespace}"
    with Operator(both, tmp_path / "operator.log") as operator:
        api.create("tables", flights())
        wait_published(operator, api)
        operator.settle()
        if not is_owner:
            api.patch("leases", "merlot-operator", {"spec": {"holderIdentity": "the next one"}})
        ask(own, lambda metastore: take(metastore, api.namespace, OperatorRecord(holder="the next one")))
        api.patch("tables", "flights", {"spec": {"limits": {"timeoutMs": 5000}}})
        if is_owner:
            eventually(lambda: api.get("tables", "flights")["status"]["revision"], 2, log=lambda: operator.log)
            assert "holder=the next one" in operator.log
        else:
            eventually(lambda: "ServedByAnother" in api.event_reasons(), log=lambda: operator.log)
            record = ask(own, lambda metastore: find_table(metastore, "flights"))
            assert record is not None
            assert record.revision == 1
        assert operator.exit_code() is None


def test_of_two_releases_one_serves_a_namespace_until_the_other_is_told_to_take_it_over(
    api: Api, controller: Controller, settings: dict[str, str], tmp_path: Path
) -> None:
    first = {
        **settings,
        "MERLOT_RELEASE": "plat/plat",
        "MERLOT_SPARK_DRIVER_ROLE": "ClusterRole/plat-merlot-spark-driver",
    }
    twin = {**first, "MERLOT_RELEASE": "team/twin", "MERLOT_METASTORE": f"sqlite://{tmp_path / 'twin.db'}"}
    twin["MERLOT_SPARK_DRIVER_ROLE"] = "ClusterRole/twin-merlot-spark-driver"
    with Operator(first, tmp_path / "first.log") as operator:
        api.create("tables", flights())
        wait_published(operator, api)
        operator.settle()
        before = api.versions()
        with Operator(twin, tmp_path / "twin.log") as second:
            eventually(lambda: "ServedByAnother" in api.event_reasons(), log=lambda: second.log)
            second.settle()
            assert api.versions() == before
        told = {**twin, "MERLOT_TAKE_OVER": "true"}
        with Operator(told, tmp_path / "twin.log") as second:
            role = lambda: (api.get("rolebindings", "merlot-spark-driver") or {}).get("roleRef", {}).get("name")  # noqa: E731
            eventually(role, "twin-merlot-spark-driver", log=lambda: second.log)
            second.settle()
            operator.settle()
            assert role() == "twin-merlot-spark-driver"
            assert "plat/plat" not in api.get("leases", "merlot-operator")["metadata"]["annotations"].values()
