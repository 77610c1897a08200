"""Plain queries are answered ahead of the HTTP server; every other request is its business, right or wrong."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from merlot.broker.http.front import Front
from merlot.broker.http.listener import Listener
from merlot.broker.queries import SqlRequest
from merlot.broker.response import BrokerAnswer
from merlot.clock import SystemClock
from merlot.testing.patience import PATIENCE_S

BODY = b'{"sql": "SELECT 1"}'


@dataclass
class Broker:
    """Answers with the query's text as its id; `SLOW` waits, `LARGE` is large, `BUG` fails."""

    broker_id: str = "Broker_h_1"
    asked: list[SqlRequest] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    was_cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def query(self, request: SqlRequest) -> BrokerAnswer:
        self.asked.append(request)
        if request.sql == "SLOW":
            try:
                await self.may_answer.wait()
            except asyncio.CancelledError:
                self.was_cancelled.set()
                raise
        if request.sql == "BUG":
            raise ZeroDivisionError
        text = "x" * (8 << 20) if request.sql == "LARGE" else request.sql
        return BrokerAnswer(request_id=text, client_request_id=request.client_request_id, broker_id=self.broker_id)


@dataclass
class Wire:
    """Raw bytes to a broker's port."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
            if fields.get("transfer-encoding"):
                raise AssertionError("not expected")
            body = await self.reader.readexactly(int(fields["content-length"]))
        return int(head[0].split()[1]), fields, body

    async def is_closed(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read() == b""
        return True


@dataclass
class Bench:
    broker: Broker
    listener: Listener
    port: int
    exits: contextlib.AsyncExitStack
    app_paths: list[str]

    async def connect(self) -> Wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.exits.push_async_callback(_close, writer)
        return Wire(reader, writer)

    @property
    def listener_front(self) -> Front:
        front = self.listener._front
        assert front is not None
        return front

    @property
    def num_left_to_server(self) -> int:
        return len(self.app_paths)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    seen: list[str] = []

    async def by_server(request: web.Request) -> web.Response:
        seen.append(request.path)
        body = await request.read()
        return web.Response(text=f"server {request.method} {request.path} {len(body)}")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", by_server)
    broker = Broker()
    listener = Listener(broker, app, SystemClock())
    async with contextlib.AsyncExitStack() as exits:
        port = await listener.open("127.0.0.1", 0)
        exits.push_async_callback(listener.close)
        yield Bench(broker, listener, port, exits, seen)


def post(body: bytes = BODY, *headers: str, path: str = "/query/sql", version: str = "1.1") -> bytes:
    lines = (f"POST {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *headers, "", "")
    return "\r\n".join(lines).encode() + body


def query(sql: str) -> bytes:
    return json.dumps({"sql": sql}).encode()


async def test_a_plain_query_is_answered_without_the_server(bench: Bench) -> None:
    wire = await bench.connect()
    wire.writer.write(post(BODY, "X-Correlation-Id: abc", "Accept: */*"))
    status, fields, body = await wire.answer()
    assert (status, fields["content-type"], fields["x-pinot-error-code"]) == (200, "application/json", "-1")
    assert fields["date"].endswith("GMT")
    assert json.loads(body)["requestId"] == "SELECT 1"
    assert bench.broker.asked == [SqlRequest("SELECT 1", "", "abc", client="127.0.0.1")]
    assert bench.num_left_to_server == 0


async def test_a_connection_serves_one_query_after_the_other(bench: Bench) -> None:
    wire = await bench.connect()
    for number in range(5):
        wire.writer.write(post(query(f"SELECT {number}")))
        assert json.loads((await wire.answer())[2])["requestId"] == f"SELECT {number}"


async def test_requests_sent_ahead_are_answered_in_order(bench: Bench) -> None:
    wire = await bench.connect()
    wire.writer.write(post(query("SLOW")) + b"".join(post(query(f"SELECT {number}")) for number in range(3)))
    wire.writer.write(post(query("SELECT 3")))
    await asyncio.sleep(0.01)
    bench.broker.may_answer.set()
    ids = [json.loads((await wire.answer())[2])["requestId"] for _ in range(5)]
    assert ids == ["SLOW", "SELECT 0", "SELECT 1", "SELECT 2", "SELECT 3"]


async def test_a_client_that_sends_far_ahead_has_to_wait(bench: Bench) -> None:
    wire = await bench.connect()
    many = 5_000
    wire.writer.write(post(query("SLOW")) + post() * many)
    sending = asyncio.create_task(wire.writer.drain())
    bench.broker.may_answer.set()
    for _ in range(many + 1):
        assert (await wire.answer())[0] == 200
    await sending


async def test_a_body_may_come_in_pieces(bench: Bench) -> None:
    wire = await bench.connect()
    data = post(query("SELECT " + "9" * 100_000))
    for start in range(0, len(data), 20_011):
        # The head is whole in the first.
        wire.writer.write(data[start : start + 20_011])
        await asyncio.sleep(0.002)
    assert len(json.loads((await wire.answer())[2])["requestId"]) == 100_007
    assert bench.num_left_to_server == 0


async def test_a_body_in_single_bytes_is_looked_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    heads = bench.listener_front.heads
    monkeypatch.setattr(heads, "read", lambda data, read=heads.read: (looked.append(len(data)), read(data))[1])
    wire = await bench.connect()
    data = post(query("SELECT 1"))
    for start in range(len(data) - 20, len(data)):
        wire.writer.write(data[: start + 1] if start == len(data) - 20 else data[start : start + 1])
        await asyncio.sleep(0.001)
    assert json.loads((await wire.answer())[2])["requestId"] == "SELECT 1"
    assert len(looked) == 1


async def test_a_request_that_does_not_come_in_time_is_ended(bench: Bench) -> None:
    bench.listener_front.limiter._arrival_s = 0.05
    bench.listener_front.limiter._sweep()
    for start in (b"", post()[:-3], post() + post()[:-3], b"POST /que"):
        wire = await bench.connect()
        wire.writer.write(start)
        async with asyncio.timeout(PATIENCE_S):
            answers = await wire.reader.read()
        assert answers.count(b"HTTP/1.1 408 Request Timeout") == 1
    assert len(bench.broker.asked) == 1


async def test_unfinished_requests_hold_no_more_bytes_than_all_may(bench: Bench) -> None:
    limiter = bench.listener_front.limiter
    limiter.max_held_bytes = 50_000
    first, second, whole = [await bench.connect() for _ in range(3)]
    data = post(b"x" * 40_000)
    first.writer.write(data[:-1])
    while limiter.held_bytes < len(data) - 1:
        await asyncio.sleep(0.001)
    second.writer.write(data[:-1])
    async with asyncio.timeout(PATIENCE_S):
        assert (await first.reader.read()).startswith(b"HTTP/1.1 503")
    whole.writer.write(post())
    assert (await whole.answer())[0] == 200
    second.writer.write(data[-1:])
    assert (await second.answer())[0] == 400
    assert limiter.held_bytes == 0


async def test_no_head_is_kept_as_it_was_sent(bench: Bench) -> None:
    wire = await bench.connect()
    for _ in range(2):
        wire.writer.write(post(BODY, "Authorization: Basic c2VjcmV0"))
        assert (await wire.answer())[0] == 200
    known = bench.listener_front.heads._known
    assert len(known) == 1
    assert b"c2VjcmV0" not in repr(known).encode()


async def test_an_answer_of_megabytes_comes_whole(bench: Bench) -> None:
    wire = await bench.connect()
    wire.writer.write(post(query("LARGE")) + post())
    assert len(json.loads((await wire.answer())[2])["requestId"]) == 8 << 20
    assert json.loads((await wire.answer())[2])["requestId"] == "SELECT 1"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"sql": 5}', b'{"sql": "a", "queryOptions": 7}'])
async def test_a_body_that_is_no_query_is_a_bad_request(bench: Bench, body: bytes) -> None:
    wire = await bench.connect()
    wire.writer.write(post(body))
    status, fields, text = await wire.answer()
    assert (status, fields["x-pinot-error-code"]) == (400, "100")
    assert json.loads(text)["exceptions"][0]["errorCode"] == 100


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /query/sql?sql=SELECT%201 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        post(path="/query/sql?x=1"),
        post(path="/query/sqlx"),
        post(version="1.0"),
        post(BODY, "Content-Type: a", "Content-Type: b"),
        post(BODY, "Expect: 100-nothing"),
        post(BODY, "Connection: keep-alive, x"),
        post(BODY, "X-Correlation-Id: ü"),
        post(BODY, "Origin: http://x"),
        post(BODY, "Origin: http://evil.example"),
        post(BODY, "Sec-Fetch-Site: cross-site"),
        post(BODY, "User-Agent: Mozilla/5.0", "Content-Type: text/plain"),
        b"POST /query/sql HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"post /query/sql HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        b"POST /query/sql HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /query/sql HTTP/1.1\r\nHost: x\r\nContent-Length : 0\r\n\r\n",
        b"POST /query/sql HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n folded: y\r\n\r\n",
        b"POST /query/sql HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 9_000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"what?\r\n\r\n",
    ],
)
async def test_every_other_request_is_left_to_the_server(bench: Bench, request_bytes: bytes) -> None:
    wire = await bench.connect()
    wire.writer.write(post())
    assert (await wire.answer())[0] == 200
    wire.writer.write(request_bytes)
    status, fields, _ = await wire.answer()
    assert "aiohttp" in fields["server"]
    assert (status == 200) == (bench.num_left_to_server == 1)
    assert len(bench.broker.asked) == 1


async def test_a_connection_that_was_left_to_the_server_stays_there(bench: Bench) -> None:
    wire = await bench.connect()
    wire.writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + post())
    assert (await wire.answer())[2] == b"server GET /health 0"
    assert (await wire.answer())[2] == b"server POST /query/sql 19"


async def test_a_head_in_pieces_is_left_to_the_server(bench: Bench) -> None:
    wire = await bench.connect()
    data = post()
    wire.writer.write(data[:30])
    await asyncio.sleep(0.02)
    wire.writer.write(data[30:])
    assert (await wire.answer())[2] == b"server POST /query/sql 19"


async def test_a_client_may_have_the_connection_closed(bench: Bench) -> None:
    wire = await bench.connect()
    wire.writer.write(post(BODY, "Connection: close"))
    assert (await wire.answer())[0] == 200
    assert await wire.is_closed()


async def test_a_client_that_hangs_up_cancels_its_query(bench: Bench) -> None:
    wire = await bench.connect()
    wire.writer.write(post(query("SLOW")))
    while not bench.broker.asked:
        await asyncio.sleep(0.001)
    wire.writer.close()
    async with asyncio.timeout(PATIENCE_S):
        await bench.broker.was_cancelled.wait()


async def test_a_bug_closes_the_connection_and_shows_no_traceback(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    wire = await bench.connect()
    wire.writer.write(post(query("BUG")))
    assert await wire.is_closed()
    assert "ZeroDivisionError" in caplog.text


async def test_closing_ends_idle_connections_and_lets_the_others_have_their_answers(bench: Bench) -> None:
    idle, busy = await bench.connect(), await bench.connect()
    idle.writer.write(post())
    await idle.answer()
    busy.writer.write(post(query("SLOW")))
    while len(bench.broker.asked) < 2:
        await asyncio.sleep(0.001)
    closing = asyncio.create_task(bench.listener.close())
    assert await idle.is_closed()
    bench.broker.may_answer.set()
    assert (await busy.answer())[0] == 200
    assert await busy.is_closed()
    await closing
    with pytest.raises(ConnectionError):
        await bench.connect()
