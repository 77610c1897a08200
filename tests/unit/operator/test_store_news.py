"""Every change that the operator did not make itself wakes those whom it concerns, whichever answer shows it first."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Sequence
from typing import Any

import kopf
import pytest
from tests import budget

from merlot_operator import __main__ as program
from merlot_operator.config import Config
from merlot_operator.context import ReconcileContext
from merlot_operator.kube.cache import Store
from merlot_operator.kube.client import Listing
from merlot_operator.kube.kinds import TABLES, Object
from merlot_operator.reconcilers.pools import reconcile_pool
from merlot_operator.workqueue import QueueKey, Subject

CASES = budget.count("MERLOT_STORE_CASES", quick=120, every=5_000)
STEPS = 60
NAMES = ("one", "two")


class Server:
    """An API server of Tables, whose events come late: of the changes of one object maybe only the last."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.version = chance, 0
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: dict[str, tuple[str, dict[str, Any]]] = {}
        """By uid: the change that is not delivered yet."""

    def declare(self, name: str) -> None:
        """What a user does: create, edit or delete."""
        there = self.objects.get(name)
        if there is None:
            uid = f"{name}-{self.version}"
            metadata = {"name": name, "namespace": "n", "uid": uid, "generation": 1, "finalizers": []}
            self._changed("ADDED", {"apiVersion": "v", "kind": "Table", "metadata": metadata, "spec": {"edit": 0}})
        elif self.chance.random() < 0.2:
            self._changed("DELETED", there)
            del self.objects[name]
        else:
            there = copy.deepcopy(there)
            there["metadata"]["generation"] += 1
            there["spec"]["edit"] += 1
            self._changed("MODIFIED", there)

    def write_status(self, body: Object, number: int) -> dict[str, Any] | None:
        """What the operator does, over whatever is there by now; None if that is gone."""
        there = self.objects.get(body["metadata"]["name"])
        if there is None or there["metadata"]["uid"] != body["metadata"]["uid"]:
            return None
        return self._changed("MODIFIED", {**copy.deepcopy(there), "status": {"number": number}})

    def deliver(self) -> tuple[str, dict[str, Any]]:
        """An event; of several objects in any order."""
        return self.events.pop(self.chance.choice(list(self.events)))

    def _changed(self, change: str, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.objects[body["metadata"]["name"]] = body
        self.events[body["metadata"]["uid"]] = (change, body)
        return copy.deepcopy(body)


class Reader:
    """The operator's store, and what those who were woken last saw of each object."""

    def __init__(self, server: Server) -> None:
        self.server, self.store = server, Store()
        self.seen: dict[str, Object | None] = {}
        self.num_woken = 0

    def step(self) -> None:
        """Something that the operator does."""
        server, name = self.server, self.server.chance.choice(NAMES)
        live = self.store.get(TABLES, "n", name)
        match server.chance.randrange(5):
            case 0 if live is not None and (written := server.write_status(live, server.version)) is not None:
                self.store.keep_own(written)
            case 1 if name in server.objects:
                self.store.keep(copy.deepcopy(server.objects[name]))
            case 2 if server.chance.random() < 0.2:
                self._list()
            case _ if server.events:
                self.observe(*server.deliver())

    def observe(self, change: str, body: dict[str, Any]) -> None:
        """As `handlers.observe` does."""
        if change == "DELETED":
            self.store.remove(body)
        elif not self.store.put(body):
            return
        self._wake(body["metadata"]["name"])

    def _list(self) -> None:
        """As `served.list_place` does."""
        listing = Listing(copy.deepcopy(list(self.server.objects.values())), self.server.version)
        for gone in self.store.replace(TABLES, "n", listing):
            self._wake(gone["metadata"]["name"])
        for body in self.store.of(TABLES, "n"):
            self.store.tell(body)
            self._wake(body["metadata"]["name"])

    def _wake(self, name: str) -> None:
        self.num_woken += 1
        self.seen[name] = declared(self.store.get(TABLES, "n", name))


def declared(body: Object | None) -> Object | None:
    """What of an object is its user's."""
    return None if body is None else {"uid": body["metadata"]["uid"], "spec": body["spec"]}


def test_whoever_is_woken_last_sees_what_was_declared_last() -> None:
    for case in range(CASES):
        chance = random.Random(budget.seed() * 1_000_003 + case)
        server = Server(chance)
        reader = Reader(server)
        for _ in range(STEPS):
            if chance.random() < 0.3:
                server.declare(chance.choice(NAMES))
            reader.step()
        while server.events:
            reader.observe(*server.deliver())
        told = {name: declared(server.objects.get(name)) for name in NAMES}
        assert {name: reader.seen.get(name) for name in NAMES} == told, f"case {case}"
        assert {name: declared(reader.store.get(TABLES, "n", name)) for name in NAMES} == told, f"case {case}"


def test_what_the_operator_writes_itself_wakes_nobody() -> None:
    server = Server(random.Random(budget.seed()))
    reader = Reader(server)
    server.declare("one")
    reader.observe(*server.deliver())
    before = reader.num_woken
    for number in range(5):
        live = reader.store.get(TABLES, "n", "one")
        assert live is not None
        written = server.write_status(live, number)
        assert written is not None
        reader.store.keep_own(written)
        if number % 2:
            reader.observe(*server.deliver())
    assert reader.num_woken == before


@pytest.fixture
async def context() -> ReconcileContext:
    """An operator's parts, which have heard of nothing yet."""
    config = Config(metastore="zk://z", deep_store="s3://b", runtime_image="r", spark_image="s")
    return program._context(config, kopf.OperatorSettings())


async def test_a_table_that_a_pass_over_a_pool_hears_of_first_is_looked_at(
    context: ReconcileContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": "flights", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 1},
        "spec": {"tenants": {}},
    }

    async def listed(*_: object) -> Sequence[Object]:
        return [table]

    monkeypatch.setattr(context.kube, "list", listed)
    assert await reconcile_pool(context, "n", "merlot-server-flights") is None
    async with asyncio.timeout(5):
        assert await context.queue.take() == QueueKey(Subject.TABLE, "n", "flights")
