"""What a client may hold of an HTTP port: places, bytes and time. Over real sockets."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from merlot.http import crowd, guard
from merlot.http.crowd import Crowd
from merlot.http.guard import BODY_LIMITS, BodyLimit
from merlot.http.server import HttpServer
from merlot.testing.patience import PATIENCE_S

HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    app = web.Application()
    app[BODY_LIMITS] = {"/echo": BodyLimit(1000, timeout_s=0.2), "/large/{name}": BodyLimit(16 << 20)}
    app.add_routes([web.post("/echo", echo), web.post("/large/{name}", echo), web.post("/other", echo)])
    server = HttpServer(app)
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


async def test_too_many_bodies_at_a_time_are_refused(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_BODIES", 1)
    waiting = asyncio.create_task(ask(port, HEAD + b"Content-Length: 9\r\n\r\n1234"))
    while not (await ask(port, post("/other", b"1"))).startswith(b"HTTP/1.1 503"):
        assert not waiting.done()  # the first body is on its way
    assert (await waiting).startswith(b"HTTP/1.1 408")
    assert (await ask(port, post("/other", b"1"))).startswith(b"HTTP/1.1 200")


class Member:
    """A connection of a crowd."""

    def __init__(self, *, waiting_since: float | None = None, idle_since: float | None = None) -> None:
        self.waiting_since, self.idle_since = waiting_since, idle_since
        self.stalled = (0, 0)
        self.unwritten = 0
        self.ended: list[str] = []

    def unwritten_bytes(self) -> int:
        return self.unwritten

    def end(self, *, is_late: bool) -> None:
        self.ended.append("late" if is_late else "closed")

    def abort(self) -> None:
        self.ended.append("aborted")


async def test_the_longest_idle_make_room_and_the_busy_do_not() -> None:
    places = Crowd(3)
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


async def test_who_sends_or_takes_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "MAX_STALLED_SWEEPS", 3)
    places = Crowd(9, arrival_s=0.05)
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
async def test_a_head_has_to_come_in_time(pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merlot.http.server.Crowd", lambda: Crowd(9, arrival_s=0.05))
    server = HttpServer(web.Application())
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
