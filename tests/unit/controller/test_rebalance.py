"""A rebalance can be seen before, watched, and stopped half-way."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.unit.controller.told_loop import ToldLoop

from merlot.cluster.instances.drains import mark
from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import write_report
from merlot.cluster.manifests import tables
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.cluster.segments.view import load
from merlot.controller.http.api import make_app
from merlot.controller.loop import ControllerLoop, LoopConfig
from merlot.controller.service import ControllerService
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load as load_manifest
from merlot.testing.clock import FakeClock

Client = TestClient[web.Request, web.Application]

TABLE = TableName("t_OFFLINE")
ONE, TWO, THREE = (InstanceId(f"Server_{number}") for number in (1, 2, 3))
NAMES = [f"s{number}" for number in range(6)]
KEYS = [f"{name}@1" for name in NAMES]
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  suspend: SUSPEND
  schema: {fields: [{name: a, type: INT}]}
"""


def manifest(*, suspend: bool = False) -> Any:
    return load_manifest(MANIFEST.replace("SUSPEND", str(suspend).lower()))[0]


@pytest.fixture
def store(store: SqliteMetastore) -> SqliteMetastore:
    tables.put_table(store, manifest())
    publish(store, TABLE, [SegmentRecord(name=one, crc=1, size_bytes=7, url=one, total_docs=1) for one in NAMES])
    mutate(store, TABLE, lambda _: [Assign(dict.fromkeys(NAMES, (ONE,)))])
    write_report(store, TABLE, ONE, KEYS, {})
    return store


@pytest.fixture
async def client(store: SqliteMetastore) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(ControllerService(store)))) as client:
        yield client


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def loop(store: SqliteMetastore, clock: FakeClock) -> Iterator[ControllerLoop]:
    loop = ToldLoop(store, LoopConfig(owner="c1"), clock=clock)
    yield loop
    loop.close()


def join(store: SqliteMetastore, *servers: InstanceId) -> None:
    for one in servers:
        register(store.session(), InstanceRecord(id=one, role=Role.SERVER, host="h"))


def counts(store: SqliteMetastore) -> dict[InstanceId, int]:
    assigned = [one for servers in load(store, TABLE).assignment.values() for one in servers]
    return {one: assigned.count(one) for one in sorted(set(assigned))}


async def ask(client: Client, method: str, query: str = "") -> dict[str, Any]:
    answer = await client.request(method, f"/tables/t/rebalance{query}")
    body: dict[str, Any] = await answer.json()
    assert answer.status == 200, body
    return body


async def test_a_dry_run_shows_the_moves_and_makes_none(client: Client, store: SqliteMetastore) -> None:
    join(store, ONE, TWO)
    plan = await ask(client, "POST", "?dryRun=true")
    assert (plan["status"], plan["segmentsToMove"], plan["replicasToLoad"], plan["bytesToLoad"]) == (
        "PLANNED",
        3,
        3,
        21,
    )
    assert plan["servers"] == {ONE: {"before": 6, "after": 3}, TWO: {"before": 0, "after": 3}}
    assert all(move == {"from": [ONE], "to": [TWO]} for move in plan["moves"].values())
    assert counts(store) == {ONE: 6}
    assert (await ask(client, "GET"))["status"] == "IDLE"


async def test_progress_is_told_until_every_segment_has_arrived(
    client: Client, store: SqliteMetastore, loop: ControllerLoop
) -> None:
    join(store, ONE, TWO)
    started = await ask(client, "POST")
    loop.round()
    moving = await ask(client, "GET")
    assert (moving["id"], moving["status"]) == (started["id"], "IN_PROGRESS")
    assert (moving["replicasLoaded"], moving["replicasTotal"], moving["bytesToLoad"]) == (0, 3, 21)
    write_report(store, TABLE, TWO, [key for key in KEYS if TWO in load(store, TABLE).servers_of(key[:2])][:1], {})
    assert (await ask(client, "GET"))["replicasLoaded"] == 1
    write_report(store, TABLE, TWO, KEYS, {})
    loop.round()
    loop.round()
    assert counts(store) == {ONE: 3, TWO: 3}
    assert (await ask(client, "GET"))["status"] == "DONE"
    assert (await ask(client, "POST", "?dryRun=1"))["status"] == "NO_OP"


async def test_an_abort_leaves_segments_where_they_are_loaded_until_somebody_asks_again(
    client: Client, store: SqliteMetastore, loop: ControllerLoop, clock: FakeClock
) -> None:
    join(store, ONE, TWO)
    loop.round()
    assert counts(store) == {ONE: 6, TWO: 3}
    assert (await ask(client, "DELETE"))["status"] == "ABORTED"
    assert counts(store) == {ONE: 6}
    clock.advance(100)
    loop.round()
    assert counts(store) == {ONE: 6}
    await ask(client, "POST")
    loop.round()
    assert counts(store) == {ONE: 6, TWO: 3}


async def test_an_abort_is_over_when_the_servers_change(
    client: Client, store: SqliteMetastore, loop: ControllerLoop
) -> None:
    join(store, ONE, TWO)
    await ask(client, "DELETE")
    loop.round()
    assert counts(store) == {ONE: 6}
    join(store, THREE)
    loop.round()
    assert counts(store) == {ONE: 6, TWO: 2, THREE: 2}


def test_a_server_that_leaves_is_rid_of_its_segments_once_another_has_them(
    store: SqliteMetastore, loop: ControllerLoop
) -> None:
    join(store, ONE, TWO)
    mark(store, ONE, leaving=True, now_ms=0)
    loop.round()
    loop.round()
    assert counts(store) == {ONE: 6, TWO: 6}
    write_report(store, TABLE, TWO, KEYS, {})
    loop.round()
    assert counts(store) == {TWO: 6}


def test_a_mark_outlives_its_server_no_longer_than_needed(
    store: SqliteMetastore, loop: ControllerLoop, clock: FakeClock
) -> None:
    mark(store, ONE, leaving=False, now_ms=0)
    mark(store, TWO, leaving=True, now_ms=0)
    loop.round()
    clock.advance(100)
    loop.round()
    assert store.children("/DRAIN") == [ONE], "it is assigned segments, so it may come back"


def test_servers_of_a_suspended_table_are_silent_without_losing_anything(
    store: SqliteMetastore, loop: ControllerLoop, clock: FakeClock
) -> None:
    loop.round()
    tables.put_table(store, manifest(suspend=True))
    for _ in range(5):
        clock.advance(1000)
        loop.round()
    assert counts(store) == {ONE: 6}
    tables.put_table(store, manifest(suspend=False))
    join(store, TWO)
    loop.round()
    assert counts(store) == {ONE: 6}, "a server that is about to come back keeps its segments, as after a restart"
    clock.advance(200)
    join(store, ONE)
    loop.round()
    assert counts(store) == {ONE: 6, TWO: 3}


async def test_a_suspended_table_is_not_rebalanced(client: Client, store: SqliteMetastore) -> None:
    tables.put_table(store, manifest(suspend=True))
    answer = await client.post("/tables/t/rebalance")
    assert answer.status == 409
