"""Rows per second of each partition over the last few seconds, and the gauges of partitions."""

from __future__ import annotations

from collections import deque
from typing import Final

from merlot import telemetry
from merlot.ids import TableName

WINDOW_S: Final = 5.0
GAUGES: Final = (
    telemetry.STREAM_LAG,
    telemetry.STREAM_LAG_SECONDS,
    telemetry.STREAM_ROWS,
    telemetry.STREAM_BAD,
    telemetry.STREAM_MISPLACED,
    telemetry.UPSERT_KEYS,
    telemetry.UPSERT_BYTES,
)


def remove_gauges(table: TableName, partition: int) -> None:
    """Remove the gauges of a partition that this server does not consume any more."""
    for gauge in GAUGES:
        gauge.remove(table, str(partition))


class Rates:
    """Rates, computed from totals that are reported now and then; one thread."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[tuple[float, int]]] = {}

    def of(self, partition: int, total: int, now: float) -> float:
        """Note a total, and return the rows per second since the total of some seconds ago."""
        seen = self._seen.setdefault(partition, deque())
        seen.append((now, total))
        while len(seen) > 2 and now - seen[1][0] >= WINDOW_S:
            seen.popleft()
        since, before = seen[0]
        return 0.0 if now <= since else round((total - before) / (now - since), 1)
