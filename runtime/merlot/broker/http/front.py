"""Read each connection first: answer plain queries here, and leave every other request to the HTTP server.

A general HTTP server takes 250 us for a request, more than the rest of a broker takes for a query. A connection stays
here as long as each request is a plain `POST /query/sql`: HTTP/1.1, a head in one piece, a Content-Length, no header
that asks for more. The first other request, right or wrong, goes to the HTTP server, with the connection and all that
follows. A body that comes in pieces is not looked at before it is complete. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import functools
import http
import logging
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import blake2b
from typing import Final

import orjson
from aiohttp import web

from merlot.broker.http.queries import (
    CORRELATION_HEADER,
    ERROR_CODE_HEADER,
    MAX_BODY_BYTES,
    STATUS_HEADER,
    Asker,
    HttpAnswer,
    answer_body,
)
from merlot.broker.queries import Answers
from merlot.clock import Clock
from merlot.errors import AccessDeniedError, MerlotError, NotAuthenticatedError, UnavailableError
from merlot.http.browsers import HOSTS, Hosts
from merlot.http.connection_limits import BUSY, ConnectionLimiter, client_of
from merlot.http.door import CHALLENGE, DOOR, ON_BEHALF_HEADER
from merlot.security import credentials
from merlot.security.access import ANONYMOUS, Identity, Right
from merlot.security.audit import entry
from merlot.security.door import Door, ProvenIdentity, refusal
from merlot.wire.flow_control import FlowControlledProtocol

_LOG = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 8_192
MAX_AHEAD_BYTES: Final = 65_536
"""Most bytes of later requests that a client may send before the current request is answered; then reading pauses."""
MAX_KNOWN_HEADS: Final = 1_024
"""Parsed heads that are cached, since clients send the same ones again and again. Keys are digests, for heads hold
passwords."""

_END: Final = b"\r\n\r\n"
_REQUEST_LINES: Final = frozenset({b"POST /query/sql HTTP/1.1", b"POST /query HTTP/1.1"})
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\x20-\x7e\t]*?)[ \t]*")
_ASKS_FOR_MORE: Final = frozenset(
    (
        *(b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"te", b"trailer", b"http2-settings"),
        *(b"origin", b"sec-fetch-site", ON_BEHALF_HEADER.lower().encode()),
    )
)
"""Headers that leave a request to the HTTP server, which supports more of HTTP, and knows what browsers may ask and
whose certificate proves nothing."""


@dataclass(frozen=True, slots=True)
class _Head:
    """Facts of a request's head."""

    body_bytes: int
    closes: bool
    client_request_id: str | None
    wants_status: bool
    authorization: str | None = field(repr=False)
    caller: list[ProvenIdentity] = field(default_factory=list)
    """Who sends this head, once it was proved: one, or none. Without credentials in it the connection knows."""


def _read_head(data: bytes, hosts: Hosts) -> _Head | None:
    """Parse a head; None if the request is not a plain query. `data` ends with the empty line."""
    first, *lines = data[: -len(_END)].split(b"\r\n")
    if first not in _REQUEST_LINES:
        return None
    fields: dict[bytes, bytes] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None or (name := match[1].lower()) in fields or name in _ASKS_FOR_MORE:
            return None
        fields[name] = match[2]
    length, connection = fields.get(b"content-length", b""), fields.get(b"connection", b"keep-alive").lower()
    if b"host" not in fields or not hosts.admits(fields[b"host"].decode()):
        return None
    if (
        fields.get(b"user-agent", b"").startswith(b"Mozilla/")
        or not length.isdigit()
        or connection not in (b"keep-alive", b"close")
    ):
        return None
    if len(length) > len(str(MAX_BODY_BYTES)) or int(length) > MAX_BODY_BYTES:
        return None
    correlation = fields.get(CORRELATION_HEADER.lower().encode())
    return _Head(
        body_bytes=int(length),
        closes=connection == b"close",
        client_request_id=None if correlation is None else correlation.decode(),
        wants_status=fields.get(STATUS_HEADER.lower().encode(), b"").lower() == b"true",
        authorization=None if b"authorization" not in fields else fields[b"authorization"].decode(),
    )


