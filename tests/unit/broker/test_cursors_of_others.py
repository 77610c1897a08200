"""Cursors behind a Service of several brokers: whichever is asked, the one that keeps the cursor answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.unit.security.callers import rules

from merlot.broker.http.cursor_owners import PASSED_ON_HEADER
from merlot.broker.role import BrokerConfig, BrokerRole
from merlot.cluster.instances.liveness import register
from merlot.cluster.records import InstanceRecord, Role
from merlot.ids import InstanceId
from merlot.metastore.sqlite import SqliteMetastore
from merlot.wire.client import LocalChannel
from merlot.wire.messages import ServerRequest, ServerResponse

PAGED = "SELECT x FROM (VALUES (1), (2), (3), (4), (5)) AS v (x) ORDER BY x"


async def no_server(_: ServerRequest) -> ServerResponse:
    raise AssertionError("queries without a table ask no server")


class Two:
    """Two brokers of one cluster, and somebody who asks them in turn."""

    def __init__(self, store: SqliteMetastore, session: ClientSession) -> None:
        self.store = store
        self.session = session
        self.roles = [self._role(), self._role()]
        self.urls: list[str] = []

    async def begin(self, broker: int) -> dict[str, Any]:
        url = f"{self.urls[broker]}/query/sql?getCursor=true&numRows=2"
        async with self.session.post(url, json={"sql": PAGED}) as response:
            found: dict[str, Any] = await response.json()
        return found

    async def ask(self, broker: int, path: str, method: str = "GET", **more: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.urls[broker] + path, **more) as response:
            is_json = response.content_type == "application/json" and method != "HEAD"
            return response.status, await response.json() if is_json else await response.text()

    def _role(self) -> BrokerRole:
        return BrokerRole(self.store, BrokerConfig(http_port=0, drain_s=0), lambda _: LocalChannel(no_server))


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    store = await asyncio.to_thread(SqliteMetastore, tmp_path / "meta.db")
    async with ClientSession() as session:
        brokers = Two(store, session)
        brokers.urls = [f"http://127.0.0.1:{await role.start()}" for role in brokers.roles]
        yield brokers
        for role in brokers.roles:
            await role.stop()
    await asyncio.to_thread(store.close)


@pytest.mark.parametrize("asked", [0, 1])
async def test_any_broker_pages_through_a_cursor_and_deletes_it(two: Two, asked: int) -> None:
    first = await two.begin(0)
    at = f"/responseStore/{first['requestId']}"
    pages = [await two.ask(asked, f"{at}/results?offset={offset}&numRows=2") for offset in (2, 4)]
    assert [page["resultTable"]["rows"] for _, page in pages] == [[[3], [4]], [[5]]]
    assert {page["requestId"] for _, page in pages} == {first["requestId"]}
    assert {page["brokerPort"] for _, page in pages} == {first["brokerPort"]}
    assert (await two.ask(asked, f"{at}/"))[1]["numRowsResultSet"] == 5
    assert (await two.ask(asked, at, "HEAD"))[0] == 200
    assert (await two.ask(asked, f"{at}/results?numRows=0"))[0] == 400
    assert await two.ask(asked, at, "DELETE") == (200, {"deleted": first["requestId"]})
    for broker in (0, 1):
        status, text = await two.ask(broker, f"{at}/results")
        assert (status, "no such cursor" in text) == (404, True)


async def test_every_broker_lists_the_cursors_of_all(two: Two) -> None:
    ids = {(await two.begin(broker))["requestId"] for broker in (0, 1, 1)}
    for broker, own in ((0, 1), (1, 2)):
        _, told = await two.ask(broker, "/responseStore")
        assert {one["requestId"] for one in told} == ids
        _, told = await two.ask(broker, "/responseStore", headers={PASSED_ON_HEADER: "1"})
        assert len(told) == own


async def test_a_broker_that_does_not_know_the_caller_adds_no_cursors(two: Two) -> None:
    """As it does not know somebody who has shown a certificate to the broker that was asked."""
    ids = [(await two.begin(broker))["requestId"] for broker in (0, 1)]
    two.roles[1].door.use(rules())
    status, told = await two.ask(0, "/responseStore")
    assert (status, [one["requestId"] for one in told]) == (200, ids[:1])


async def test_a_cursor_whose_broker_is_gone_says_to_run_the_query_again(two: Two) -> None:
    first = await two.begin(0)
    await two.roles[0].stop()
    status, text = await two.ask(1, f"/responseStore/{first['requestId']}/results")
    assert (status, "is gone" in text, two.roles[0].broker_id in text) == (404, True, True)
    assert (await two.ask(1, "/responseStore"))[1] == []


async def test_a_broker_that_is_announced_and_does_not_answer_is_503(two: Two) -> None:
    dead = InstanceRecord(id=InstanceId("Broker_127.0.0.1_1"), role=Role.BROKER, host="127.0.0.1", http_port=1)
    registration = await asyncio.to_thread(register, two.store, dead)
    for path in ("/responseStore/7_127.0.0.1_1", "/responseStore/7_127.0.0.1_1/results", "/responseStore"):
        status, text = await two.ask(0, path)
        assert (status, str(dead.id) in text) == (503, True)
    await asyncio.to_thread(registration.close)


@pytest.mark.parametrize("wanted", ["7", "7_", "x_127.0.0.1_9", "7_localhost_80", "7_a.example%2F_80", "%2e%2e"])
async def test_an_id_of_no_broker_that_lives_calls_nobody(two: Two, wanted: str) -> None:
    for path in (wanted, f"{wanted}/results"):
        assert (await two.ask(0, f"/responseStore/{path}"))[0] == 404


async def test_what_was_passed_on_is_not_passed_on_again(two: Two) -> None:
    first = await two.begin(0)
    status, _ = await two.ask(1, f"/responseStore/{first['requestId']}", headers={PASSED_ON_HEADER: "1"})
    assert status == 404
