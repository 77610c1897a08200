"""A server's end: accept connections, pass requests to the handler, send its answers back."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from merlot.clock import Clock, SystemClock
from merlot.codes import QueryErrorCode
from merlot.errors import CorruptionError, MerlotError, UnavailableError
from merlot.vectors.account import out_of_memory
from merlot.wire.client import Handler
from merlot.wire.codec import decode_request, encode_response
from merlot.wire.connection import MAX_BUFFER_BYTES, TICK_S, Connection
from merlot.wire.frames import MAX_MESSAGE_BYTES, OLDEST_VERSION, FrameKind, Hello, MessageReader, UnfinishedBytes
from merlot.wire.handshakes import Handshakes, PeerHandshake, PeerTls
from merlot.wire.messages import ServerRequest, ServerResponse
from merlot.wire.pace import REFUSED_BYTES, Lane, Pace

_LOG = logging.getLogger(__name__)

BACKLOG: Final = 256
ACCEPT_S: Final = 0.005
"""Wait between two accepted connections."""
ACCEPT_AGAIN_S: Final = 1.0
"""Wait after an error of accept, e.g. when no file descriptors are left."""

MAX_REQUEST_BYTES: Final = 64 << 20
"""Bytes of one connection's unfinished requests: 100,000 segments' names and a filter of 100,000 values take 12 MB."""
MAX_UNFINISHED_BYTES: Final = 256 << 20
"""Bytes of all connections' unfinished requests."""

AnswerNow = Callable[[ServerRequest], ServerResponse | None]
"""Function that answers a request if that takes well under a millisecond, and returns None if the handler must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointLimits:
    """Bounds of what an endpoint takes from its peers."""

    connections: int = 256
    connections_of_host: int = 64
    """A broker has one connection; a host that holds more than it needs leaves places to others."""
    calls: int = 4_096
    """Calls under way on one connection; a broker's own queries are far fewer."""
    call_bytes: int = 512 << 20
    """Bytes of all requests under way."""
    handshakes: int = 64
    """TLS handshakes under way; a quarter of them may be those of one host."""
    answer_bytes: int = MAX_MESSAGE_BYTES
    """Bytes of one answer."""
    buffer_bytes: int = MAX_BUFFER_BYTES
    """Bytes written to one connection that its peer has not read."""


