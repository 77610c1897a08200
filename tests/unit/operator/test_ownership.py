"""One operator per namespace: whoever comes last to serve it, if it is of the same release or was told to take over."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from typing import Any

import kopf
import pytest

from merlot.cluster.fence import WriterSupersededError
from merlot.errors import ConflictError, NotFoundError
from merlot_operator import __main__ as program
from merlot_operator import handlers
from merlot_operator.config import from_environment
from merlot_operator.context import ReconcileContext
from merlot_operator.kube.client import ForbiddenError
from merlot_operator.kube.kinds import LEASES, ROLE_BINDINGS, TABLES, Object, ResourceKind, kind_of
from merlot_operator.kube.ownership import MARK, NamespaceRole, Owner, check_owned, mark, namespace_role, owner_of
from merlot_operator.kube.writer import changes_fixed_field
from merlot_operator.reconcilers import ownership
from merlot_operator.reconcilers.ownership import REASON, is_ours, let_go, report_owner

ME, SUCCESSOR, TWIN = Owner("plat/plat", "a"), Owner("plat/plat", "b"), Owner("team/twin", "c")
ENVIRONMENT = {
    "MERLOT_METASTORE": "zk://z",
    "MERLOT_DEEP_STORE": "s3://b",
    "MERLOT_RUNTIME_IMAGE": "r",
    "MERLOT_SPARK_IMAGE": "s",
}


@pytest.mark.parametrize(
    ("owner", "has_owned", "takes_over", "expected"),
    [
        (None, False, False, NamespaceRole.HEIR),
        (None, True, False, NamespaceRole.HEIR),
        (ME, True, False, NamespaceRole.OWNER),
        (SUCCESSOR, False, False, NamespaceRole.HEIR),
        (SUCCESSOR, True, False, NamespaceRole.STRANGER),
        (SUCCESSOR, True, True, NamespaceRole.STRANGER),
        (TWIN, False, False, NamespaceRole.STRANGER),
        (TWIN, False, True, NamespaceRole.HEIR),
        (TWIN, True, True, NamespaceRole.STRANGER),
    ],
)
def test_whoever_came_last_serves_and_nobody_takes_back(
    owner: Owner | None, has_owned: bool, takes_over: bool, expected: NamespaceRole
) -> None:
    assert namespace_role(owner, ME, has_owned=has_owned, takes_over=takes_over) is expected


class Server:
    """An API server of Leases and Tables, and the events that it sends to every operator."""

    def __init__(self) -> None:
        self.version, self.is_going = 0, False
        self.objects: dict[tuple[ResourceKind, str], dict[str, Any]] = {}
        self.operators: list[ReconcileContext] = []
        self.events: list[tuple[str, str]] = []

    def operator(self, monkeypatch: pytest.MonkeyPatch, release: str, **more: str) -> ReconcileContext:
        """An operator that has listed everything."""
        config = from_environment({**ENVIRONMENT, "MERLOT_RELEASE": release, **more})
        context = program._context(config, kopf.OperatorSettings())
        for name in ("create", "patch", "patch_status", "get", "delete"):
            monkeypatch.setattr(context.kube, name, getattr(self, name))
        for body in self.objects.values():
            context.store.put(copy.deepcopy(body))
        self.operators.append(context)
        return context

    def declare(self) -> dict[str, Any]:
        metadata = {"name": "flights", "namespace": "n", "generation": 1}
        return self._put({"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": metadata, "spec": {}})

    async def create(self, body: Object) -> dict[str, Any]:
        if body["kind"] == "Event":
            self.events.append((body["reason"], body["message"]))
            return {}
        await asyncio.sleep(0)
        if self.is_going:
            raise ForbiddenError("the namespace is being terminated")
        if (kind_of(body), body["metadata"]["name"]) in self.objects:
            raise ConflictError("exists")
        return self._put(copy.deepcopy(dict(body)))

    async def patch(self, kind: ResourceKind, namespace: str, name: str, body: Object) -> dict[str, Any]:
        live = await self.get(kind, namespace, name)
        if body["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"]:
            raise ConflictError("changed meanwhile")
        return self._put({**live, **body, "metadata": {**live["metadata"], **body["metadata"]}})

    async def patch_status(self, kind: ResourceKind, namespace: str, name: str, status: Object) -> dict[str, Any]:
        return self._put({**await self.get(kind, namespace, name), "status": dict(status)})

    async def get(self, kind: ResourceKind, _: str | None, name: str) -> dict[str, Any]:
        if (kind, name) not in self.objects:
            raise NotFoundError(name)
        return copy.deepcopy(self.objects[kind, name])

    async def delete(self, body: Object, **_: str) -> None:
        self._tell("DELETED", self.objects.pop((kind_of(body), body["metadata"]["name"])))

    def _put(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        metadata = {"uid": str(self.version), **body["metadata"], "resourceVersion": str(self.version)}
        body = {**body, "metadata": metadata}
        self.objects[kind_of(body), metadata["name"]] = body
        self._tell("MODIFIED", body)
        return copy.deepcopy(body)

    def _tell(self, change: str, body: Mapping[str, Any]) -> None:
        for context in self.operators:
            handlers.observe(context, kind_of(body), change, copy.deepcopy(dict(body)))

    def owner(self) -> str | None:
        found = owner_of(self.objects.get((LEASES, MARK)))
        return None if found is None else found.release


@pytest.fixture
def server() -> Server:
    return Server()


async def test_of_two_releases_the_second_leaves_the_namespace_alone_until_the_first_lets_go(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = server.declare()
    first = server.operator(monkeypatch, "plat/plat")
    assert await is_ours(first, "n")
    twin = server.operator(monkeypatch, "team/twin")
    for _ in range(3):
        assert not await is_ours(twin, "n")
        assert await is_ours(first, "n")
    assert server.owner() == "plat/plat"
    assert "plat/plat" in twin.progress.verdict(twin.clock.monotonic()).text
    await server.delete(table)
    await let_go(first, "n")
    assert server.owner() is None
    server.declare()
    assert await is_ours(twin, "n")
    assert "plat/plat" not in twin.progress.verdict(twin.clock.monotonic()).text
    assert not await is_ours(first, "n")


async def test_a_release_that_is_told_to_takes_over_and_the_two_do_not_take_turns(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.declare()
    first = server.operator(monkeypatch, "plat/plat", MERLOT_TAKE_OVER="true")
    assert await is_ours(first, "n")
    twin = server.operator(monkeypatch, "team/twin", MERLOT_TAKE_OVER="true")
    for _ in range(3):
        assert await is_ours(twin, "n")
        assert not await is_ours(first, "n")
    with pytest.raises(WriterSupersededError, match="team/twin"):
        await check_owned(first.kube, first.owner, "n")
    await check_owned(twin.kube, twin.owner, "n")


async def test_the_next_process_of_a_release_takes_its_namespaces(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.declare()
    before = server.operator(monkeypatch, "plat/plat")
    assert await is_ours(before, "n")
    after = server.operator(monkeypatch, "plat/plat")
    assert await is_ours(after, "n")
    assert not await is_ours(before, "n")
    await let_go(before, "n")
    assert await is_ours(after, "n")


async def test_of_two_that_come_at_once_one_is_the_owner(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.declare()
    both = [server.operator(monkeypatch, release) for release in ("plat/plat", "team/twin")]
    blind: Callable[[ReconcileContext], None] = lambda context: context.store.forget(None)  # noqa: E731
    assert await is_ours(both[0], "n")
    blind(both[1])
    both[1].store.put(copy.deepcopy(server.objects[TABLES, "flights"]))
    with pytest.raises(ConflictError):  # somebody was faster
        await is_ours(both[1], "n")
    assert not await is_ours(both[1], "n")
    assert await is_ours(both[0], "n")


async def test_passes_that_begin_at_once_own_the_namespace_together(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.declare()
    operator = server.operator(monkeypatch, "plat/plat")
    assert await asyncio.gather(*(is_ours(operator, "n") for _ in range(5))) == [True] * 5


async def test_a_namespace_that_goes_is_cleaned_up_without_a_mark(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.declare()
    server.is_going = True
    assert await is_ours(server.operator(monkeypatch, "plat/plat"), "n")


async def test_what_another_release_serves_says_so_by_an_event_and_by_conditions_once_nobody_judges_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = server.declare()
    assert await is_ours(server.operator(monkeypatch, "plat/plat"), "n")
    twin = server.operator(monkeypatch, "team/twin")
    await report_owner(twin, table)
    assert [reason for reason, _ in server.events] == [REASON]
    assert "plat/plat" in server.events[0][1]
    assert "status" not in server.objects[TABLES, "flights"], "its owner may be about to judge it"
    monkeypatch.setattr(ownership, "SILENT_S", 0.0)
    await report_owner(twin, table)
    told = server.objects[TABLES, "flights"]
    conditions = {one["type"]: (one["status"], one["reason"]) for one in told["status"]["conditions"]}
    assert conditions["Ready"] == ("False", REASON)
    version = told["metadata"]["resourceVersion"]
    await report_owner(twin, told)
    assert server.objects[TABLES, "flights"]["metadata"]["resourceVersion"] == version


def test_a_binding_whose_role_is_another_is_made_anew() -> None:
    def binding(role: str) -> dict[str, Any]:
        metadata = {"name": "merlot-spark-driver", "namespace": "n"}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        return {"kind": ROLE_BINDINGS.name, "metadata": metadata, "roleRef": reference}

    assert changes_fixed_field(binding("plat-merlot-spark-driver"), binding("twin-merlot-spark-driver"))
    assert not changes_fixed_field(binding("plat-merlot-spark-driver"), binding("plat-merlot-spark-driver"))
    lease = mark("n", ME, 0)
    assert not changes_fixed_field(lease, lease)
