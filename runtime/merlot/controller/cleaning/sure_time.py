"""A time that has surely come: it, not the machine's clock, decides what is old enough to be deleted.

A wall clock jumps: a time server answers wrongly, a machine wakes, an administrator errs. So nothing is deleted by it
alone. The leader keeps a mark in the metastore that follows the wall clock, but no faster than monotonic time allows:
two seconds a second forward, one back. A clock that is wrong for a minute puts the mark a minute ahead at most,
whatever it says. While no controller leads, the mark stands still; it catches up at double speed. If the metastore has
a clock of its own, the mark follows the earlier of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.errors import CorruptionError, MerlotError
from merlot.metastore.protocol import Check, Create, Metastore, Put

MOST_AHEAD: Final = 2
"""Most seconds that the mark goes forward in a second."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A time that has come, in milliseconds since the epoch, and the monotonic second at which that was so."""

    mark_ms: int
    at_s: float


def followed(mark: Mark, wall_ms: int, monotonic_s: float) -> Mark:
    """Return the mark after it has followed a clock that says `wall_ms`. Pure."""
    elapsed_ms = max(0, round((monotonic_s - mark.at_s) * 1000))
    earliest_ms, latest_ms = mark.mark_ms - elapsed_ms, mark.mark_ms + MOST_AHEAD * elapsed_ms
    return Mark(min(max(wall_ms, earliest_ms), latest_ms), monotonic_s)


class SureClock:
    """A clock whose `now_ms` has surely come. Only the leader's thread uses it; call `lead` first.

    The difference between two of its times is at most twice the monotonic time between them."""

    def __init__(self, metastore: Metastore, clock: Clock) -> None:
        self._metastore = metastore
        self._clock = clock
        self._mark = Mark(0, clock.monotonic())
        self._version = -1
        self._metastore_mark: Mark | None = None
        """The metastore's own time at the last write; None if it has no clock."""
        self._pass_ms = 0
        self._lease: Lease | None = None

    def lead(self, lease: Lease) -> None:
        """Go on with the mark of the last leader, once per lease. Raise ConflictError if another controller leads.

        Leases are compared whole, since a lease in a metastore that was emptied may have the same fence."""
        if lease == self._lease:
            return
        fence = lease.fence
        node = self._metastore.get(paths.SURE_TIME)
        self._version = -1 if node is None else node.version
        self._pass_ms = 0 if node is None else _parsed(node.data)
        self._mark, self._metastore_mark = Mark(self._pass_ms, self._clock.monotonic()), None
        self._keep(fence)
        if not self._pass_ms:
            self._mark = Mark(self._wall_ms(), self._clock.monotonic())
            self._keep(fence)
        self._lease = lease

    def now_ms(self) -> int:
        """Return the mark as it is now."""
        self._mark = followed(self._mark, self._wall_ms(), self._clock.monotonic())
        return self._mark.mark_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def past_ms(self) -> int:
        """Return the mark or the wall clock, whichever is earlier. It judges times of rows, which other machines
        stamped."""
        return min(self.now_ms(), self._clock.now_ms())

    def begin_pass(self, fence: Check) -> int:
        """Store the mark; return when the previous pass began, 0 if there was none. Anything that did not exist then is
        younger.

        Raise ConflictError if another controller leads."""
        before, self._pass_ms = self._pass_ms, self.now_ms()
        self._keep(fence)
        return before

    def _keep(self, fence: Check) -> None:
        path, data = paths.SURE_TIME, str(self._mark.mark_ms).encode()
        op = Create(path, data) if self._version < 0 else Put(path, data, self._version)
        try:
            self._metastore.multi([fence, op])
        except MerlotError:
            self._lease = None  # the write may have happened: `lead` reads the version again
            raise
        self._version += 1
        node = self._metastore.get(path)
        said_ms = None if node is None else node.modified_ms
        self._metastore_mark = None if said_ms is None else Mark(said_ms, self._clock.monotonic())

    def _wall_ms(self) -> int:
        if self._metastore_mark is None:
            return self._clock.now_ms()
        elapsed_ms = round((self._clock.monotonic() - self._metastore_mark.at_s) * 1000)
        return min(self._clock.now_ms(), self._metastore_mark.mark_ms + elapsed_ms)


def _parsed(data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise CorruptionError(f"time of the last cleaning cannot be read path={paths.SURE_TIME}") from error
