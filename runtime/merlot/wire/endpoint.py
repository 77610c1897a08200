"""A server's end: takes connections, hands requests to the handler, sends its answers back."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from merlot.codes import QueryErrorCode
from merlot.errors import CorruptionError, MerlotError, UnavailableError
from merlot.wire.client import Handler
from merlot.wire.codec import decode_request, encode_response
from merlot.wire.connection import TICK_S, Connection
from merlot.wire.frames import MAX_MESSAGE_BYTES, OLDEST_VERSION, Held, Hello, Kind, MessageReader
from merlot.wire.messages import ServerRequest, ServerResponse

_LOG = logging.getLogger(__name__)

BACKLOG: Final = 256

MAX_CONNECTIONS: Final = 256
MAX_RUNNING: Final = 4_096
"""Calls of one connection; a broker's own queries are far fewer."""
MAX_REQUEST_BYTES: Final = 64 << 20
"""Of one connection's unfinished requests: 100,000 segments' names and a filter of 100,000 values take 12 MB."""
MAX_UNFINISHED_BYTES: Final = 256 << 20
"""Of all connections."""
MAX_RUNNING_BYTES: Final = 512 << 20
"""Of all requests under way."""

AnswerNow = Callable[[ServerRequest], ServerResponse | None]
"""The answer to a request that can be had in well under a millisecond; None: the handler must be asked."""


class TcpEndpoint:
    """Serves one handler on one event loop."""

    def __init__(
        self,
        handler: Handler,
        instance: Callable[[], str],
        *,
        answer_now: AnswerNow | None = None,
        tick_s: float = TICK_S,
    ) -> None:
        self.handler = handler
        self.instance = instance
        self.answer_now = answer_now
        self.is_stopping = False
        self.connections: set[_ServerConnection] = set()
        self.unfinished = Held(limit=MAX_UNFINISHED_BYTES)
        self.running_bytes = 0
        self._tick_s = tick_s
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    def bind(self, host: str, port: int) -> int:
        """Take the port, which 0 leaves to the system, and return it. UnavailableError if it is taken.

        Until `start` connections are refused."""
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            raise UnavailableError(f"cannot listen address={host}:{port} reason={error.strerror}") from error
        self._socket = listener
        bound: int = listener.getsockname()[1]
        return bound

    async def start(self) -> None:
        """Take calls from now on. UnavailableError if somebody took the port since `bind`."""
        loop = asyncio.get_running_loop()
        assert self._socket is not None, "bind comes first"
        try:
            self._server = await loop.create_server(
                lambda: _ServerConnection(self, tick_s=self._tick_s), sock=self._socket, backlog=BACKLOG
            )
        except OSError as error:
            raise UnavailableError(f"cannot listen address={self._socket.getsockname()}") from error

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; end those still running when the grace is over."""
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        running = [task for connection in self.connections for task in connection.tasks]
        if running and grace_s > 0:
            await asyncio.wait(running, timeout=grace_s)
        for connection in list(self.connections):
            connection.end("server stopped")
        rest = [task for task in running if not task.done()]
        if rest:
            await asyncio.wait(rest)


class _ServerConnection(Connection):
    """One broker's requests."""

    def __init__(self, endpoint: TcpEndpoint, *, tick_s: float) -> None:
        super().__init__(MessageReader(endpoint.unfinished, max_bytes=MAX_REQUEST_BYTES), tick_s=tick_s)
        self._endpoint = endpoint
        self._running: dict[int, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Of the requests under way."""
        return list(self._running.values())

    def end(self, reason: str) -> None:
        """Cancel what runs and close."""
        for task in self.tasks:
            task.cancel()
        self.close(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._endpoint.connections) >= MAX_CONNECTIONS:
            self._refuse(f"too many connections limit={MAX_CONNECTIONS}")
            return
        self._endpoint.connections.add(self)

    def greeted(self, hello: Hello) -> None:
        if hello.version < OLDEST_VERSION:
            self._refuse(f"version {hello.version} is too old")
            return
        self.send(Kind.HELLO, 0, Hello(instance=self._endpoint.instance()).to_bytes())

    def spoiled(self, reason: str) -> None:
        for call in self._running:
            self.send(Kind.REFUSAL, call, reason.encode())

    def received(self, call: int, message: bytes) -> None:
        if call in self._running:
            raise CorruptionError(f"call is under way call={call}")
        refusal = self._refusal(len(message))
        if refusal:
            self.send(Kind.REFUSAL, call, refusal.encode())
            return
        try:
            request = decode_request(message)
        except CorruptionError as error:
            _LOG.warning("request refused peer=%s cause=%s", self.peer, error)
            self.send(Kind.REFUSAL, call, str(error).encode())
            return
        answer = self._answer_now(request)
        sending = None if answer is None else self.send_message(call, _encode(answer))
        if answer is not None and sending is None:
            return
        task = self._loop.create_task(self._answer(call, request) if sending is None else _finish(sending))
        self._running[call] = task
        self._endpoint.running_bytes += len(message)
        task.add_done_callback(lambda _: self._done(call, len(message)))

    def _refuse(self, reason: str) -> None:
        """Talk no more with a peer."""
        self.send(Kind.HELLO, 0, Hello(instance=self._endpoint.instance(), refusal=reason).to_bytes())
        self.close(reason)

    def _refusal(self, num_bytes: int) -> str:
        """Why a request of so many bytes is not taken now; empty if it is."""
        if self._endpoint.is_stopping:
            return "server is stopping"
        if len(self._running) >= MAX_RUNNING:
            return f"too many calls under way limit={MAX_RUNNING}"
        if self._endpoint.running_bytes + num_bytes > MAX_RUNNING_BYTES:
            return f"requests under way are too long limit={MAX_RUNNING_BYTES}"
        return ""

    def _done(self, call: int, num_bytes: int) -> None:
        self._running.pop(call, None)
        self._endpoint.running_bytes -= num_bytes

    def cancelled(self, call: int) -> None:
        task = self._running.get(call)
        if task is not None:
            task.cancel()

    def lost(self, reason: str) -> None:
        self._endpoint.connections.discard(self)
        for task in self.tasks:
            task.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        # A broker that does not take its answers gets no more of them made.
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _answer_now(self, request: ServerRequest) -> ServerResponse | None:
        answer_now = self._endpoint.answer_now
        if answer_now is None:
            return None
        try:
            return answer_now(request)
        except Exception:  # noqa: BLE001 - the outermost frame of a call
            return _bug(request)

    async def _answer(self, call: int, request: ServerRequest) -> None:
        try:
            answer = await self._endpoint.handler(request)
        except Exception:  # noqa: BLE001 - the outermost frame of a call: no traceback reaches a user
            answer = _bug(request)
        sending = self.send_message(call, _encode(answer))
        if sending is not None:
            await _finish(sending)


async def _finish(sending: Awaitable[None]) -> None:
    """Send the rest of an answer; a peer that is gone needs none."""
    try:
        await sending
    except MerlotError as error:
        _LOG.debug("answer not sent cause=%s", error)


def _bug(request: ServerRequest) -> ServerResponse:
    _LOG.exception("query failed by a bug request=%s", request.request_id)
    text = f"internal error, see the server's log request={request.request_id}"
    return ServerResponse(error=(QueryErrorCode.INTERNAL, text))


def _encode(response: ServerResponse) -> bytes:
    data = encode_response(response)
    if len(data) > MAX_MESSAGE_BYTES:
        text = f"partial result is too large bytes={len(data)} limit={MAX_MESSAGE_BYTES}"
        return encode_response(ServerResponse(error=(QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED, text)))
    return data