class _Heads:
    """Parses heads, and caches them: a cached head takes a microsecond."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._known: dict[bytes, _Head] = {}
        self._key = os.urandom(16)

    def read(self, data: bytes | bytearray) -> _Head | None:
        digest = blake2b(data, digest_size=16, key=self._key).digest()
        head = self._known.get(digest)
        if head is None:
            head = _read_head(bytes(data), self._hosts)
            if head is not None:
                if len(self._known) >= MAX_KNOWN_HEADS:
                    self._known.clear()
                self._known[digest] = head
        return head


class Front:
    """Creates the protocol of each new connection. `make_server_protocol` creates the HTTP server's."""

    def __init__(
        self,
        broker: Answers,
        make_server_protocol: Callable[[], asyncio.Protocol],
        clock: Clock,
        limiter: ConnectionLimiter,
        app: web.Application,
    ) -> None:
        self.broker = broker
        self.door = app.get(DOOR) or Door()
        self.make_server_protocol = make_server_protocol
        self.limiter = limiter
        self.heads = _Heads(app.get(HOSTS, Hosts()))
        self.connections: set[_Connection] = set()
        self._clock = clock
        self._date = (0, b"")

    def __call__(self) -> asyncio.Protocol:
        return _Connection(self)

    def finish(self) -> None:
        """End idle connections at once, the others once they have their answer."""
        self.limiter.close()
        for connection in list(self.connections):
            connection.finish()

    async def close(self, timeout_s: float) -> None:
        """End idle connections at once, the others once they have their answer or `timeout_s` is over."""
        self.finish()
        running = [connection.task for connection in self.connections if connection.task is not None]
        if running:
            await asyncio.wait(running, timeout=timeout_s)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    def date(self) -> bytes:
        """Return the value of the header Date."""
        second = self._clock.now_ms() // 1000
        if self._date[0] != second:
            self._date = second, formatdate(second, usegmt=True).encode()
        return self._date[1]


