"""Guard an aiohttp application from its clients: a handler sees only requests that are whole, in time and within
limits.

The server itself waits for heads and bodies as long as a client likes. Bodies have a limit by path, and must not be
compressed: 64 KB may be 64 MB behind a Content-Encoding, which the event loop would unpack. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from merlot.errors import AccessDeniedError
from merlot.http.audited import Audited
from merlot.http.browsers import HOSTS, Hosts, refusal
from merlot.http.connection_limits import ARRIVAL_S, BUSY, ConnectionLimiter, client_of
from merlot.http.described import description_of
from merlot.http.door import admitted, refused_answer
from merlot.http.turns import FairSlots

MAX_LARGE_BODIES: Final = 2
"""Number of requests that are handled at a time, once their bodies are whole, to paths that allow more than
LARGE_BYTES."""
LARGE_BYTES: Final = 8 << 20


class _OwnErrors(logging.Filter):
    """Drops records with tracebacks of clients' errors and disconnects: no client can fill the log with them."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | ConnectionError))


SERVER_LOG: Final = logging.getLogger("merlot.http.aiohttp")
SERVER_LOG.addFilter(_OwnErrors())

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """Largest size of a body, and the longest time that it may take to arrive."""

    max_bytes: int = 1 << 20
    timeout_s: float = ARRIVAL_S


BODY_LIMITS: Final = web.AppKey("body_limits", Mapping[str, BodyLimit])
"""Limits by path, as the routes spell it; other paths have the default."""


