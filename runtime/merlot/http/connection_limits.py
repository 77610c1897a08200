"""Connection limits of one port: how many connections there are, how many bytes they hold, and how long each may stall.

A client has `ARRIVAL_S` to send a request once it has begun, or once it has connected; and must read some of its answer
every minute. No client has a fixed share: it may have all places and bytes until another client wants some. Then the
connections that have been idle longest are closed, and after them some of the client that holds most; a request that is
being answered never is. A client is an address. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from merlot import memory

ARRIVAL_S: Final = 30.0
IDLE_S: Final = 3_600.0
SWEEP_S: Final = 5.0
MAX_STALLED_SWEEPS: Final = 12
MAX_CONNECTIONS: Final = 4_096
MAX_HELD_BYTES: Final = 512 << 20
"""Bytes held for all connections together: requests without an answer yet, and answers that are not read yet."""
HELD_SHARE: Final = 8
"""Divisor of the process's memory; the quotient is the limit of held bytes if it is less."""
PLAIN_BYTES: Final = 8 << 10
"""Memory of a connection without TLS, at most."""
SHARE_MADE_FREE: Final = 20
"""Divisor of the number of connections; the quotient, plus one, is how many are closed at a time if there is no place,
as looking for them takes a millisecond."""
PATIENT_S: Final = 2.0
"""Seconds after which an arriving request may be ended for another request of the same client."""

LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class LimitedConnection(Protocol):
    """A connection."""

    client: str
    waiting_since: float | None
    """Loop time since which a request that has begun, or the first request, is awaited; None if none is."""
    idle_since: float | None
    """Loop time since which no request is under way; None while one is."""
    stalled: tuple[int, int]
    """Bytes that the client had not read at the last sweep, and the number of sweeps since it read any."""
    held_bytes: int
    """Bytes that the process holds for the connection. Only the limiter changes this."""

    @property
    def is_arriving(self) -> bool:
        """True if a request has begun to arrive and is not whole."""
        ...

    def unwritten_bytes(self) -> int:
        """Return the bytes of answers that the client has not read yet."""
        ...

    def end(self, last_words: bytes = b"") -> None:
        """Close a connection that is not being answered, after sending `last_words`."""
        ...

    def abort(self) -> None:
        """Break the connection off."""
        ...


def client_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of a connection's peer; for IPv6 the network of 64 bits, which one host may own."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return ""
    address = ipaddress.ip_address(peer[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class ConnectionLimiter:
    """The connections of a port, and the timer that ends stalled ones until `close`."""

    def __init__(
        self,
        max_connections: int | None = None,
        *,
        arrival_s: float = ARRIVAL_S,
        max_held_bytes: int = MAX_HELD_BYTES,
        max_stalled_sweeps: int = MAX_STALLED_SWEEPS,
        connection_bytes: int = PLAIN_BYTES,
    ) -> None:
        """connection_bytes: memory of a connection that is idle; all together get a share of the process's."""
        self._max_connections = max_connections or min(
            MAX_CONNECTIONS, _files() // 2, memory.total_bytes() // HELD_SHARE // connection_bytes
        )
        self._arrival_s = arrival_s
        self.max_held_bytes = min(max_held_bytes, memory.total_bytes() // HELD_SHARE)
        """Bytes that all connections together may hold."""
        self._max_stalled_sweeps = max_stalled_sweeps
        self._members: dict[LimitedConnection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self.held_bytes = 0

    def admit(self, member: LimitedConnection) -> bool:
        """Give a connection a place; return False if busy connections hold them all."""
        if len(self._members) >= self._max_connections:
            self._make_room(member.client)
        if len(self._members) >= self._max_connections:
            return False
        self._members[member] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(min(SWEEP_S, self._arrival_s / 2), self._sweep)
        return True

    def leave(self, member: LimitedConnection) -> None:
        """Free a connection's place and its held bytes."""
        self.hold(member, 0)
        self._members.pop(member, None)

    def hold(self, member: LimitedConnection, num_bytes: int) -> None:
        """Set how many bytes are held for a connection.

        While all connections together hold too many, the heaviest connection of the client that holds most is ended;
        this may be `member` itself."""
        if member not in self._members:
            return
        self.held_bytes += num_bytes - member.held_bytes
        member.held_bytes = num_bytes
        while self.held_bytes > self.max_held_bytes and (heaviest := self._heaviest()) is not None:
            self.leave(heaviest)
            if heaviest.is_arriving:
                heaviest.end(BUSY)
            else:
                heaviest.abort()

    def close(self) -> None:
        """Stop the sweeps."""
        if self._timer is not None:
            self._timer.cancel()

    def _heaviest(self) -> LimitedConnection | None:
        """Return the heaviest connection of the heaviest client, among those that may be ended; None if there is
        none."""
        by_client: Counter[str] = Counter()
        for member in self._members:
            by_client[member.client] += member.held_bytes
        yielding = (candidate for candidate in self._members if candidate.is_arriving or candidate.unwritten_bytes())
        return max(yielding, key=lambda candidate: (by_client[candidate.client], candidate.held_bytes), default=None)

    def _make_room(self, client: str) -> None:
        most = 1 + len(self._members) // SHARE_MADE_FREE
        idle = [
            (member.idle_since, number) for number, member in enumerate(self._members) if member.idle_since is not None
        ]
        if idle:
            self._end(sorted(idle)[:most], b"")
            return
        counts = Counter(member.client for member in self._members)
        heaviest, count = counts.most_common(1)[0]
        patient = self._now() - (0.0 if count > counts[client] + 1 else PATIENT_S)
        waiting = [
            (member.waiting_since, number)
            for number, member in enumerate(self._members)
            if member.waiting_since is not None and member.client == heaviest and member.waiting_since < patient
        ]
        self._end(sorted(waiting)[:most], BUSY)

    def _end(self, chosen: Iterable[tuple[float, int]], last_words: bytes) -> None:
        members = list(self._members)
        for _, number in chosen:
            self.leave(members[number])
            members[number].end(last_words)

    def _sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(min(SWEEP_S, self._arrival_s / 2), self._sweep)
        now = self._now()
        for member in list(self._members):
            unwritten, num_sweeps = member.unwritten_bytes(), member.stalled[1]
            member.stalled = unwritten, num_sweeps + 1 if unwritten and unwritten >= member.stalled[0] else 0
            if member.stalled[1] > self._max_stalled_sweeps:
                member.abort()
            elif member.waiting_since is not None and now - member.waiting_since > self._arrival_s:
                member.end(LATE)
            elif member.idle_since is not None and now - member.idle_since > IDLE_S:
                member.end()


def _files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2 * MAX_CONNECTIONS
