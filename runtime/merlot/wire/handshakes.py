"""TLS handshakes of peers with a server's query port: how many there may be, and a word on those that fail.

Used on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from merlot.security.peer_names import BROKERS, is_named, names_of
from merlot.security.tls import Certificates
from merlot.security.tls_transport import TlsConnection
from merlot.telemetry import TLS_FAILURES

_LOG = logging.getLogger(__name__)

SHARE_OF_HOST: Final = 4
"""Divisor of the number of handshakes; the quotient is how many one host may have."""
LOG_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PeerTls:
    """TLS of a query port. Peers have to show a certificate of the same CA, with a name that a pattern matches."""

    certificates: Certificates
    peers: tuple[str, ...] = BROKERS

    def refusal(self, transport: asyncio.BaseTransport) -> str | None:
        """Return why a peer may not ask, in words for its log; None if it may."""
        certificate = transport.get_extra_info("peercert")
        if is_named(certificate, self.peers):
            return None
        names = ", ".join(names_of(certificate)) or "none"
        return (
            f"certificate is not of a broker names={names:.200} allowed={', '.join(self.peers):.200}; give the broker "
            "one of these names, or allow its name on servers by --tls-peers"
        )


class Handshakes:
    """The handshakes under way at one port."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_host: Counter[str] = Counter()
        self._logged_at = float("-inf")

    def begin(self, host: str) -> bool:
        """Give a handshake a place; return False if there is none."""
        if self._by_host.total() >= self._limit or self._by_host[host] >= max(1, self._limit // SHARE_OF_HOST):
            return False
        self._by_host[host] += 1
        return True

    def end(self, host: str) -> None:
        """Free a handshake's place."""
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def failed(self, host: str, error: Exception) -> None:
        """Count a failure, and log one a second at most: whoever connects can cause them."""
        TLS_FAILURES.labels(port="frames").inc()
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            _LOG.warning("connection refused peer=%s cause=%s", host, error)


class PeerHandshake(TlsConnection):
    """The server's end of a peer's connection."""

    def __init__(
        self, context: ssl.SSLContext, make_protocol: Callable[[], asyncio.Protocol], handshakes: Handshakes
    ) -> None:
        super().__init__(context, make_protocol, on_failure=self._failed)
        self._handshakes = handshakes
        self._host = ""
        self._has_place = False

    def begun(self, raw: asyncio.Transport) -> bool:
        peer = raw.get_extra_info("peername")
        self._host = str(peer[0]) if isinstance(peer, tuple) else ""
        self._has_place = self._handshakes.begin(self._host)
        return self._has_place

    def settled(self) -> None:
        if self._has_place:
            self._handshakes.end(self._host)

    def _failed(self, error: Exception) -> None:
        self._handshakes.failed(self._host, error)
