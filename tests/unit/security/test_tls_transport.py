"""TLS between a transport and a protocol: bytes, flow control, ends, and clients that never finish."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.support.certificates import CertificateFolder, client_of

from merlot import memory
from merlot.http.connection_limits import ConnectionLimiter
from merlot.http.server import HttpServer
from merlot.http.tls_door import CONNECTION_BYTES
from merlot.security.tls import Certificates
from merlot.security.tls_transport import MAX_REPLY_BYTES, TlsConnection
from merlot.testing.patience import until

LONG = bytes(range(256)) * 8_000


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    return CertificateFolder(tmp_path / "tls")


class Echo(asyncio.Protocol):
    """Sends back what it gets, and keeps what happens to it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost.set_result(exc)


class EchoServer:
    """A port of echoes."""

    def __init__(self, folder: CertificateFolder, handshake_s: float = 5.0) -> None:
        self.certificates = Certificates(folder.files(), look_s=0)
        self.echoes: list[Echo] = []
        self.failures: list[Exception] = []
        self._handshake_s = handshake_s

    async def __aenter__(self) -> EchoServer:
        self._server = await asyncio.get_running_loop().create_server(self._connection, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for echo in self.echoes:
            echo.transport.abort()
            await echo.lost

    def _connection(self) -> asyncio.Protocol:
        return TlsConnection(
            self.certificates.public_context(),
            self._echo,
            handshake_s=self._handshake_s,
            on_failure=self.failures.append,
        )

    def _echo(self) -> Echo:
        self.echoes.append(Echo())
        return self.echoes[-1]


@contextlib.asynccontextmanager
async def connected(
    port: int, host: str = "localhost", **options: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is gone when the test goes on: a loop that closes before would leave its socket open."""
    reader, writer = await asyncio.open_connection(host, port, **options)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_bytes_come_back_as_they_were(folder: CertificateFolder) -> None:
    async with EchoServer(folder) as server, connected(server.port, ssl=client_of(folder.ca)) as (reader, writer):
        writer.write(LONG)
        assert await reader.readexactly(len(LONG)) == LONG
        writer.close()
        assert await server.echoes[0].lost is None
        assert server.echoes[0].events[-2:] == ["eof", "lost"]


async def test_both_ends_speak_with_each_other(folder: CertificateFolder) -> None:
    """The client's end of frames is this layer as well."""
    async with EchoServer(folder) as server:
        got = asyncio.get_running_loop().create_future()

        class Client(Echo):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                self.transport.write(b"hello")

            def data_received(self, data: bytes) -> None:
                got.set_result(data)

        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: TlsConnection(server.certificates.client_context(), Client, server_name="localhost"),
            "127.0.0.1",
            server.port,
        )
        assert await got == b"hello"
        inside = transport.get_protocol()
        assert isinstance(inside, TlsConnection)
        assert isinstance(inside.protocol, Client)
        transport.abort()
        await inside.protocol.lost


async def test_unread_bytes_are_counted_and_writers_are_paused(folder: CertificateFolder) -> None:
    """asyncio's own layer says 0 here, and never pauses."""
    small = {"ssl": client_of(folder.ca), "limit": 1 << 10}
    async with EchoServer(folder) as server, connected(server.port, **small) as (reader, _):
        await until(lambda: _true(bool(server.echoes)))
        echo = server.echoes[0]
        await until(lambda: _true(hasattr(echo, "transport")))
        written = 0
        while not echo.events:  # the kernel takes some, how much is its own affair
            echo.transport.write(LONG)
            written += len(LONG)
        assert echo.events == ["pause"]
        unread = echo.transport.get_write_buffer_size()
        echo.transport.write(LONG)
        assert echo.transport.get_write_buffer_size() >= unread + len(LONG)
        await reader.readexactly(written + len(LONG))
        assert echo.events == ["pause", "resume"]
        assert echo.transport.get_write_buffer_size() == 0


async def _true(value: bool) -> bool:
    return value


class Rekeying:
    """TLS whose peer asks for new keys in each record, as a client can that speaks TLS 1.3. Python's cannot."""

    def __init__(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    def do_handshake(self) -> None:
        pass

    def pending(self) -> int:
        return 0

    def read(self, _: int) -> bytes:
        self._outgoing.write(bytes(len(self._incoming.read())))
        raise ssl.SSLWantReadError


class Unread(asyncio.Transport):
    """A transport whose peer reads when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.held += len(data)

    def get_write_buffer_size(self) -> int:
        return self.held

    def abort(self) -> None:
        self.is_aborted = True


async def test_a_peer_that_asks_for_keys_and_does_not_read_is_cut_off() -> None:
    context: Any = SimpleNamespace(wrap_bio=lambda incoming, outgoing, **_: Rekeying(incoming, outgoing))
    raw, connection = Unread(), TlsConnection(context, Echo)
    connection.connection_made(raw)
    for _ in range(1_000):
        connection.data_received(bytes(1_000))
        raw.held = 0
    assert not raw.is_aborted
    for _ in range(1_000):
        connection.data_received(bytes(1_000))
    assert raw.is_aborted
    assert raw.held <= MAX_REPLY_BYTES


async def test_bytes_that_a_server_does_not_want_stay_with_the_client(folder: CertificateFolder) -> None:
    async with EchoServer(folder) as server, connected(server.port, ssl=client_of(folder.ca)) as (reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        server.echoes[0].transport.pause_reading()
        assert not server.echoes[0].transport.is_reading()
        writer.write(b"b")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.1)
        server.echoes[0].transport.resume_reading()
        assert await reader.readexactly(1) == b"b"


async def test_a_client_that_says_nothing_is_ended(folder: CertificateFolder) -> None:
    async with EchoServer(folder, handshake_s=0.1) as server, connected(server.port, "127.0.0.1") as (reader, _):
        assert await reader.read() == b""
        assert [type(failure) for failure in server.failures] == [TimeoutError]


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70_000), bytes(9)])
async def test_a_client_that_speaks_no_tls_gets_an_alert(folder: CertificateFolder, sent: bytes) -> None:
    async with EchoServer(folder) as server, connected(server.port, "127.0.0.1") as (reader, writer):
        writer.write(sent)
        try:
            answer = await reader.read()
        except ConnectionError:  # the server does not read the rest
            answer = b""
        assert len(answer) < 10
        await until(lambda: _true(len(server.failures) == 1))
        assert server.echoes == []


async def test_a_cut_connection_is_lost_on_both_sides(folder: CertificateFolder) -> None:
    async with EchoServer(folder) as server, connected(server.port, ssl=client_of(folder.ca)) as (reader, writer):
        writer.write(b"a")
        await reader.readexactly(1)
        raw: socket.socket = writer.get_extra_info("socket")
        raw.shutdown(socket.SHUT_RDWR)
        await server.echoes[0].lost


@pytest.fixture
async def limited(folder: CertificateFolder) -> AsyncIterator[tuple[str, int, ConnectionLimiter]]:
    """An HTTPS server with four places."""

    async def hello(request: web.Request) -> web.Response:
        assert request.secure
        return web.Response(text="hello")

    app = web.Application()
    app.add_routes([web.get("/", hello)])
    limiter = ConnectionLimiter(4)
    server = HttpServer(app, limiter=limiter, certificates=Certificates(folder.files()), shutdown_s=0.1)
    port = await server.start("127.0.0.1", 0)
    yield f"https://localhost:{port}", port, limiter
    await server.stop()


async def test_silent_handshakes_hold_places_only_until_others_want_them(
    folder: CertificateFolder, limited: tuple[str, int, ConnectionLimiter]
) -> None:
    url, port, _ = limited
    async with contextlib.AsyncExitStack() as silent:
        for _ in range(4):
            await silent.enter_async_context(connected(port, "127.0.0.1"))
        await asyncio.sleep(2.1)  # a waiting connection of one's own client is left alone for two seconds
        async with aiohttp.ClientSession() as session, session.get(url, ssl=client_of(folder.ca)) as answer:
            assert await answer.text() == "hello"


async def test_an_idle_connection_takes_no_more_memory_than_the_limit_allows_for(
    folder: CertificateFolder, limited: tuple[str, int, ConnectionLimiter]
) -> None:
    """asyncio's own layer takes more than 256 KiB for each."""
    count = 50
    context = Certificates(folder.files()).public_context()
    client = client_of(folder.ca)
    clients: list[TlsConnection] = []

    def connect() -> TlsConnection:
        """Shake hands without sockets."""
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        end = client.wrap_bio(down, up, server_hostname="localhost")
        sent: list[bytes] = []

        class Raw(asyncio.Transport):
            def write(self, data: bytes | bytearray | memoryview) -> None:
                sent.append(bytes(data))

            def abort(self) -> None:
                pass

        connection = TlsConnection(context, Echo)
        connection.connection_made(Raw())
        while connection.protocol is None:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
            connection.data_received(up.read())
            down.write(b"".join(sent))
            sent.clear()
        return connection

    def memory_of_each() -> float:
        before = memory.taken_bytes()
        clients.extend(connect() for _ in range(count))
        return (memory.taken_bytes() - before) / count

    # The least of some, since memory is the process's: other threads may take more at the same time.
    assert min(memory_of_each() for _ in range(3)) < CONNECTION_BYTES
