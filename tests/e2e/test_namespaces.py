"""One operator for a list of namespaces: each is a cluster of its own, and none holds up another."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from tests.e2e.e2e_cluster import MANAGED, Cluster, Json, pod
from tests.e2e.e2e_kept import JANUARY, has_event, january, says, small_table, stored_files
from tests.e2e.e2e_load import start_load

pytestmark = pytest.mark.slow("test_whole_life.py adds a namespace to an operator's list and deletes it")

TABLE = {
    "apiVersion": "merlot.dev/v1alpha1",
    "kind": "Table",
    "metadata": {"name": "same"},
    "spec": {"schema": {"fields": [{"name": "carrier", "type": "STRING"}]}, "tenants": {"broker": {"replicas": 1}}},
}
HELD = "held"
COUNT = f"SELECT COUNT(*) FROM {HELD}"
ROUNDS = 40


@dataclass(frozen=True)
class Places:
    """Where the operator is, and the two namespaces that it serves."""

    ops: Cluster
    one: Cluster
    two: Cluster

    def operators(self) -> set[tuple[str, int]]:
        """Pods of the operator with their restarts."""
        found = self.ops.all("pods", "app.kubernetes.io/component=operator")
        return {(one["metadata"]["uid"], one["status"]["containerStatuses"][0]["restartCount"]) for one in found}


@pytest.fixture(scope="module")
def store(values: Json) -> Json:
    """The deep store, whose keys each namespace has in a Secret."""
    return {key: value for key, value in values["deepStore"].items() if key != "credentials"} | {"secret": "keys"}


@pytest.fixture(scope="module")
def places(restricted: Cluster, values: Json, store: Json, package: Path) -> Iterator[Places]:
    """An operator in a namespace of its own serves two others, each with an empty table; the first has January too."""
    ops, one, two = (replace(restricted, namespace=f"{restricted.namespace}-{name}") for name in ("ops", "one", "two"))
    for place in (ops, one, two):
        place.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.namespace}})
    keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    for place in (one, two):
        place.apply({**keys, "stringData": values["deepStore"]["credentials"]})
    install(
        ops, "listed", package, {**values, "deepStore": store, "scope": {"namespaces": [one.namespace, two.namespace]}}
    )
    restricted.kubectl("wait", "--for=condition=Ready", "pod/s3", "--timeout=300s")
    yield Places(ops, one, two)
    for place in (one, two):
        place.kubectl("delete", "table", "--all", "--ignore-not-found", "--timeout=300s")
    # One namespace of its list is gone by then.
    ops.helm("uninstall", "listed", "--wait", "--timeout=6m")
    for place in (ops, one, two):
        place.api.close()
        place.kubectl("delete", "namespace", place.namespace, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="module")
def ready(places: Places, s3: str) -> Places:
    """All tables answer."""
    source = january(s3)
    places.one.apply(TABLE, small_table(HELD, tenants={"broker": {"replicas": 1}}, ingestion={"batch": [source]}))
    places.two.apply(TABLE)
    for place in (places.one, places.two):
        place.await_true("it is ready", lambda place=place: place.holds("table", "same", "Ready"))
    places.one.await_true("January is there", lambda: status(places.one).get("totalDocs") == JANUARY)
    places.one.await_true("it is ready", lambda: places.one.holds("table", HELD, "Ready"))
    return places


def install(place: Cluster, name: str, package: Path, values: Json) -> None:
    """Install a release."""
    file = package.with_name(f"{name}.yaml")
    file.write_text(yaml.safe_dump(values))
    place.helm("install", name, str(package), "--values", str(file), "--wait", "--timeout=6m")


def status(place: Cluster) -> Json:
    """Status of the table of January."""
    return dict(place.get("table", HELD).get("status", {}))


def generations(place: Cluster) -> set[tuple[str, str, int | None]]:
    """All that the namespace runs, with what changes when somebody writes it."""
    found = place.all("deployments,statefulsets,services,configmaps,pdb,networkpolicies,jobs", MANAGED)
    return {(one["kind"], one["metadata"]["uid"], one["metadata"].get("generation")) for one in found}


def await_config(place: Cluster, timeout_ms: int) -> None:
    """Change a table, and wait until its operator has done so."""
    place.patch("table", "same", {"spec": {"limits": {"timeoutMs": timeout_ms}}})
    place.await_true("the change is in force", lambda: place.holds("table", "same", "ConfigInSync"))


def test_a_second_release_says_whose_the_namespace_is_and_changes_nothing(
    ready: Places, values: Json, store: Json, package: Path
) -> None:
    one, before = ready.one, generations(ready.one)
    install(one, "rival", package, {**values, "deepStore": store, "crds": {"install": False}})
    told = f"since release {ready.ops.namespace}/listed "
    for table in ("same", HELD):
        one.await_true("an event says so", lambda table=table: has_event(one, table, told))
    await_config(one, 21_000)
    assert one.holds("table", HELD, "Ready")
    assert generations(one) == before
    rival = one.all("pods", "app.kubernetes.io/component=operator")
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in rival] == [0]
    one.helm("uninstall", "rival", "--wait", "--timeout=6m")
    await_config(one, 22_000)
    assert generations(one) == before


def test_a_pod_that_takes_fences_in_zookeeper_ends_no_operator_and_holds_up_no_other_namespace(
    ready: Places, restricted: Cluster
) -> None:
    one, two, before = ready.one, ready.two, ready.operators()
    hosts = f"listed-merlot-zookeeper.{ready.ops.namespace}.svc:2181"
    node = f"/merlot/{one.namespace}/OPERATORS/{one.namespace}"
    arguments = ["python", "/opt/merlot/e2e/intruder.py", hosts, node]
    ready.ops.apply(admission("listed-merlot-zookeeper-0", restricted.namespace, "intruder"))
    restricted.apply(pod("intruder", restricted.images["e2e"], arguments))

    def told() -> Json:
        lines = restricted.api.log("intruder", 1)
        return dict(json.loads(lines[-1])) if lines else {"rounds": 0, "seized": 0}

    restricted.kubectl("wait", "--for=condition=Ready", "pod/intruder", "--timeout=300s")
    restricted.await_true("fences are taken", lambda: told()["seized"] >= 3)
    for timeout_ms in (23_000, 24_000):
        await_config(two, timeout_ms)
    restricted.await_true("it goes on for a while", lambda: told()["rounds"] >= ROUNDS)
    await_config(two, 25_000)
    assert one.ask(COUNT, asker=restricted) == [[JANUARY]]
    restricted.kubectl("delete", "pod", "intruder", "--wait=true")
    ready.ops.kubectl("delete", "networkpolicy", "intruder")
    await_config(one, 26_000)
    assert ready.operators() == before
    assert one.holds("table", HELD, "Ready")


def admission(pod_name: str, namespace: str, app: str) -> Json:
    """A policy that lets an app of a namespace connect to a pod of a StatefulSet, whatever other policies say."""
    place = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": app},
        "spec": {
            "podSelector": {"matchLabels": {"statefulset.kubernetes.io/pod-name": pod_name}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"namespaceSelector": place, "podSelector": {"matchLabels": {"app": app}}}]}],
        },
    }


def test_tables_whose_zookeeper_lost_its_volume_are_not_served_until_they_are_recovered(
    ready: Places, restricted: Cluster
) -> None:
    ops, one, two = ready.ops, ready.one, ready.two
    held = lambda: {path for path in stored_files(restricted, HELD) if f"/{one.namespace}/" in path}  # noqa: E731
    one.await_true("there is a catalog", lambda: any("_catalog" in path for path in held()))
    files, before = held(), status(one)
    load = start_load(one, [{"sql": COUNT, "rows": [[JANUARY]]}], period_s=0.25)
    lose_zookeeper(ops)
    one.await_true("it is said", lambda: says(one, HELD, "Degraded", "True", "MetastoreLost"))
    assert says(one, HELD, "Ready", "False", "MetastoreLost")
    during = status(one)
    assert [during[name] for name in ("segments", "totalDocs")] == [before[name] for name in ("segments", "totalDocs")]
    two.await_true("an empty table has lost nothing", lambda: two.holds("table", "same", "Ready"))
    await_config(two, 27_000)
    assert not two.holds("table", "same", "Degraded")
    load.await_queries(20)
    assert held() == files
    assert not one.holds("table", HELD, "Ready")
    one.kubectl("exec", "deployment/merlot-controller", "--", "merlot", "recover", HELD)
    one.await_true("it is ready", lambda: one.holds("table", HELD, "Ready"))
    one.await_true("it is healed", lambda: says(one, HELD, "Degraded", "False"))
    one.await_true("it answers", lambda: is_answering(one, restricted))
    known = load.sums()
    load.await_queries(20)
    last = load.sums()
    assert last["wrong"] == 0, last["samples"]
    assert last["failed"] == known["failed"], last["samples"]
    assert status(one)["totalDocs"] == JANUARY
    assert not [one for one in one.all("jobs") if one["status"].get("active")], "no batch is built again"
    assert files <= held()
    one.kubectl("delete", "pod", "load", "--wait=false")


def lose_zookeeper(ops: Cluster) -> None:
    """Another pod comes with an empty volume."""
    name = "listed-merlot-zookeeper-0"
    before = ops.get("pod", name)["metadata"]["uid"]
    ops.kubectl("delete", "pvc", f"data-{name}", "--wait=false")
    ops.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
    is_new = lambda: ops.get("pod", name).get("metadata", {}).get("uid", before) != before  # noqa: E731
    ops.await_true("ZooKeeper has another pod", is_new)
    ops.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=300s")


def is_answering(place: Cluster, asker: Cluster) -> bool:
    """Whether January is answered whole: its segments are missing until they are loaded."""
    try:
        return place.ask(COUNT, asker=asker) == [[JANUARY]]
    except AssertionError:
        return False


def test_a_deleted_namespace_of_the_list_holds_up_no_other(ready: Places) -> None:
    one, two = ready.one, ready.two
    two.kubectl("delete", "table", "same", "--timeout=300s")
    two.kubectl("delete", "namespace", two.namespace, "--timeout=300s")
    await_config(one, 20_000)
    one.kubectl("scale", "table", "same", "--replicas=2")
    servers = lambda: [name for name in one.pods("server") if name.startswith("merlot-server-same-")]  # noqa: E731
    is_larger = lambda: len(servers()) == 2 and one.holds("table", "same", "Ready")  # noqa: E731
    one.await_true("it has two servers", is_larger)
