"""The broker's own doors, its front and gRPC: every method as everybody; what a known head costs; who owns what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import pytest
from aiohttp import web
from tests.unit.security.callers import Caller, LeapingClock, callers, rules

from merlot.broker.cursors import ResponseStore
from merlot.broker.http.listener import Listener
from merlot.broker.queries import SqlRequest
from merlot.broker.query_errors import named
from merlot.broker.query_log import QueryLog
from merlot.broker.quotas import IdentityQuotas, QuotaExceededError
from merlot.broker.response import BrokerAnswer, ResultRows
from merlot.broker.rpc.endpoint import RpcListener
from merlot.broker.rpc.messages import METHOD, SERVICE, SERVICE_OF_SERVERS, BrokerRequest
from merlot.broker.settings import BrokerSettings
from merlot.clock import SystemClock
from merlot.codes import QueryErrorCode
from merlot.errors import NotFoundError
from merlot.http.door import DOOR
from merlot.security.access import Identity, IdentityLimits
from merlot.security.door import Door


@dataclass
class OneRow:
    """A broker that answers every query with one row, and knows who asked."""

    broker_id: str = "Broker_x_1"
    asked: list[SqlRequest] = field(default_factory=list)

    async def query(self, request: SqlRequest) -> BrokerAnswer:
        self.asked.append(request)
        rows = ResultRows(["a"], ["INT"], [[1]])
        return BrokerAnswer(request_id="1", client_request_id=None, broker_id=self.broker_id, result=rows)


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door(rules(), LeapingClock())
    yield door
    door.close()


PUBLIC_METHODS = {f"/{SERVICE_OF_SERVERS}/{METHOD}"}
"""Methods that only say that they are not there."""


async def test_every_method_as_everybody(door: Door) -> None:
    broker = OneRow()
    listener = RpcListener(broker, door)
    port = await listener.open("127.0.0.1", 0)
    paths = [f"/{service}/{name}" for service, methods in listener.methods().items() for name in methods]
    assert f"/{SERVICE}/{METHOD}" in paths
    wrong = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for path in paths:
            call = channel.unary_stream(path)
            for caller in callers():
                metadata = [] if caller.authorization is None else [("authorization", caller.authorization)]
                got = await status_of(call(BrokerRequest(sql="SELECT 1").SerializeToString(), metadata=metadata))
                if got is not expected(path, caller):
                    wrong.append((path, caller.name, got))
    await listener.close(0)
    assert wrong == []
    assert {request.identity.name for request in broker.asked} >= {"reader", "oidc:ann", "owner", "other", "root"}
    assert {request.client for request in broker.asked} == {"127.0.0.1"}


def expected(path: str, caller: Caller) -> grpc.StatusCode:
    if path in PUBLIC_METHODS:
        return grpc.StatusCode.UNIMPLEMENTED
    if not caller.is_known:
        return grpc.StatusCode.UNAUTHENTICATED
    may = caller.is_admin or "query" in caller.rights | caller.elsewhere
    return grpc.StatusCode.OK if may else grpc.StatusCode.PERMISSION_DENIED


async def status_of(call: Any) -> grpc.StatusCode:
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@dataclass
class Refusing(OneRow):
    """A broker that refuses every query."""

    async def query(self, request: SqlRequest) -> BrokerAnswer:
        return BrokerAnswer.refusal(self.broker_id, named(QueryErrorCode.ACCESS_DENIED, "permission denied"))


async def test_a_refused_call_is_no_bug(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can fill the log with tracebacks by asking for tables of others."""
    listener = RpcListener(Refusing(), door)
    port = await listener.open("127.0.0.1", 0)
    owner = next(caller for caller in callers() if caller.name == "owner")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_stream(f"/{SERVICE}/{METHOD}")
        message, metadata = BrokerRequest(sql="SELECT 1").SerializeToString(), [("authorization", owner.authorization)]
        assert await status_of(call(message, metadata=metadata)) is grpc.StatusCode.PERMISSION_DENIED
    await listener.close(0)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("sent", [["Digest x"], ["Basic ???"], ["Bearer a", "Bearer b"]])
