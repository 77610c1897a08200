"""Let clients of an HTTP port in over TLS: a connection has its place among the port's from its first packet on, so
that clients that never end their handshakes cannot take more of them than others. Used on one event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from aiohttp import web

from merlot.http.connection_limits import ConnectionLimiter, client_of
from merlot.security.tls import Certificates
from merlot.security.tls_transport import TlsConnection
from merlot.telemetry import TLS_FAILURES

CONNECTION_BYTES: Final = 64 << 10
"""Memory of a TLS connection that is idle, at most. Measured: 20 KiB, and the protocol's own."""

CERTIFICATES: Final = web.AppKey("certificates", Certificates)
"""Certificates of the process, with which handlers call other processes."""

MakeProtocol = Callable[[], asyncio.Protocol]


def tls_of(app: web.Application) -> ssl.SSLContext | bool:
    """Return what aiohttp's client takes as `ssl` to call another process: a context, or True for the system's CAs."""
    certificates = app.get(CERTIFICATES)
    return True if certificates is None else certificates.client_context()


def new_limiter(certificates: Certificates | None) -> ConnectionLimiter:
    """Return the limiter of a port, which allows for what TLS keeps for each connection."""
    return ConnectionLimiter() if certificates is None else ConnectionLimiter(connection_bytes=CONNECTION_BYTES)


def behind_tls(
    make_protocol: MakeProtocol, certificates: Certificates | None, limiter: ConnectionLimiter
) -> MakeProtocol:
    """Return a maker of protocols that speak TLS first; `make_protocol` itself if there are no certificates."""
    if certificates is None:
        return make_protocol
    return lambda: _Handshake(certificates.public_context(), make_protocol, limiter)


class _Handshake(TlsConnection):
    """A connection that holds a place of its own until its handshake is over and its protocol takes one."""

    def __init__(self, context: ssl.SSLContext, make_protocol: MakeProtocol, limiter: ConnectionLimiter) -> None:
        super().__init__(context, make_protocol, on_failure=_count)
        self._limiter = limiter
        self.client = ""
        self.waiting_since: float | None = None
        self.idle_since: float | None = None
        self.stalled = (0, 0)
        self.held_bytes = 0

    @property
    def is_arriving(self) -> bool:
        return True

    def begun(self, raw: asyncio.Transport) -> bool:
        self.client = client_of(raw)
        self.waiting_since = asyncio.get_running_loop().time()
        return self._limiter.admit(self)

    def settled(self) -> None:
        self._limiter.leave(self)

    def unwritten_bytes(self) -> int:
        return 0 if self.raw is None else self.raw.get_write_buffer_size()

    def end(self, last_words: bytes = b"") -> None:
        self.abort()  # nobody reads words before the handshake


def _count(_: Exception) -> None:
    TLS_FAILURES.labels(port="http").inc()
