"""What a client may hold of an HTTP port: places, bytes and time. Over real sockets."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from merlot.http import connection_limits
from merlot.http.connection_limits import BUSY, LATE, MAX_HELD_BYTES, ConnectionLimiter
from merlot.http.guard import BODY_LIMITS, BodyLimit
from merlot.http.server import HttpServer
from merlot.testing.patience import PATIENCE_S

HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
async def port(request: pytest.FixtureRequest) -> AsyncIterator[int]:
    """The port of a server; a parameter is the number of bytes that its connections may hold together."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    app = web.Application()
    app[BODY_LIMITS] = {"/echo": BodyLimit(1000, timeout_s=0.2), "/large/{name}": BodyLimit(16 << 20)}
    app.add_routes([web.post("/echo", echo), web.post("/large/{name}", echo), web.post("/other", echo)])
    limiter = ConnectionLimiter(max_held_bytes=getattr(request, "param", MAX_HELD_BYTES))
    server = HttpServer(app, limiter=limiter)
    yield await server.start("127.0.0.1", 0)
    await server.stop()


async def ask(port: int, *pieces: bytes, pause_s: float = 0.01) -> bytes:
    """All that is answered until the server closes, or answers a request in full."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause_s)
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return answer + await reader.readexactly(length)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def post(path: str, body: bytes, *fields: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize(("path", "limit"), [("/echo", 1000), ("/other", 1 << 20)])
async def test_bodies_have_a_limit_by_path(port: int, path: str, limit: int) -> None:
    assert (await ask(port, post(path, b"x" * limit))).endswith(b"\r\n\r\n%d" % limit)
    for fields in ([], ["Transfer-Encoding: chunked"]):
        body = b"x" * (limit + 1)
        request = post(path, body)
        if fields:
            request = b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode()
            request += b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        answer = await ask(port, request)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"Connection: close" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == 413


async def test_a_header_that_is_no_text_is_a_bad_request(port: int) -> None:
    for value, status in ((b"\xff", b"400"), ("é".encode(), b"200"), (b"e", b"200")):
        answer = await ask(port, b"POST /echo HTTP/1.1\r\nHost: x\r\nX: " + value + b"\r\nContent-Length: 1\r\n\r\n1")
        assert answer.startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("target", ["/echo?x={}", "/nosuch{}"])
async def test_a_path_or_query_that_is_not_ascii_is_a_bad_request(port: int, target: str) -> None:
    statuses = []
    for value in (b"\xff", "é".encode(), b"%FF"):
        line = b"POST " + target.encode().replace(b"{}", value) + b" HTTP/1.1\r\n"
        answer = await ask(port, line + b"Host: x\r\nContent-Length: 1\r\n\r\n1")
        statuses.append(int(answer.split()[1]))
    assert statuses == [400, 400, 200 if target.startswith("/echo") else 404]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "x"])
async def test_a_compressed_body_is_refused_and_not_unpacked(port: int, encoding: str) -> None:
    for body in (gzip.compress(bytes(64 << 20)), gzip.compress(b"x"), b"no gzip"):
        answer = await ask(port, post("/large/one", body, f"Content-Encoding: {encoding}"))
        assert answer.startswith(b"HTTP/1.1 415")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == 415
    assert (await ask(port, post("/other", b"12", "Content-Encoding: identity"))).endswith(b"\r\n\r\n2")


async def test_a_body_has_to_come_in_time(port: int) -> None:
    answer = await ask(port, HEAD + b"Content-Length: 9\r\n\r\n1234")
    assert answer.startswith(b"HTTP/1.1 408")


async def test_bodies_that_do_not_come_hold_up_nobody(port: int) -> None:
    """Neither many of them nor large ones."""
    started = [post("/other", b"1234")[:-3]] * 200 + [post("/large/name", b"1" * (9 << 20))[:200]] * 5
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in started]
    for (_, writer), start in zip(connections, started, strict=True):
        writer.write(start)
    assert (await ask(port, post("/other", b"1"))).startswith(b"HTTP/1.1 200")
    assert (await ask(port, post("/large/name", b"1" * (9 << 20)))).endswith(b"\r\n\r\n%d" % (9 << 20))
    for _, writer in connections:
        writer.close()


@pytest.mark.parametrize("port", [1_000_000], indirect=True)
async def test_the_client_that_holds_most_gives_way(port: int) -> None:
    """With requests that have not come whole: those that have are answered."""
    connections = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)) for _ in range(5)]
    ends = [asyncio.create_task(reader.read()) for reader, _ in connections]
    for _, writer in connections:
        writer.write(post("/large/name", b"1" * 400_000)[:-1])
    async with asyncio.timeout(PATIENCE_S):
        while sum(end.done() for end in ends) < 3:
            await asyncio.sleep(0.01)
    assert (await ask(port, post("/large/name", b"1" * 300_000))).endswith(b"\r\n\r\n300000")
    for end, (_, writer) in zip(ends, connections, strict=True):
        writer.close()
        assert (await end).startswith(b"HTTP/1.1 503") or not end.result()


async def test_answers_that_are_not_taken_are_bounded() -> None:
    """The client that takes least is cut off; whoever takes its answer has it whole."""
    answer = bytes(15_000_000)

    async def large(_: web.Request) -> web.Response:
        return web.Response(body=answer)

    app = web.Application()
    app.add_routes([web.get("/", large)])
    server = HttpServer(app, limiter=ConnectionLimiter(max_held_bytes=40_000_000))
    port = await server.start("127.0.0.1", 0)
    request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    silent = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)) for _ in range(8)]
    for _, writer in silent:
        writer.write(request)
    assert (await ask(port, request)).endswith(answer[:100])
    assert server._crowd is not None
    assert 0 < server._crowd.held_bytes <= 40_000_000
    num_whole = 0
    for reader, writer in silent:
        with contextlib.suppress(ConnectionError):
            num_whole += (await reader.read(-1)).endswith(answer)
        writer.close()
    assert num_whole <= 4
    await server.stop()


class Member:
    """A connection of a crowd."""

    def __init__(
        self, client: str = "a", *, waiting_since: float | None = None, idle_since: float | None = None
    ) -> None:
        self.client, self.waiting_since, self.idle_since = client, waiting_since, idle_since
        self.stalled = (0, 0)
        self.held_bytes = self.unwritten = 0
        self.is_arriving = waiting_since is not None
        self.ended: list[str] = []

    def unwritten_bytes(self) -> int:
        return self.unwritten

    def end(self, last_words: bytes = b"") -> None:
        self.ended.append({b"": "closed", LATE: "late", BUSY: "busy"}[last_words])

    def abort(self) -> None:
        self.ended.append("aborted")


async def test_the_longest_idle_make_room_and_the_busy_do_not() -> None:
    places = ConnectionLimiter(3)
    busy, old, new = Member(), Member(idle_since=1.0), Member(idle_since=2.0)
    assert all(map(places.admit, (busy, old, new)))
    late = Member()
    assert places.admit(late)
    assert (busy.ended, old.ended, new.ended) == ([], ["closed"], [])
    new.idle_since = None
    assert not places.admit(Member())
    places.leave(late)
    assert places.admit(Member())
    places.close()


async def test_the_client_with_most_places_makes_room_for_others() -> None:
    """With requests that have not come whole, the oldest first; its own next one only if they are slow."""
    now = asyncio.get_running_loop().time()
    places = ConnectionLimiter(4)
    old, new = Member(waiting_since=now - 1), Member(waiting_since=now)
    for member in (new, old, Member(), Member("b", waiting_since=now - 1)):
        assert places.admit(member)
    assert not places.admit(Member())
    assert places.admit(Member("c"))
    assert (old.ended, new.ended) == (["busy"], [])
    new.waiting_since = now - connection_limits.PATIENT_S - 1
    assert places.admit(Member())
    assert new.ended == ["busy"]
    places.close()


async def test_bytes_are_held_for_those_who_hold_few() -> None:
    places = ConnectionLimiter(9, max_held_bytes=100)
    small, large, answered, unread = Member(waiting_since=0), Member(waiting_since=0), Member(), Member("b")
    unread.unwritten = 1
    for member, num_bytes in ((small, 10), (large, 30), (answered, 40), (unread, 20)):
        assert places.admit(member)
        places.hold(member, num_bytes)
    late = Member("c", waiting_since=0)
    assert places.admit(late)
    places.hold(late, 20)
    assert (large.ended, places.held_bytes) == (["busy"], 90)
    places.hold(late, 60)
    assert (small.ended, late.ended, unread.ended, places.held_bytes) == ([], ["busy"], [], 70)
    places.hold(unread, 70)
    assert (small.ended, unread.ended, answered.ended, places.held_bytes) == ([], ["aborted"], [], 50)
    for member in (small, answered):
        places.leave(member)
    assert places.held_bytes == 0
    places.close()


async def test_who_sends_or_takes_nothing_is_ended() -> None:
    places = ConnectionLimiter(9, arrival_s=0.05, max_stalled_sweeps=3)
    now = asyncio.get_running_loop().time()
    sends_nothing, runs, idle = Member(waiting_since=now, idle_since=now), Member(), Member(idle_since=now)
    takes_nothing, takes = Member(), Member()
    takes_nothing.unwritten = takes.unwritten = 10_000
    for member in (sends_nothing, runs, idle, takes_nothing, takes):
        assert places.admit(member)
    async with asyncio.timeout(PATIENCE_S):
        while not (sends_nothing.ended and takes_nothing.ended):
            takes.unwritten -= 1
            await asyncio.sleep(0.005)
    assert (sends_nothing.ended[0], takes_nothing.ended[0]) == ("late", "aborted")
    assert not any(member.ended for member in (runs, idle, takes))
    places.close()


@pytest.mark.parametrize("pieces", [(b"",), (b"POST /echo HTT",), (post("/other", b"1"), b"GET /")])
async def test_a_head_has_to_come_in_time(pieces: tuple[bytes, ...]) -> None:
    server = HttpServer(web.Application(), limiter=ConnectionLimiter(9, arrival_s=0.05))
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.02)
    async with asyncio.timeout(PATIENCE_S):
        assert b"408 Request Timeout" in await reader.read()
    writer.close()
    await writer.wait_closed()
    await server.stop()


@pytest.mark.parametrize(
    ("request_", "status", "answer"),
    [
        (
            b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
            404,
            "there is no such path; /openapi.json has all path=/nowhere",
        ),
        (post("/nowhere", b"{}"), 404, "there is no such path; /openapi.json has all path=/nowhere"),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", 405, "GET is not taken here path=/echo"),
    ],
)
async def test_paths_and_methods_that_are_not_there_are_answered_as_json(
    port: int, request_: bytes, status: int, answer: str
) -> None:
    head, body = (await ask(port, request_)).split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(body) == {"code": status, "error": answer, "noSuchPath": True}
    assert (b"Allow: POST" in head) == (status == 405)