class Guard:
    """Makes the protocols of an application's connections."""

    def __init__(self, app: web.Application, limiter: ConnectionLimiter) -> None:
        self.limiter = limiter
        self.connections: dict[asyncio.Protocol, _Guarded] = {}
        self._limits = app.get(BODY_LIMITS, {})
        self._hosts = app.get(HOSTS, Hosts())
        self._large_bodies = FairSlots(MAX_LARGE_BODIES)

        @web.middleware
        async def whole(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._whole(request, handler)

        app.middlewares.insert(0, whole)

    def protocol(self, server: web.Server) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Guarded(self, server())

    async def _whole(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.match_info.http_exception is not None:
            handler = _no_path
        connection = self.connections.get(request.protocol)
        if connection is not None:
            connection.begin()
        try:
            if not all(map(_is_text, request.headers.values())):
                return _refusal(400, "a header is not UTF-8")
            if (reason := refusal(request.method, request.headers, self._hosts)) is not None:
                return _refusal(403, reason)
            return await self._admitted(request, handler, connection)
        finally:
            if connection is not None:
                connection.finish()

    async def _admitted(
        self, request: web.Request, handler: Handler, connection: _Guarded | None
    ) -> web.StreamResponse:
        """Answer a request of a caller who may ask it; tell the audit log about it."""
        description = description_of(request.match_info.handler)
        right = None if description is None else description.right
        audited = Audited.begin(request)
        refused = None if handler is _no_path else await admitted(request, right)
        response: web.StreamResponse | None = refused
        try:
            if response is None:
                response = await self._answered(request, handler, connection)
            elif request.body_exists:
                response.force_close()  # the rest of the body would be parsed as requests
            return response
        except AccessDeniedError as error:
            response = refused_answer(error)
            return response
        except web.HTTPException as error:
            response = error
            raise
        finally:
            audited.end(request, right, response)

    async def _answered(
        self, request: web.Request, handler: Handler, connection: _Guarded | None
    ) -> web.StreamResponse:
        if request.body_exists:
            return await self._with_body(request, handler, connection)
        return await handler(request)

    async def _with_body(
        self, request: web.Request, handler: Handler, connection: _Guarded | None
    ) -> web.StreamResponse:
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            return _refusal(415, "a compressed body is not taken")
        resource = request.match_info.route.resource
        limit = self._limits.get("" if resource is None else resource.canonical, BodyLimit())
        if request.content_length is not None and request.content_length > limit.max_bytes:
            return _refusal(413, f"body is too large bytes={request.content_length} limit={limit.max_bytes}")
        request = request.clone(client_max_size=limit.max_bytes)
        refused = await _read_body(request, limit, connection)
        if refused is not None:
            return refused
        if limit.max_bytes <= LARGE_BYTES:
            return await handler(request)
        async with self._large_bodies.slot("" if connection is None else connection.client):
            return await handler(request)


async def _read_body(request: web.Request, limit: BodyLimit, connection: _Guarded | None) -> web.Response | None:
    """Wait for the whole body; return the refusal if it does not arrive whole, in time and within its limit."""
    if connection is not None:
        connection.is_arriving = True
    try:
        async with asyncio.timeout(limit.timeout_s):
            await request.read()
    except TimeoutError:
        return _refusal(408, f"body did not come in time timeout_s={limit.timeout_s:g}")
    except web.HTTPRequestEntityTooLarge:
        return _refusal(413, f"body is too large limit={limit.max_bytes}")
    except web.RequestPayloadError as error:
        return _refusal(400, f"body cannot be read: {error}")
    finally:
        if connection is not None:
            connection.is_arriving = False
    return None


def _is_text(value: str) -> bool:
    """Return True if the header is valid UTF-8. aiohttp keeps other bytes as lone surrogates, which no answer can
    hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(status: int, text: str) -> web.Response:
    """Return an error that closes the connection: the rest of the body would be parsed as requests."""
    body = orjson.dumps({"code": status, "error": text})
    response = web.Response(status=status, body=body, content_type="application/json")
    response.force_close()
    return response


async def _no_path(request: web.Request) -> web.StreamResponse:
    """Answer a request for an unknown path. `noSuchPath` tells clients that another role may have the path."""
    error = request.match_info.http_exception
    assert error is not None, "the request was matched with no path"
    is_method = isinstance(error, web.HTTPMethodNotAllowed)
    text = f"{request.method} is not taken here" if is_method else "there is no such path; /openapi.json has all"
    body = orjson.dumps({"code": error.status, "error": f"{text} path={request.path}", "noSuchPath": True})
    headers = {"Allow": error.headers["Allow"]} if is_method else None
    return web.Response(status=error.status, body=body, content_type="application/json", headers=headers)


class _Guarded(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol, and records whether a request is awaited, being answered, or
    neither."""

    def __init__(self, guard: Guard, inner: asyncio.Protocol) -> None:
        self._guard = guard
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._now = asyncio.get_running_loop().time
        self.waiting_since: float | None = self._now()
        self.idle_since: float | None = self.waiting_since
        self.stalled = (0, 0)
        self.held_bytes = 0
        self.client = ""
        self.is_arriving = False
        self._request_bytes = 0
        self._unread_bytes = 0

    def begin(self) -> None:
        """Note that a request's head has arrived."""
        self.waiting_since = self.idle_since = None

    def finish(self) -> None:
        """Note that the answer is ready."""
        self.idle_since = self._now()
        self._request_bytes = 0
        self._hold()

    def _hold(self) -> None:
        self._guard.limiter.hold(self, self._request_bytes + self._unread_bytes)

    def unwritten_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def end(self, last_words: bytes = b"") -> None:
        if self._transport is not None:
            self._transport.write(last_words)
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.client = client_of(transport)
        if not self._guard.limiter.admit(self):
            transport.write(BUSY)
            transport.close()
        self._guard.connections[self._inner] = self
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.waiting_since is None and self.idle_since is not None:
            self.waiting_since = self._now()
        self._request_bytes += len(data)
        self._hold()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.limiter.leave(self)
        self._guard.connections.pop(self._inner, None)
        self._transport = None
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()
        self._unread_bytes = self.unwritten_bytes()
        self._hold()

    def resume_writing(self) -> None:
        self._unread_bytes = 0
        self._hold()
        self._inner.resume_writing()
