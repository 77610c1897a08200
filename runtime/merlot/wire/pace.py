"""Limit how much of a port's event loop its peers take by sending, so that a peer that floods does not slow down
others.

Everything that arrives has a weight: roughly the cost of reading it, in bytes at the speed of a checksum. Connected
hosts share `SHARED_BYTES_S` evenly, used or not, and the connections of a host share its part. A connection that
exceeds its share draws from a spare that all connections draw from. While both are used up, nothing is read from it:
its bytes wait in the kernel, which makes the peer wait. So the loop's work for arriving bytes is bounded however many
peers flood it, and a peer within its share never waits for them. A connection begins without credit, so making new ones
gains nothing. Used on one event loop.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from merlot.clock import Clock

SHARED_BYTES_S: Final = 64 << 20
"""Rate of the shares: some 10,000 requests of a broker a second."""
SPARE_BYTES_S: Final = 32 << 20
CREDIT_S: Final = 0.1
"""Time for which an unused share is saved up and may then be used at once."""
LEAST_WAIT_S: Final = 0.005
"""Shortest pause, long enough for many frames: pausing costs more than a frame."""
READ_BYTES: Final = 2_048
"""Weight of waking up to read, beside the bytes that are read."""
FRAME_BYTES: Final = 4_096
"""Weight of looking at a frame, beside its bytes."""
REFUSED_BYTES: Final = 32_768
"""Weight of a request that cannot be read: it is logged and answered."""


class Pace:
    """The shares and the spare of one port."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.monotonic
        self.lanes: Counter[str] = Counter()
        """Number of connections of each host."""
        self.spare_until = self.now()

    def lane(self, host: str) -> Lane:
        """Return the lane of a new connection, which has to close it when it ends."""
        self.lanes[host] += 1
        return Lane(self, host)


class Lane:
    """Use of the pace by one connection: its share is spent until `_until`, at its present rate."""

    def __init__(self, pace: Pace, host: str) -> None:
        self._pace = pace
        self._host = host
        self._until = pace.now() + CREDIT_S

    def wait_s(self) -> float:
        """Return how many seconds to take nothing from the peer; 0 if it may go on."""
        pace = self._pace
        latest = pace.now() + CREDIT_S
        if self._until < latest or pace.spare_until < latest:
            return 0.0
        return max(LEAST_WAIT_S, min(self._until, pace.spare_until) - latest)

    def spend(self, weight: int) -> None:
        """Charge the share if any of it is left, else the spare. The last charge may exceed either."""
        pace = self._pace
        now = pace.now()
        if self._until < now + CREDIT_S:
            sharers = len(pace.lanes) * pace.lanes[self._host]
            self._until = max(now, self._until) + weight * sharers / SHARED_BYTES_S
        else:
            pace.spare_until = max(now, pace.spare_until) + weight / SPARE_BYTES_S

    def close(self) -> None:
        """Leave the share to the others."""
        self._pace.lanes[self._host] -= 1
        if not self._pace.lanes[self._host]:
            del self._pace.lanes[self._host]
