"""A broker's channel to one server: over TCP, or within the process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from merlot.errors import UnavailableError
from merlot.kernels import compile_time
from merlot.security.tls import Certificates
from merlot.security.tls_transport import TlsConnection
from merlot.wire.codec import decode_response, encode_request
from merlot.wire.connection import TICK_S, Connection
from merlot.wire.frames import MAX_MESSAGE_BYTES, OLDEST_VERSION, FrameKind, Hello, MessageReader, UnfinishedBytes
from merlot.wire.messages import ServerRequest, ServerResponse

CONNECT_S: Final = 2.0
"""Timeout of a TCP connection: the address of a machine or a pod that is gone may never answer, and other replicas do.
The first packet is sent again after a second."""
HANDSHAKE_S: Final = 5.0
"""Timeout of the TLS handshake that follows. It takes a millisecond; a busy server may take seconds to come to it."""
MAX_ANSWER_BYTES: Final = 4 * MAX_MESSAGE_BYTES
"""Bytes of one server's answers that may be unfinished at a time."""

INLINE_BYTES: Final = 256 << 10
"""Length above which an answer is decoded in a thread, so that other calls need not wait: checking texts takes a
millisecond a megabyte."""

Handler = Callable[[ServerRequest], Awaitable[ServerResponse]]
"""A server's side of a call. It answers a faulty query with an error and does not raise; cancelling it cancels the
query."""


class ServerChannel(Protocol):
    """Sends requests to one server. Used on one event loop."""

    async def execute(self, request: ServerRequest, timeout_s: float) -> ServerResponse:
        """Return the server's answer.

        Raise UnavailableError if the server cannot be reached or does not answer in time, CorruptionError if its answer
        cannot be read. Cancelling the call cancels the query on the server."""
        ...

    async def close(self) -> None:
        """Close the channel; calls under way end with UnavailableError."""
        ...


class TcpChannel:
    """A channel to a server in another process. The first call connects, and a call after a loss connects again."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        certificates: Certificates | None = None,
        tick_s: float = TICK_S,
        connect_s: float = CONNECT_S,
    ) -> None:
        """certificates: those of this process, if the server speaks TLS."""
        self._host = host
        self._certificates = certificates
        self._connect_s = connect_s
        self._port = port
        self._tick_s = tick_s
        self._connection: _ClientConnection | None = None
        self._connecting: asyncio.Task[_ClientConnection] | None = None
        self._is_closed = False

    async def execute(self, request: ServerRequest, timeout_s: float) -> ServerResponse:
        message = encode_request(request)
        connection = self._connection
        if connection is None or not connection.is_open:
            connection, timeout_s = await self._connected(timeout_s)
        started = asyncio.get_running_loop().time()
        answer = await connection.call(message, timeout_s)
        if len(answer) <= INLINE_BYTES:
            return decode_response(answer)
        left_s = timeout_s - (asyncio.get_running_loop().time() - started)
        try:
            async with asyncio.timeout(left_s):
                return await asyncio.to_thread(decode_response, answer)
        except TimeoutError as error:
            text = f"server's answer is not read in time target={self._host}:{self._port} bytes={len(answer)}"
            raise UnavailableError(text) from error

    async def ping(self, timeout_s: float) -> str:
        """Return the server's instance id; raise UnavailableError if it cannot be reached."""
        connection, timeout_s = await self._connected(timeout_s)
        return await connection.ping(timeout_s)

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            self._connection.abort("channel was closed")

    async def _connected(self, timeout_s: float) -> tuple[_ClientConnection, float]:
        """Return an open connection and the rest of the time. Callers share one attempt to connect."""
        if self._is_closed:
            raise UnavailableError(f"channel is closed target={self._host}:{self._port}")
        if self._connection is not None and self._connection.is_open:
            return self._connection, timeout_s
        loop = asyncio.get_running_loop()
        started = loop.time()
        attempt = self._connecting
        if attempt is None or attempt.done():
            attempt = self._connecting = loop.create_task(self._connect())
            attempt.add_done_callback(_retrieve_error)
        done, _ = await asyncio.wait([attempt], timeout=timeout_s)
        if not done:
            raise UnavailableError(f"server did not answer in time target={self._host}:{self._port}")
        if attempt.cancelled():
            raise UnavailableError(f"channel was closed target={self._host}:{self._port}")
        return attempt.result(), timeout_s - (loop.time() - started)

    async def _connect(self) -> _ClientConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_s):
                connection = _ClientConnection(tick_s=self._tick_s)
                transport, _ = await loop.create_connection(
                    lambda: self._behind_tls(connection), self._host, self._port
                )
        except OSError as error:  # TimeoutError is one
            raise UnavailableError(f"cannot connect target={self._host}:{self._port} reason={error}") from error
        try:
            await connection.ready
        except BaseException:
            connection.abort("gave up connecting")
            transport.abort()
            raise
        self._connection = connection
        return connection

    def _behind_tls(self, connection: _ClientConnection) -> asyncio.Protocol:
        """Return the protocol of the TCP connection: one that speaks TLS first if the server does."""
        if self._certificates is None:
            return connection
        return TlsConnection(
            self._certificates.client_context(),
            lambda: connection,
            server_name=self._host,
            handshake_s=HANDSHAKE_S,
            on_failure=connection.connection_lost,
        )