async def test_without_a_document_nobody_reads_credentials(sent: list[str]) -> None:
    """Clients that send them anyway are answered, over gRPC as over HTTP."""
    broker = OneRow()
    listener = RpcListener(broker)
    port = await listener.open("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_stream(f"/{SERVICE}/{METHOD}")
        metadata = [("authorization", value) for value in sent]
        got = await status_of(call(BrokerRequest(sql="SELECT 1").SerializeToString(), metadata=metadata))
    await listener.close(0)
    assert got is grpc.StatusCode.OK
    assert [request.identity.name for request in broker.asked] == ["anonymous"]


@pytest.fixture
async def front(door: Door) -> AsyncIterator[tuple[int, OneRow, Door]]:
    broker, app = OneRow(), web.Application()
    app[DOOR] = door
    listener = Listener(broker, app, SystemClock())
    yield await listener.open("127.0.0.1", 0), broker, door
    await listener.close()


def request(authorization: str | None, *more: str) -> bytes:
    body = b'{"sql": "SELECT 1"}'
    lines = ["POST /query/sql HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *more]
    lines += [] if authorization is None else [f"Authorization: {authorization}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split()[1]), head + await reader.readexactly(length)


async def test_the_front_as_everybody(front: tuple[int, OneRow, Door]) -> None:
    """All on one connection: who asked before says nothing about who asks now."""
    port, broker, _ = front
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for caller in [*callers(), *reversed(callers())]:
        writer.write(request(caller.authorization))
        status, text = await answer(reader)
        may = caller.is_admin or "query" in caller.rights | caller.elsewhere
        assert status == (200 if may else 403 if caller.is_known else 401), caller.name
        assert (b"WWW-Authenticate: Basic" in text) is (status == 401)
        assert len(broker.asked) == 0 or broker.asked[-1].client == "127.0.0.1"
    writer.close()
    await writer.wait_closed()
    assert "anonymous" not in {one.identity.name for one in broker.asked}


async def test_a_known_head_is_proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, app, clock = OneRow(), web.Application(), SystemClock()
    door = app[DOOR] = Door(rules(), clock)
    identify, proved = door.identify, []

    async def counted(*given: Any) -> Any:
        proved.append(given)
        return await identify(*given)

    monkeypatch.setattr(door, "identify", counted)
    listener = Listener(broker, app, clock)
    reader, writer = await asyncio.open_connection("127.0.0.1", await listener.open("127.0.0.1", 0))
    owner = next(caller for caller in callers() if caller.name == "owner")
    for _ in range(50):
        writer.write(request(owner.authorization))
        assert (await answer(reader))[0] == 200
    assert len(proved) == 1
    fewer = rules()
    door.use(type(fewer)(fewer.access))
    writer.write(request(owner.authorization))
    assert (await answer(reader))[0] == 401, "a document without the user"
    writer.close()
    await writer.wait_closed()
    await listener.close()
    door.close()


def test_a_cursor_belongs_to_who_asked() -> None:
    store = ResponseStore(SystemClock())
    rows = ResultRows(["a"], ["INT"], [[1]])
    for name in ("ann", "bob"):
        store.keep(BrokerAnswer(request_id=name, client_request_id=None, broker_id="B_x_1", result=rows), "", name)
    assert [stored.owner for stored in store.all("ann")] == ["ann"]
    assert len(store.all()) == 2
    assert store.get("ann", "ann").owner == "ann"
    with pytest.raises(NotFoundError):
        store.get("ann", "bob")
    with pytest.raises(NotFoundError):
        store.delete("ann", "bob")
    store.delete("ann")


async def test_the_query_log_shows_ones_own_queries_or_sums_over_all() -> None:
    log = QueryLog(SystemClock(), BrokerSettings())
    rows = ResultRows(["a"], ["INT"], [[1]])
    answered = BrokerAnswer(request_id="1", client_request_id=None, broker_id="B_x_1", result=rows, tables=("t",))
    for name, constant in (("ann", 1), ("ann", 2), ("bob", 3)):
        log.observe(f"SELECT a FROM t WHERE b = {constant}", "", answered, 0.1, asker=name)
    (own,), (both,) = log.report("t", "bob")["queries"], log.report("t")["queries"]
    assert (own["count"], own["samples"]) == (1, ["SELECT a FROM t WHERE b = 3"])
    assert (both["count"], len(both["samples"])) == (3, 3)
    log.close()


def test_limits_are_of_an_identity() -> None:
    quotas, ann, bob = IdentityQuotas(), Identity("ann"), Identity("bob")
    limits = IdentityLimits(queries_per_second=4, concurrent=1)
    with quotas.taken(ann, limits, 2, 0.0):
        with pytest.raises(QuotaExceededError, match="too many queries"), quotas.taken(ann, limits, 2, 0.0):
            pass
        with quotas.taken(bob, limits, 2, 0.0):
            pass
    with pytest.raises(QuotaExceededError, match="asks too often"), quotas.taken(ann, limits, 2, 0.0):
        pass
    with quotas.taken(ann, limits, 2, 0.5):
        pass
