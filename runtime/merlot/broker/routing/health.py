"""Tell which servers a broker may ask, by the metastore's ephemeral nodes and by its own calls.

Neither source is enough. A server whose ephemeral node is lost may have lost only its connection to the metastore, and
still serve. It is a *suspect*: it leaves the routing only when a call to it fails too, or after `suspect_s`. A failed
call may be a passing fault: a live server becomes a *backup*, asked only for segments that no other server has, until
its pause is over. Each failure doubles the pause, up to LONGEST_PAUSE_S. Used on the event loop's thread only; time is
an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from merlot.ids import InstanceId

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class ServerStanding(Enum):
    """Preference of a server that may be asked.

    PREFERRED: asked first. BACKUP: asked only for segments that no preferred server has. A server without a standing is
    not asked."""

    PREFERRED = auto()
    BACKUP = auto()


class CallOutcome(Enum):
    """Outcome of a call to a server. LATE: the query's deadline passed first; the server may have been reached."""

    ANSWERED = auto()
    UNREACHED = auto()
    LATE = auto()


@dataclass(slots=True)
class _Server:
    started_ms: int
    lost_at: float | None = None
    failures: int = 0
    failed_at: float = 0.0

    def resumes_at(self) -> float:
        """Return when a failing server is preferred again."""
        return self.failed_at + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 10))

    def standing(self, now: float, suspect_s: float) -> ServerStanding | None:
        if self.lost_at is not None:
            is_gone = self.failures > 0 or now - self.lost_at >= suspect_s
            return None if is_gone else ServerStanding.PREFERRED
        return ServerStanding.BACKUP if self.failures and now < self.resumes_at() else ServerStanding.PREFERRED


class ServerHealth:
    """Health of every server that was seen and is not gone yet."""

    def __init__(self, suspect_s: float) -> None:
        self._suspect_s = suspect_s
        self._servers: dict[InstanceId, _Server] = {}

    def observe_live(self, live: Mapping[InstanceId, int], now: float) -> None:
        """Record which servers are live, and when the process of each started, in ms.

        A server that comes back begins without failures: it has recovered, or it is a new process, which may have
        replaced the old one between two calls of this method."""
        for instance, started_ms in live.items():
            server = self._servers.get(instance)
            if server is None or server.lost_at is not None or server.started_ms != started_ms:
                self._servers[instance] = _Server(started_ms)
        for instance, server in list(self._servers.items()):
            if instance not in live and server.lost_at is None:
                server.lost_at = now
            if server.standing(now, self._suspect_s) is None:
                del self._servers[instance]

    def observe_call(self, instance: InstanceId, outcome: CallOutcome, now: float) -> bool:
        """Record how a call ended; return True if the server's standing changed.

        Lateness counts against a suspect only: a live server may have been given a long query."""
        server = self._servers.get(instance)
        if server is None:
            return False
        before = server.standing(now, self._suspect_s)
        if outcome is CallOutcome.ANSWERED:
            server.failures = 0
        elif outcome is CallOutcome.UNREACHED or server.lost_at is not None:
            server.failures += 1
            server.failed_at = now
        return before != server.standing(now, self._suspect_s)

    def standings(self, now: float) -> Mapping[InstanceId, ServerStanding]:
        """Return the standing of every server that may be asked."""
        ranked = ((instance, server.standing(now, self._suspect_s)) for instance, server in self._servers.items())
        return {instance: standing for instance, standing in ranked if standing is not None}

    def next_change(self, now: float) -> float | None:
        """Return when time alone will next change a standing; None if it never will."""
        moments = [
            server.resumes_at() if server.lost_at is None else server.lost_at + self._suspect_s
            for server in self._servers.values()
            if server.failures or server.lost_at is not None
        ]
        return min((moment for moment in moments if moment > now), default=None)
