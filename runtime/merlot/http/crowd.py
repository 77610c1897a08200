"""The connections of one port: how many there may be, what all of them may hold, and how long one may do nothing.

A client has `ARRIVAL_S` to send a request once it has begun, or once it has connected; and must take some of its answer
every minute. Nobody has a fixed share: one client may have all places and bytes until another wants some. Then
connections make room that have been idle longest, and after them some of the client that holds most; a request that is
being answered never does. A client is an address. Used on one event loop.
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
"""Held for all connections together: requests that are not answered, and answers that are not taken."""
HELD_SHARE: Final = 8
"""Of the memory of the process, if that is less."""
SHARE_MADE_FREE: Final = 20
"""One in so many connections is closed when there is no place: looking for them takes a millisecond."""
PATIENT_S: Final = 2.0
"""A request that has been arriving for longer makes room for another one of the same client too."""

LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Member(Protocol):
    """A connection."""

    client: str
    waiting_since: float | None
    """Since when a request is awaited that has begun, or the first; loop time."""
    idle_since: float | None
    """Since when nothing is asked or answered; None while something is."""
    stalled: tuple[int, int]
    """Bytes not taken by the client at the last sweep, and for how many sweeps none was."""
    held_bytes: int
    """Bytes that the process keeps for it. Only the crowd changes them."""

    @property
    def is_arriving(self) -> bool:
        """Whether a request has begun to come and is not whole."""
        ...

    def unwritten_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        ...

    def end(self, last_words: bytes = b"") -> None:
        """Close a connection that is not being answered, after a last answer."""
        ...

    def abort(self) -> None:
        """Break off."""
        ...


def client_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of a connection's peer; of an IPv6 address the network of 64 bits, which one host may own."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return ""
    address = ipaddress.ip_address(peer[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class Crowd:
    """Open from the first connection to `close`."""

    def __init__(self, max_connections: int | None = None, *, arrival_s: float = ARRIVAL_S) -> None:
        self._max_connections = max_connections or min(MAX_CONNECTIONS, _files() // 2)
        self._arrival_s = arrival_s
        self._share_bytes = memory.total_bytes() // HELD_SHARE
        self._members: dict[Member, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self.held_bytes = 0

    def admit(self, member: Member) -> bool:
        """Give a connection a place; False if all are taken by others that are busy."""
        if len(self._members) >= self._max_connections:
            self._make_room(member.client)
        if len(self._members) >= self._max_connections:
            return False
        self._members[member] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(min(SWEEP_S, self._arrival_s / 2), self._sweep)
        return True

    def leave(self, member: Member) -> None:
        """Take its place away, and what is held for it."""
        self.hold(member, 0)
        self._members.pop(member, None)

    def hold(self, member: Member, num_bytes: int) -> None:
        """Set how many bytes are held for a connection. If all together hold too many, the client that holds most gives
        way, with the connection that holds most; this may be the one that is spoken of."""
        if member not in self._members:
            return
        self.held_bytes += num_bytes - member.held_bytes
        member.held_bytes = num_bytes
        while self.held_bytes > min(MAX_HELD_BYTES, self._share_bytes) and (heaviest := self._heaviest()) is not None:
            self.leave(heaviest)
            if heaviest.is_arriving:
                heaviest.end(BUSY)
            else:
                heaviest.abort()

    def close(self) -> None:
        """Sweep no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _heaviest(self) -> Member | None:
        """Return the connection that holds most among those that need not be answered, None if there is none."""
        by_client: Counter[str] = Counter()
        for member in self._members:
            by_client[member.client] += member.held_bytes
        yielding = (one for one in self._members if one.is_arriving or one.unwritten_bytes())
        return max(yielding, key=lambda one: (by_client[one.client], one.held_bytes), default=None)

    def _make_room(self, client: str) -> None:
        most = 1 + len(self._members) // SHARE_MADE_FREE
        idle = [(one.idle_since, number) for number, one in enumerate(self._members) if one.idle_since is not None]
        if idle:
            self._end(sorted(idle)[:most], b"")
            return
        counts = Counter(one.client for one in self._members)
        heaviest, count = counts.most_common(1)[0]
        patient = self._now() - (0.0 if count > counts[client] + 1 else PATIENT_S)
        waiting = [
            (one.waiting_since, number)
            for number, one in enumerate(self._members)
            if one.waiting_since is not None and one.client == heaviest and one.waiting_since < patient
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
            if member.stalled[1] > MAX_STALLED_SWEEPS:
                member.abort()
            elif member.waiting_since is not None and now - member.waiting_since > self._arrival_s:
                member.end(LATE)
            elif member.idle_since is not None and now - member.idle_since > IDLE_S:
                member.end()


def _files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2 * MAX_CONNECTIONS