class TcpEndpoint:
    """Serves one handler on one event loop."""

    def __init__(
        self,
        handler: Handler,
        instance: Callable[[], str],
        *,
        answer_now: AnswerNow | None = None,
        clock: Clock | None = None,
        tick_s: float = TICK_S,
        limits: EndpointLimits | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits or EndpointLimits()
        self.instance = instance
        self.answer_now = answer_now
        self.is_stopping = False
        self.connections: set[_ServerConnection] = set()
        self.unfinished = UnfinishedBytes(limit=MAX_UNFINISHED_BYTES, make_room=self._end_heaviest)
        self.running_bytes = 0
        self.pace = Pace(clock or SystemClock())
        self.tls: PeerTls | None = None
        self.handshakes = Handshakes(self.limits.handshakes)
        self._tick_s = tick_s
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    def bind(self, host: str, port: int) -> int:
        """Bind the port and return it; the system chooses if `port` is 0. Raise UnavailableError if it is in use.

        Connections are refused until `start`."""
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

    async def start(self, tls: PeerTls | None = None) -> None:
        """Accept calls from now on, over TLS alone if `tls` is given. Raise UnavailableError if another process listens
        on the port since `bind`."""
        assert self._socket is not None, "bind comes first"
        self.tls = tls
        try:
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise UnavailableError(f"cannot listen address={self._socket.getsockname()}") from error
        self._socket.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(self._socket))

    async def stop(self, grace_s: float) -> None:
        """Accept no new calls; end those still running after `grace_s` seconds."""
        self.is_stopping = True
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        if self._socket is not None:
            self._socket.close()
        running = [task for connection in self.connections for task in connection.tasks]
        if running and grace_s > 0:
            await asyncio.wait(running, timeout=grace_s)
        for connection in list(self.connections):
            connection.end("server stopped")
        rest = [task for task in running if not task.done()]
        if rest:
            await asyncio.wait(rest)

    def _end_heaviest(self, reader: MessageReader) -> bool:
        """Break off the connection with most bytes of unfinished requests; return False if it is the reader's own."""
        heaviest = max(self.connections, key=lambda connection: connection.messages.num_bytes)
        if heaviest.messages is reader:
            return False
        _LOG.warning("connection broken off peer=%s cause=unfinished requests of all peers are too long", heaviest.peer)
        heaviest.messages.clear()
        heaviest.abort("unfinished requests are too long")
        return True

    async def _accept(self, listener: socket.socket) -> None:
        """Accept connections one by one: a peer that makes thousands a second delays nobody's calls."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listener)
            except OSError as error:
                _LOG.warning("connection not taken cause=%s", error.strerror)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            await loop.connect_accepted_socket(self._protocol, peer)
            await asyncio.sleep(ACCEPT_S)

    def _protocol(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        if self.tls is None:
            return self._connection()
        return PeerHandshake(self.tls.certificates.mutual_context(), self._connection, self.handshakes)

    def _connection(self) -> _ServerConnection:
        return _ServerConnection(self, tick_s=self._tick_s)


class _ServerConnection(Connection):
    """A server's end of a connection: one broker's requests."""

    def __init__(self, endpoint: TcpEndpoint, *, tick_s: float) -> None:
        self.messages = MessageReader(endpoint.unfinished, max_bytes=MAX_REQUEST_BYTES)
        super().__init__(self.messages, tick_s=tick_s, buffer_bytes=endpoint.limits.buffer_bytes)
        self._endpoint = endpoint
        self._host = ""
        self._lane: Lane | None = None
        self._running: dict[int, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Tasks of the requests under way."""
        return list(self._running.values())

    def end(self, reason: str) -> None:
        """Cancel the running requests and close."""
        for task in self.tasks:
            task.cancel()
        self.close(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._host = self.peer.rpartition(":")[0]
        refusal = None if self._endpoint.tls is None else self._endpoint.tls.refusal(transport)
        if refusal is not None:
            _LOG.warning("connection refused peer=%s cause=%s", self.peer, refusal)
            self._refuse(refusal)
            return
        limits = self._endpoint.limits
        if len(self._endpoint.connections) >= limits.connections:
            self._refuse(f"too many connections limit={limits.connections}")
            return
        if self._endpoint.pace.lanes[self._host] >= limits.connections_of_host:
            self._refuse(f"too many connections of one host limit={limits.connections_of_host}")
            return
        self._endpoint.connections.add(self)
        self._lane = self._endpoint.pace.lane(self._host)

    def spend(self, weight: int) -> None:
        if self._lane is not None:
            self._lane.spend(weight)

    def wait_s(self) -> float:
        return 0.0 if self._lane is None else self._lane.wait_s()

    def may_read(self) -> bool:
        return self.can_write

    def greeted(self, hello: Hello) -> None:
        if hello.version < OLDEST_VERSION:
            self._refuse(f"version {hello.version} is too old")
            return
        self.send(FrameKind.HELLO, 0, Hello(instance=self._endpoint.instance()).to_bytes())

    def spoiled(self, reason: str) -> None:
        for call in self._running:
            self.send(FrameKind.REFUSAL, call, reason.encode())

    def received(self, call: int, message: bytes) -> None:
        if call in self._running:
            raise CorruptionError(f"call is under way call={call}")
        refusal = self._refusal(len(message))
        if refusal:
            self.send(FrameKind.REFUSAL, call, refusal.encode())
            return
        try:
            request = decode_request(message)
        except CorruptionError as error:
            self.spend(REFUSED_BYTES)
            _LOG.warning("request refused peer=%s cause=%s", self.peer, error)
            self.send(FrameKind.REFUSAL, call, str(error).encode())
            return
        answer = self._answer_now(request)
        sending = None if answer is None else self.send_message(call, answer)
        if answer is not None and sending is None:
            return
        task = self._loop.create_task(self._answer(call, request) if sending is None else _finish(sending))
        self._running[call] = task
        self._endpoint.running_bytes += len(message)
        task.add_done_callback(lambda _: self._done(call, len(message)))

    def _refuse(self, reason: str) -> None:
        """Refuse a peer in the HELLO, and close."""
        self.send(FrameKind.HELLO, 0, Hello(instance=self._endpoint.instance(), refusal=reason).to_bytes())
        self.close(reason)

    def _refusal(self, num_bytes: int) -> str:
        """Return why a request of `num_bytes` is not accepted now; an empty text if it is."""
        if self._endpoint.is_stopping:
            return "server is stopping"
        limits = self._endpoint.limits
        if len(self._running) >= limits.calls:
            return f"too many calls under way limit={limits.calls}"
        if self._endpoint.running_bytes + num_bytes > limits.call_bytes:
            return f"requests under way are too long limit={limits.call_bytes}"
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
        if self._lane is not None:
            self._lane.close()
        for task in self.tasks:
            task.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        # No more answers are made for a broker that does not read them.
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._resting is None:
            self._go_on()

    def _encoded(self, response: ServerResponse) -> bytes:
        """Encode the response; if its bytes exceed the limit, encode an error instead. Rows that exceed it by
        themselves are not encoded, which would take their memory several times."""
        limit = self._endpoint.limits.answer_bytes
        num_bytes = _bytes_of_rows(response)
        if num_bytes <= limit:
            data = encode_response(response)
            num_bytes = len(data)
            if num_bytes <= limit:
                return data
        text = f"partial result is too large bytes={num_bytes} limit={limit}"
        return encode_response(ServerResponse(error=(QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED, text)))

    def _answer_now(self, request: ServerRequest) -> bytes | None:
        answer_now = self._endpoint.answer_now
        if answer_now is None:
            return None
        try:
            answer = answer_now(request)
            return None if answer is None else self._encoded(answer)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a call
            return encode_response(_bug(request, error))

    async def _answer(self, call: int, request: ServerRequest) -> None:
        try:
            data = self._encoded(await self._endpoint.handler(request))
        except Exception as error:  # noqa: BLE001 - the outermost frame of a call: no traceback reaches a user
            data = encode_response(_bug(request, error))
        sending = self.send_message(call, data)
        if sending is not None:
            await _finish(sending)


async def _finish(sending: Awaitable[None]) -> None:
    """Send the rest of an answer; ignore the loss of the peer."""
    try:
        await sending
    except MerlotError as error:
        _LOG.debug("answer not sent cause=%s", error)


def _bytes_of_rows(response: ServerResponse) -> int:
    """Return the bytes of the rows in columns; 0 if there are none: other rows are few."""
    content = None if response.partial is None else response.partial.content
    return int(content.nbytes) if isinstance(content, pa.Table) else 0


def _bug(request: ServerRequest, error: Exception) -> ServerResponse:
    if (shortage := out_of_memory(error)) is not None:
        return ServerResponse(error=(shortage.code, str(shortage)))
    _LOG.exception("query failed by a bug request=%s", request.request_id)
    text = f"internal error, see the server's log request={request.request_id}"
    return ServerResponse(error=(QueryErrorCode.INTERNAL, text))
