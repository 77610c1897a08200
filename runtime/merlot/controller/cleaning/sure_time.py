"""A time that has surely come: by it, and not by the machine's clock, things are old enough to be deleted.

A wall clock jumps: a wrong answer of a time server, a machine that wakes, a hand that slips. So nothing is deleted by
it alone. The leader keeps a mark in the metastore that follows the wall clock, but no faster than monotonic time
allows: two seconds a second forward, one back. A clock that is wrong for a minute moves the mark by a minute, whatever
it says. While no controller leads the mark stands still; it catches up at double speed. Where the metastore has a clock
of its own, the earlier of the two is followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.errors import CorruptionError
from merlot.metastore.protocol import Check, Create, Metastore, Put

MOST_AHEAD: Final = 2
"""Seconds that the mark goes forward in a second, at most."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A time that has come, and when that was said: milliseconds since the epoch, and monotonic seconds."""

    mark_ms: int
    at_s: float


def followed(mark: Mark, wall_ms: int, monotonic_s: float) -> Mark:
    """The mark after it has followed a clock that says `wall_ms`. Pure."""
    elapsed_ms = max(0, round((monotonic_s - mark.at_s) * 1000))
    earliest_ms, latest_ms = mark.mark_ms - elapsed_ms, mark.mark_ms + MOST_AHEAD * elapsed_ms
    return Mark(min(max(wall_ms, earliest_ms), latest_ms), monotonic_s)


class SureClock:
    """A clock whose `now_ms` has surely come. Used by the leader's thread; `lead` before anything else.

    Differences between two of its times are at most twice the monotonic time between them.
    """

    def __init__(self, metastore: Metastore, clock: Clock) -> None:
        self._metastore = metastore
        self._clock = clock
        self._mark = Mark(0, clock.monotonic())
        self._version = -1
        self._others: Mark | None = None
        """The time by the metastore's own clock at the last write, if it has one."""
        self._pass_ms = 0
        self._lease: Lease | None = None

    def lead(self, lease: Lease) -> None:
        """Go on with what the last leader kept, once a lease. ConflictError if another one leads by now. In a metastore
        that was emptied another lease may have the same fence."""
        if lease == self._lease:
            return
        fence = lease.fence
        node = self._metastore.get(paths.SURE_TIME)
        self._version = -1 if node is None else node.version
        self._pass_ms = 0 if node is None else _parsed(node.data)
        self._mark, self._others = Mark(self._pass_ms, self._clock.monotonic()), None
        self._keep(fence)
        if not self._pass_ms:
            self._mark = Mark(self._wall_ms(), self._clock.monotonic())
            self._keep(fence)
        self._lease = lease

    def now_ms(self) -> int:
        """The mark as it is now."""
        self._mark = followed(self._mark, self._wall_ms(), self._clock.monotonic())
        return self._mark.mark_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def past_ms(self) -> int:
        """Also by the wall clock, if that is earlier: for judging the times of rows, which were stamped elsewhere."""
        return min(self.now_ms(), self._clock.now_ms())

    def begin_pass(self, fence: Check) -> int:
        """Have the mark outlive this process; returns when the pass before this one began, 0 if there was none. What
        was not there then is younger. ConflictError if another one leads."""
        before, self._pass_ms = self._pass_ms, self.now_ms()
        self._keep(fence)
        return before

    def _keep(self, fence: Check) -> None:
        path, data = paths.SURE_TIME, str(self._mark.mark_ms).encode()
        op = Create(path, data) if self._version < 0 else Put(path, data, self._version)
        self._metastore.multi([fence, op])
        self._version += 1
        node = self._metastore.get(path)
        said_ms = None if node is None else node.modified_ms
        self._others = None if said_ms is None else Mark(said_ms, self._clock.monotonic())

    def _wall_ms(self) -> int:
        if self._others is None:
            return self._clock.now_ms()
        elapsed_ms = round((self._clock.monotonic() - self._others.at_s) * 1000)
        return min(self._clock.now_ms(), self._others.mark_ms + elapsed_ms)


def _parsed(data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise CorruptionError(f"time of the last cleaning cannot be read path={paths.SURE_TIME}") from error
