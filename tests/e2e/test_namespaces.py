"""One operator for a list of namespaces: each is a cluster of its own, and one that is deleted holds up no other."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from e2e_cluster import Cluster, Json

pytestmark = pytest.mark.slow("test_whole_life.py adds a namespace to an operator's list and deletes it")

TABLE = {
    "apiVersion": "merlot.dev/v1alpha1",
    "kind": "Table",
    "metadata": {"name": "same"},
    "spec": {"schema": {"fields": [{"name": "carrier", "type": "STRING"}]}, "tenants": {"broker": {"replicas": 1}}},
}


@pytest.fixture
def listed(release: Cluster, values: Json, package: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """Two namespaces that an operator in a third one serves."""
    places = [replace(release, namespace=f"{release.namespace}-{name}") for name in ("ops", "one", "two")]
    ops, one, two = places
    for place in places:
        place.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.namespace}})
    store = {key: value for key, value in values["deepStore"].items() if key != "credentials"} | {"secret": "keys"}
    keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    for place in (one, two):
        place.apply({**keys, "stringData": values["deepStore"]["credentials"]})
    scope = {"namespaces": [one.namespace, two.namespace]}
    file = package.with_name("listed.yaml")
    file.write_text(
        yaml.safe_dump(
            {**values, "deepStore": store, "scope": scope, "crds": {**values.get("crds", {}), "install": False}}
        )
    )
    ops.helm("install", "listed", str(package), "--values", str(file), "--wait", "--timeout=6m")
    yield one, two
    one.api.close()
    two.api.close()
    one.kubectl("delete", "table", "--all", "--timeout=300s")
    # A namespace of its list is gone by then.
    ops.helm("uninstall", "listed", "--wait", "--timeout=6m")
    for place in places:
        place.kubectl("delete", "namespace", place.namespace, "--wait=false", "--ignore-not-found")


def test_a_deleted_namespace_of_the_list_holds_up_no_other(listed: tuple[Cluster, Cluster]) -> None:
    one, two = listed
    for place in listed:
        place.apply(TABLE)
    for place in listed:
        place.await_true("it is ready", lambda place=place: place.holds("table", "same", "Ready"))
    two.kubectl("delete", "table", "same", "--timeout=300s")
    two.kubectl("delete", "namespace", two.namespace, "--timeout=300s")
    one.patch("table", "same", {"spec": {"limits": {"timeoutMs": 20_000}}})
    one.await_true("the other is served", lambda: one.holds("table", "same", "ConfigInSync"))
    one.kubectl("scale", "table", "same", "--replicas=2")
    is_larger = lambda: len(one.pods("server")) == 2 and one.holds("table", "same", "Ready")  # noqa: E731
    one.await_true("it has two servers", is_larger)
