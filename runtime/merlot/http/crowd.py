"""The connections of one port: how many there may be, and how long one may hold its place without doing anything.

A client has `ARRIVAL_S` to send a request once it has begun, or once it has connected; and must take some of its answer
every minute. When all places are taken, those that have been idle longest make room. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Final, Protocol

ARRIVAL_S: Final = 30.0
IDLE_S: Final = 3_600.0
SWEEP_S: Final = 5.0
MAX_STALLED_SWEEPS: Final = 12
MAX_CONNECTIONS: Final = 4_096
MAX_HELD_BYTES: Final = 256 << 20
"""Of requests that have not come whole, all connections together."""
SHARE_MADE_FREE: Final = 20
"""One in so many connections is closed when there is no place: looking for them takes a millisecond."""


class Member(Protocol):
    """A connection."""

    waiting_since: float | None
    """Since when a request is awaited that has begun, or the first; loop time."""
    idle_since: float | None
    """Since when nothing is asked or answered; None while something is."""
    stalled: tuple[int, int]
    """Bytes not taken by the client at the last sweep, and for how many sweeps none was."""

    def unwritten_bytes(self) -> int:
        """What the client has not taken yet."""
        ...

    def end(self, *, is_late: bool) -> None:
        """Close; is_late: tell the client that its request took too long."""
        ...

    def abort(self) -> None:
        """Break off."""
        ...


class Crowd:
    """Open from the first connection to `close`."""

    def __init__(self, max_connections: int | None = None, *, arrival_s: float = ARRIVAL_S) -> None:
        self._max_connections = max_connections or min(MAX_CONNECTIONS, _files() // 2)
        self._arrival_s = arrival_s
        self._members: dict[Member, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self.held_bytes = 0

    def admit(self, member: Member) -> bool:
        """Give a connection a place; False if all are taken by others that are busy."""
        if len(self._members) >= self._max_connections:
            self._make_room()
        if len(self._members) >= self._max_connections:
            return False
        self._members[member] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(min(SWEEP_S, self._arrival_s / 2), self._sweep)
        return True

    def leave(self, member: Member) -> None:
        """Take its place away."""
        self._members.pop(member, None)

    def close(self) -> None:
        """Sweep no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _make_room(self) -> None:
        idle = [(member.idle_since, number) for number, member in enumerate(self._members)]
        longest = sorted((since, number) for since, number in idle if since is not None)
        members = list(self._members)
        for _, number in longest[: 1 + len(members) // SHARE_MADE_FREE]:
            self.leave(members[number])
            members[number].end(is_late=False)

    def _sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(min(SWEEP_S, self._arrival_s / 2), self._sweep)
        now = self._now()
        for member in list(self._members):
            unwritten, num_sweeps = member.unwritten_bytes(), member.stalled[1]
            member.stalled = unwritten, num_sweeps + 1 if unwritten and unwritten >= member.stalled[0] else 0
            if member.stalled[1] > MAX_STALLED_SWEEPS:
                member.abort()
            elif member.waiting_since is not None and now - member.waiting_since > self._arrival_s:
                member.end(is_late=True)
            elif member.idle_since is not None and now - member.idle_since > IDLE_S:
                member.end(is_late=False)


def _files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2 * MAX_CONNECTIONS