class _Connection(FlowControlledProtocol):
    """Connection of one client: one request at a time, in order."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front
        self._transport: asyncio.Transport | None = None
        self._ahead = bytearray()
        """Bytes of requests that wait: the start of a request, or whole requests behind the request being answered."""
        self._head: _Head | None = None
        """Head of the request at the start of `_ahead`, once it was parsed."""
        self._start = 0
        """Offset of the body's first byte in `_ahead`; `_stop` is that of its end."""
        self._stop = 0
        self._unread_bytes = 0
        self._is_finishing = False
        self.waiting_since: float | None = self._loop.time()
        self.idle_since: float | None = self.waiting_since
        self.stalled = (0, 0)
        self.held_bytes = 0
        self.client = ""
        self._peer: list[ProvenIdentity] = []
        """Who the peer is by its certificate, once it was asked: one, or none."""
        self.task: asyncio.Task[None] | None = None

    def finish(self) -> None:
        """Close, after the answer that is being made."""
        self._is_finishing = True
        if self.task is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def end(self, last_words: bytes = b"") -> None:
        if self._transport is not None and self.task is None:
            self._transport.write(last_words)
            self._transport.close()

    @property
    def is_arriving(self) -> bool:
        return self.task is None and bool(self._ahead)

    def unwritten_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.client = client_of(transport)
        if not self._front.limiter.admit(self):
            transport.write(BUSY)
            transport.close()
            return
        self._front.connections.add(self)
        # The system notices a client that vanished.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._leave()
        self.resume_writing()
        if self.task is not None:
            self.task.cancel()  # a client that hangs up cancels its query

    def data_received(self, data: bytes) -> None:
        if self.task is None and not self._ahead:
            self._take(data)
            return
        self._ahead += data
        if self.task is None and len(self._ahead) >= self._stop:
            self._take(self._ahead)
            return
        if self.task is not None and len(self._ahead) > MAX_AHEAD_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._hold()

    def _take(self, data: bytes | bytearray) -> None:
        """Start the first request in `data`, which is the oldest that is not answered. Wait if its body is incomplete;
        hand the connection over if it is no plain query."""
        head, start, stop = self._head, self._start, self._stop
        if head is None:
            start = data.find(_END, 0, MAX_HEAD_BYTES) + len(_END)
            head = self._front.heads.read(data[:start]) if start >= len(_END) else None
            if head is None:
                self._hand_over(bytes(data))
                return
            stop = start + head.body_bytes
        if len(data) < stop:
            self._head, self._start, self._stop = head, start, stop
            if data is not self._ahead:
                self._ahead += data
            self.waiting_since = self._loop.time()
            self._hold()
            return
        self.waiting_since = self.idle_since = None
        body = bytes(memoryview(data)[start:stop])
        if data is self._ahead:
            del self._ahead[:stop]
        else:
            self._ahead += data[stop:]
        self._head, self._stop = None, 0
        if self.held_bytes:
            self._hold()
        self.task = self._loop.create_task(self._answer(head, body))

    def _hold(self) -> None:
        """Report the bytes that are held: requests that are not answered, and the answer that the client has not
        taken."""
        self._front.limiter.hold(self, len(self._ahead) + self._unread_bytes)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_bytes = self.unwritten_bytes()
        self._hold()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_bytes:
            self._unread_bytes = 0
            self._hold()

    def _leave(self) -> None:
        self._front.connections.discard(self)
        self._front.limiter.leave(self)

    def _hand_over(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._leave()
        self._transport, self._ahead = None, bytearray()
        protocol = self._front.make_server_protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    async def _answer(self, head: _Head, body: bytes) -> None:
        try:
            answer = await self._admitted_answer(head, body)
        except Exception:  # noqa: BLE001 - the outermost frame of a request: no traceback reaches a user
            _LOG.exception("request failed by a bug")
            self.abort()
            return
        self._write(answer)
        del answer  # the transport holds what the client has not taken: the body need not be in memory twice
        await self.wait_until_writable()
        self.task = None
        self.idle_since = self._loop.time()
        if self._transport is None:
            return
        if head.closes or self._is_finishing:
            self._transport.close()
            return
        self._transport.resume_reading()
        if self._ahead:
            self._take(self._ahead)

    async def _admitted_answer(self, head: _Head, body: bytes) -> HttpAnswer:
        """Answer a query, or refuse it."""
        door = self._front.door
        identity = ANONYMOUS
        try:
            if not door.is_open:
                identity = await self._identity(head)
            if not door.access.allows_any(identity, Right.QUERY):
                raise refusal(identity, Right.QUERY, None)
        except (AccessDeniedError, UnavailableError) as error:
            self._audit(identity, error)
            return _refused(error)
        asker = Asker(identity, head.client_request_id, head.wants_status, self.client)
        return await answer_body(self._front.broker, body, asker)

    def _audit(self, identity: Identity, error: MerlotError) -> None:
        audit = self._front.door.audit
        if audit is not None:
            audit.record(entry("request", identity, self.client, path="/query/sql", decision="refused", why=str(error)))

    async def _identity(self, head: _Head) -> Identity:
        """Return who sends a head. A head that was proved lately costs nothing."""
        door = self._front.door
        proven = head.caller if head.authorization is not None else self._peer
        if not proven or not door.is_fresh(proven[0]):
            if head.authorization is not None:
                credential: credentials.Credential | None = credentials.of_header(head.authorization)
            else:
                peer = None if self._transport is None else self._transport.get_extra_info("peercert")
                credential = credentials.of_certificate(peer)
            proven[:] = [await door.identify(credential, self.client)]
        return proven[0].identity

    def _write(self, answer: HttpAnswer) -> None:
        if self._transport is None:
            return
        head = _head_of(answer.status, answer.error_code) % (self._front.date(), len(answer.body))
        if len(answer.body) <= MAX_AHEAD_BYTES:
            self._transport.write(head + answer.body)
        else:
            self._transport.write(head)
            self._transport.write(answer.body)


def _refused(error: MerlotError) -> HttpAnswer:
    """Return the answer to a query whose caller may not ask, or cannot be identified now."""
    is_unknown = isinstance(error, NotAuthenticatedError)
    status = 401 if is_unknown else 403 if isinstance(error, AccessDeniedError) else 503
    return HttpAnswer(status, error.code, orjson.dumps({"code": status, "error": str(error)}))


@functools.lru_cache(maxsize=256)
def _head_of(status: int, error_code: int) -> bytes:
    """Return a response's head, with placeholders for the date and the length of the body."""
    lines = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase if status != 499 else 'Client Closed Request'}",
        "Content-Type: application/json",
        f"{ERROR_CODE_HEADER}: {error_code}",
        *([f"WWW-Authenticate: {CHALLENGE}"] if status == 401 else []),
        "Server: Merlot",
        "Date: %s",
        "Content-Length: %d",
        "",
        "",
    )
    return "\r\n".join(lines).encode()