class _ClientConnection(Connection):
    """A client's end of a connection: the calls under way, by number."""

    def __init__(self, *, tick_s: float) -> None:
        # Each connection has its own bound: a bound on the answers of all servers would fail the latest calls.
        super().__init__(
            MessageReader(UnfinishedBytes(limit=MAX_ANSWER_BYTES), max_bytes=MAX_ANSWER_BYTES), tick_s=tick_s
        )
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._deadlines: dict[int, float] = {}
        """Deadlines of the calls, in the loop's time."""
        self._alarm: asyncio.TimerHandle | None = None
        self._numbers = itertools.count(1)
        self.ready: asyncio.Future[None] = self._loop.create_future()
        """Done when the server has introduced itself; UnavailableError if it does not, or refuses."""
        self._pongs: set[asyncio.Future[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send(FrameKind.HELLO, 0, Hello().to_bytes())

    async def call(self, message: bytes, timeout_s: float) -> bytes:
        """Return the answer to a request. Raise UnavailableError."""
        if not self.is_open:
            raise self._connection_lost_error()
        call = next(self._numbers)
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._calls[call] = answer
        deadline = self._deadlines[call] = self._loop.time() + timeout_s
        self._wake_at(deadline)
        try:
            sending = self.send_message(call, message)
            if sending is not None:
                await self._unless_late(sending, answer)
            return await answer
        except asyncio.CancelledError:
            self.send(FrameKind.CANCEL, call)
            raise
        finally:
            self._calls.pop(call, None)
            self._deadlines.pop(call, None)
            self._messages.drop(call)

    async def ping(self, timeout_s: float) -> str:
        """Return the instance id of the server. Raise UnavailableError."""
        if not self.is_open:
            raise self._connection_lost_error()
        pong: asyncio.Future[None] = self._loop.create_future()
        self._pongs.add(pong)
        self.send(FrameKind.PING)
        try:
            async with asyncio.timeout(timeout_s):
                await pong
        except TimeoutError as error:
            raise UnavailableError(f"server did not answer in time target={self.peer}") from error
        finally:
            self._pongs.discard(pong)
        assert self.peer_hello is not None
        return self.peer_hello.instance

    async def _unless_late(self, sending: Awaitable[None], answer: asyncio.Future[bytes]) -> None:
        """Send a large request; stop if the call ends meanwhile."""
        task: asyncio.Future[Any] = asyncio.ensure_future(sending)
        either: list[asyncio.Future[Any]] = [task, answer]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
        if task.done() and not task.cancelled():
            task.result()

    def greeted(self, hello: Hello) -> None:
        if self.ready.done():
            return
        if hello.refusal or hello.version < OLDEST_VERSION:
            text = hello.refusal or f"version {hello.version} is too old"
            self.ready.set_exception(UnavailableError(f"server refuses target={self.peer} reason={text}"))
            self.abort("refused")
        else:
            self.ready.set_result(None)

    def received(self, call: int, message: bytes) -> None:
        answer = self._calls.get(call)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def awaits(self, call: int) -> bool:
        return call in self._calls

    def refused(self, call: int, reason: str) -> None:
        self._fail(call, f"server refuses target={self.peer} reason={reason}")

    def ponged(self) -> None:
        for pong in self._pongs:
            if not pong.done():
                pong.set_result(None)
        self._pongs.clear()

    def lost(self, reason: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(self._connection_lost_error())
        if not self.ready.cancelled():  # the caller may have given up
            self.ready.exception()  # marks it as retrieved, though nobody may wait for it
        if self._alarm is not None:
            self._alarm.cancel()
        for call in list(self._calls):
            self._fail(call, str(self._connection_lost_error()))
        for pong in self._pongs:
            if not pong.done():
                pong.set_exception(self._connection_lost_error())

    def _wake_at(self, deadline: float) -> None:
        """Set the one timer to the earliest deadline. Almost no call is ever late, and the loop would keep a timer of
        each until its deadline."""
        if self._alarm is not None:
            if self._alarm.when() <= deadline:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(deadline, self._expire_late)

    def _expire_late(self) -> None:
        self._alarm = None
        now = self._loop.time()
        for call in [call for call, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[call]
            self._expire(call)
        if self._deadlines:
            self._wake_at(min(self._deadlines.values()))

    def _expire(self, call: int) -> None:
        self._fail(call, f"server did not answer in time target={self.peer}")
        self.send(FrameKind.CANCEL, call)

    def _fail(self, call: int, text: str) -> None:
        answer = self._calls.get(call)
        if answer is not None and not answer.done():
            answer.set_exception(UnavailableError(text))

    def _connection_lost_error(self) -> UnavailableError:
        return UnavailableError(f"connection is lost target={self.peer} reason={self._reason}")


def _retrieve_error(task: asyncio.Task[_ClientConnection]) -> None:
    """Mark the error as retrieved: all callers that waited for it may be gone."""
    if not task.cancelled():
        task.exception()


class LocalChannel:
    """A channel to a server in this process: requests and answers are passed on without encoding."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._is_closed = False

    async def execute(self, request: ServerRequest, timeout_s: float) -> ServerResponse:
        if self._is_closed:
            raise UnavailableError("channel is closed target=local")
        try:
            async with compile_time.timeout(timeout_s):
                return await self._handler(request)
        except TimeoutError as error:
            raise UnavailableError(f"server did not answer in time target=local timeout_s={timeout_s:.3f}") from error

    async def close(self) -> None:
        self._is_closed = True
