"""Units of time, as Java's TimeUnit names them."""

from __future__ import annotations

from typing import Final

UNIT_NANOS: Final = {
    "NANOSECONDS": 1,
    "MICROSECONDS": 1_000,
    "MILLISECONDS": 1_000_000,
    "SECONDS": 1_000_000_000,
    "MINUTES": 60_000_000_000,
    "HOURS": 3_600_000_000_000,
    "DAYS": 86_400_000_000_000,
}
NANOS_OF_MILLI: Final = 1_000_000
