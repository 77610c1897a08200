"""The first to hear a connection: answers plain queries itself, and leaves every other request to the HTTP server.

A general HTTP server takes 250 us for a request, more than all the rest of a broker takes for a query. A connection
stays here as long as each request is a plain `POST /query/sql`: HTTP/1.1, a head in one piece, a Content-Length, no
header that asks for more. The first that is anything else, however right or wrong, goes to the HTTP server, with the
connection and all that follows. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import functools
import http
import logging
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final

from merlot.broker.http_queries import (
    CORRELATION_HEADER,
    ERROR_CODE_HEADER,
    MAX_BODY_BYTES,
    STATUS_HEADER,
    Answers,
    HttpAnswer,
    answer_body,
)
from merlot.clock import Clock
from merlot.wire.room import RoomyProtocol

_LOG = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 8_192
MAX_AHEAD_BYTES: Final = 65_536
"""Of requests that a client sends before the one before is answered; with more it has to wait."""
KEPT_HEAD_BYTES: Final = 1_024
"""Clients send the same heads again and again: those up to this long are remembered."""
IDLE_S: Final = 3_600.0

_END: Final = b"\r\n\r\n"
_REQUEST_LINES: Final = frozenset({b"POST /query/sql HTTP/1.1", b"POST /query HTTP/1.1"})
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\x20-\x7e\t]*?)[ \t]*")
_ASKS_FOR_MORE: Final = frozenset(
    {b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"te", b"trailer", b"http2-settings"}
)


@dataclass(frozen=True, slots=True)
class _Head:
    """What matters of a request's head."""

    body_bytes: int
    closes: bool
    client_request_id: str | None
    wants_status: bool


def _read_head(data: bytes) -> _Head | None:
    """None if the request is not a plain query. data: up to and with the empty line."""
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
    if b"host" not in fields or not length.isdigit() or connection not in (b"keep-alive", b"close"):
        return None
    if len(length) > len(str(MAX_BODY_BYTES)) or int(length) > MAX_BODY_BYTES:
        return None
    correlation = fields.get(CORRELATION_HEADER.lower().encode())
    return _Head(
        body_bytes=int(length),
        closes=connection == b"close",
        client_request_id=None if correlation is None else correlation.decode(),
        wants_status=fields.get(STATUS_HEADER.lower().encode(), b"").lower() == b"true",
    )


_read_short_head = functools.lru_cache(maxsize=1_024)(_read_head)


class Front:
    """Makes the protocol of each new connection. `make_server_protocol` is the HTTP server's."""

    def __init__(self, broker: Answers, make_server_protocol: Callable[[], asyncio.Protocol], clock: Clock) -> None:
        self.broker = broker
        self.make_server_protocol = make_server_protocol
        self.connections: set[_Connection] = set()
        self._clock = clock
        self._date = (0, b"")
        self._sweeper: asyncio.TimerHandle | None = None

    def __call__(self) -> asyncio.Protocol:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)
        return _Connection(self)

    async def close(self, timeout_s: float) -> None:
        """End idle connections at once, the others once they have their answer or the time is over."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.finish()
        running = [connection.task for connection in self.connections if connection.task is not None]
        if running:
            await asyncio.wait(running, timeout=timeout_s)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    def date(self) -> bytes:
        """Value of the header Date."""
        second = self._clock.now_ms() // 1000
        if self._date[0] != second:
            self._date = second, formatdate(second, usegmt=True).encode()
        return self._date[1]

    def _sweep(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)
        for connection in list(self.connections):
            connection.close_if_unused()


class _Connection(RoomyProtocol):
    """One client: one request at a time, in order."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front
        self._transport: asyncio.Transport | None = None
        self._ahead = b""
        """What came and was not looked at: the start of a body, or later requests."""
        self._is_finishing = False
        self._was_used = True
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

    def close_if_unused(self) -> None:
        """Close if nothing came or went since the last such call."""
        if self.task is None and not self._was_used and self._transport is not None:
            self._transport.close()
        self._was_used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._front.connections.add(self)
        # A client that vanished is found out by the system.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._front.connections.discard(self)
        self.resume_writing()
        if self.task is not None:
            self.task.cancel()  # a client that hangs up cancels its query

    def data_received(self, data: bytes) -> None:
        self._was_used = True
        if self._ahead:
            data = self._ahead + data
        if self.task is None:
            self._take(data)
            return
        self._ahead = data
        if len(data) > MAX_AHEAD_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def _take(self, data: bytes) -> None:
        """Start the next request of the data, which is the first that is not answered."""
        end = data.find(_END, 0, MAX_HEAD_BYTES) + len(_END)
        head = None
        if end >= len(_END):
            head = (_read_short_head if end <= KEPT_HEAD_BYTES else _read_head)(data[:end])
        if head is None:
            self._hand_over(data)
            return
        stop = end + head.body_bytes
        if len(data) < stop:
            self._ahead = data
            return
        self._ahead = data[stop:]
        self.task = self._loop.create_task(self._answer(head, data[end:stop]))

    def _hand_over(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._front.connections.discard(self)
        self._transport, self._ahead = None, b""
        protocol = self._front.make_server_protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    async def _answer(self, head: _Head, body: bytes) -> None:
        try:
            answer = await answer_body(self._front.broker, body, head.client_request_id, wants_status=head.wants_status)
        except Exception:  # noqa: BLE001 - the outermost frame of a request: no traceback reaches a user
            _LOG.exception("request failed by a bug")
            self.abort()
            return
        self._write(answer)
        await self.room()
        self.task = None
        if self._transport is None:
            return
        if head.closes or self._is_finishing:
            self._transport.close()
            return
        self._transport.resume_reading()
        if self._ahead:
            self._take(self._ahead)

    def _write(self, answer: HttpAnswer) -> None:
        if self._transport is None:
            return
        head = _head_of(answer.status, answer.error_code) % (self._front.date(), len(answer.body))
        if len(answer.body) <= MAX_AHEAD_BYTES:
            self._transport.write(head + answer.body)
        else:
            self._transport.write(head)
            self._transport.write(answer.body)


@functools.lru_cache(maxsize=256)
def _head_of(status: int, error_code: int) -> bytes:
    """A response's head, with places for the date and the length of the body."""
    lines = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase if status != 499 else 'Client Closed Request'}",
        "Content-Type: application/json",
        f"{ERROR_CODE_HEADER}: {error_code}",
        "Server: Merlot",
        "Date: %s",
        "Content-Length: %d",
        "",
        "",
    )
    return "\r\n".join(lines).encode()
