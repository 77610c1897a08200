"""How much of a port's event loop peers may take by sending, so that one that floods is no burden on others.

Everything that arrives has a weight: about what it costs to read, in bytes at the speed of a checksum. The hosts that
are connected share `SHARED_BYTES_S` evenly, used or not, and so do the connections of each with its host's part; what a
connection sends beyond its share comes out of a spare that all draw from. Whoever is beyond both waits, and its bytes
wait in the kernel, which makes the peer wait. So the loop's work for what arrives is bounded however many peers flood
it, and who keeps to its share never waits for them. A connection begins without credit: making new ones gains nothing.
Used on one event loop.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from merlot.clock import Clock

SHARED_BYTES_S: Final = 64 << 20
"""Some 10,000 requests of a broker a second."""
SPARE_BYTES_S: Final = 32 << 20
CREDIT_S: Final = 0.1
"""What was not used for so long may be used at once."""
LEAST_WAIT_S: Final = 0.005
"""Many frames are taken after a wait: pausing costs more than a frame."""
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
        """How many connections each host has."""
        self.spare_until = self.now()

    def lane(self, host: str) -> Lane:
        """A connection's; closed with it."""
        self.lanes[host] += 1
        return Lane(self, host)


class Lane:
    """What one connection has used: until `_until` its share is spent, at the rate that it has now."""

    def __init__(self, pace: Pace, host: str) -> None:
        self._pace = pace
        self._host = host
        self._until = pace.now() + CREDIT_S

    def wait_s(self) -> float:
        """How long to take nothing from the peer; 0: it may go on."""
        pace = self._pace
        latest = pace.now() + CREDIT_S
        if self._until < latest or pace.spare_until < latest:
            return 0.0
        return max(LEAST_WAIT_S, min(self._until, pace.spare_until) - latest)

    def spend(self, weight: int) -> None:
        """Note what was taken: from its share if any is left, else from the spare. The last piece may go beyond."""
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
