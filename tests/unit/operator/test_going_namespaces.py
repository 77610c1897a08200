"""A namespace that goes with the operator's rights in it: what is declared there waits for nothing."""

from __future__ import annotations

import copy
from typing import Any

import kopf
import pytest

from merlot.errors import ConflictError, UnavailableError
from merlot_operator import __main__ as program
from merlot_operator import handlers
from merlot_operator.config import Config, from_environment
from merlot_operator.context import ReconcileContext
from merlot_operator.kube.kinds import DECLARED, FINALIZER, PODS, SERVICES, TABLE, TABLES, Object, ResourceKind, kind_of
from merlot_operator.reconcilers import loop
from merlot_operator.reconcilers.deleted_namespaces import let_go_of_own, outlives, reconcile_namespace
from merlot_operator.reconcilers.finalizers import ensure_finalizer
from merlot_operator.workqueue import QueueKey, Subject

ENVIRONMENT = {
    "MERLOT_METASTORE": "zk://z",
    "MERLOT_DEEP_STORE": "s3://b",
    "MERLOT_RUNTIME_IMAGE": "r",
    "MERLOT_SPARK_IMAGE": "s",
    "MERLOT_RELEASE": "plat/plat",
}


def config_of(namespaces: str) -> Config:
    return from_environment({**ENVIRONMENT, "MERLOT_NAMESPACE": namespaces})


@pytest.mark.parametrize(
    ("namespaces", "namespace", "expected"),
    [("", "team", True), ("", "plat", False), ("team", "team", False), ("plat", "plat", False)],
)
def test_an_operator_of_the_whole_cluster_outlives_all_namespaces_but_its_own(
    namespaces: str, namespace: str, expected: bool
) -> None:
    assert outlives(config_of(namespaces), namespace) is expected


class Server:
    """An API server with one object of each declared kind, changed by others for a while; no ZooKeeper is beside it."""

    def __init__(self, namespace: str, num_conflicts: int = 0) -> None:
        self.namespace, self.is_going, self.num_conflicts = namespace, True, num_conflicts
        self.objects: dict[ResourceKind, dict[str, Any]] = {kind: self._declared(kind) for kind in DECLARED}

    def _declared(self, kind: ResourceKind) -> dict[str, Any]:
        metadata = {"name": "flights", "namespace": self.namespace, "uid": kind.plural, "resourceVersion": "1"}
        metadata |= {"finalizers": [FINALIZER, "others"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        spec = {"table": "flights", "deletionPolicy": "Delete", "tenants": {}}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}

    def operator(self, monkeypatch: pytest.MonkeyPatch, namespaces: str) -> ReconcileContext:
        """One that knows all of it, and of a driver that runs."""
        context = program._context(config_of(namespaces), kopf.OperatorSettings())
        for name in ("get", "patch"):
            monkeypatch.setattr(context.kube, name, getattr(self, name))
        monkeypatch.setattr(context.metastores, "call", self._call)
        for body in self.objects.values():
            context.store.put(copy.deepcopy(body))
        labels = {TABLE: "flights"}
        driver = {"name": "driver", "namespace": self.namespace, "uid": "d", "resourceVersion": "1", "labels": labels}
        context.store.put({"kind": PODS.name, "metadata": driver, "status": {"phase": "Running"}})
        return context

    async def get(self, kind: ResourceKind, _: str | None, name: str) -> dict[str, Any]:
        if kind in self.objects:
            return copy.deepcopy(self.objects[kind])
        assert name == self.namespace
        return {"metadata": {"name": name} | ({"deletionTimestamp": "now"} if self.is_going else {})}

    async def patch(self, kind: ResourceKind, namespace: str, name: str, body: Object) -> dict[str, Any]:
        live = self.objects[kind]
        version = str(int(live["metadata"]["resourceVersion"]) + 1)
        if self.num_conflicts:
            self.num_conflicts -= 1
            live["metadata"]["resourceVersion"] = version
            raise ConflictError("changed meanwhile")
        assert body["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
        live["metadata"] |= {"finalizers": body["metadata"]["finalizers"], "resourceVersion": version}
        return copy.deepcopy(live)

    async def _call(self, *_: object) -> None:
        raise UnavailableError("the ZooKeeper of the namespace went first")

    def finalizers(self) -> set[str]:
        return {one for body in self.objects.values() for one in body["metadata"]["finalizers"]}


@pytest.mark.parametrize("num_conflicts", [0, 2])
async def test_everything_is_let_go_at_once_though_a_job_runs_and_zookeeper_is_away(
    monkeypatch: pytest.MonkeyPatch, num_conflicts: int
) -> None:
    server = Server("team", num_conflicts)
    context = server.operator(monkeypatch, "team")
    await reconcile_namespace(context, "team", "")
    assert server.finalizers() == {"others"}
    body = context.store.get(TABLES, "team", "flights")
    assert body is not None
    await ensure_finalizer(context, body)
    assert server.finalizers() == {"others"}, "it is not put back"


async def test_an_operator_that_ends_with_its_namespace_lets_go_before(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("plat")
    context = server.operator(monkeypatch, "")
    server.is_going = False
    await let_go_of_own(context)
    assert server.finalizers() == {FINALIZER, "others"}
    server.is_going = True
    await let_go_of_own(context)
    assert server.finalizers() == {"others"}


async def test_nothing_is_let_go_in_a_namespace_that_stays_or_that_the_operator_outlives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server("team")
    await reconcile_namespace(server.operator(monkeypatch, ""), "team", "")
    server.is_going = False
    await reconcile_namespace(server.operator(monkeypatch, "team"), "team", "")
    assert server.finalizers() == {FINALIZER, "others"}


async def test_the_next_namespace_of_the_name_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("team")
    context = server.operator(monkeypatch, "team")
    await reconcile_namespace(context, "team", "")
    assert await loop._pass(context, QueueKey(Subject.CLUSTER, "team")) is None
    server.is_going = False
    await reconcile_namespace(context, "team", "")
    assert context.deleting == set()


@pytest.mark.parametrize("change", ["DELETED", "MODIFIED"])
@pytest.mark.parametrize("kind", [TABLES, SERVICES, PODS])
async def test_whatever_is_deleted_makes_the_operator_look_whether_its_namespace_goes(
    monkeypatch: pytest.MonkeyPatch, kind: ResourceKind, change: str
) -> None:
    context = Server("team").operator(monkeypatch, "team")
    metadata = {"name": "x", "namespace": "team", "uid": "x", "resourceVersion": "7", "deletionTimestamp": "now"}
    body: dict[str, Any] = {"kind": kind.name, "metadata": metadata, "spec": {"tenants": {}}}
    handlers.observe(context, kind_of(body), change, body)
    assert await context.queue.take() == QueueKey(Subject.NAMESPACE, "team")
