"""Kubernetes Events: what was done, and why. Best effort: an event that cannot be written is logged.

The same event about the same object is written at most once in ten minutes. Belongs to one event loop.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from merlot.clock import Clock
from merlot.errors import MerlotError
from merlot_operator.kube.client import Kube
from merlot_operator.kube.kinds import FIELD_MANAGER, Object, digest, name_of, namespace_of

_LOG = logging.getLogger(__name__)

QUIET_S = 600.0
"""Seconds in which the same event about the same object is not written again."""
MAX_MESSAGE = 1000
END_MS = 253_402_300_800_000
"""Epoch milliseconds of the year 10000, which no timestamp can write."""


class Events:
    """Writer of events."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._seen: dict[str, float] = {}

    async def normal(self, about: Object, reason: str, message: str) -> None:
        """Report what was done."""
        await self._write(about, "Normal", reason, message)

    async def warning(self, about: Object, reason: str, message: str) -> None:
        """Report what is wrong."""
        await self._write(about, "Warning", reason, message)

    async def _write(self, about: Object, event_type: str, reason: str, message: str) -> None:
        key = digest([about["metadata"]["uid"], reason, message], 16)
        now = self._clock.monotonic()
        if now - self._seen.get(key, float("-inf")) < QUIET_S:
            return
        self._seen = {old: when for old, when in self._seen.items() if now - when < QUIET_S} | {key: now}
        try:
            await self._kube.create(self._event(about, event_type, reason, message[:MAX_MESSAGE], key))
        except MerlotError as error:
            _LOG.warning("event cannot be written reason=%s cause=%s", reason, error)

    def _event(self, about: Object, event_type: str, reason: str, message: str, key: str) -> dict[str, Any]:
        now_ms = self._clock.now_ms()
        time = timestamp(now_ms)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name_of(about)}.{key[:8]}{now_ms:x}", "namespace": namespace_of(about)},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": name_of(about),
                "namespace": namespace_of(about),
                "uid": about["metadata"]["uid"],
                "resourceVersion": about["metadata"]["resourceVersion"],
            },
            "type": event_type,
            "reason": reason,
            "message": message,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }


def timestamp(now_ms: int) -> str:
    """Return an RFC 3339 time to the second, as Kubernetes writes times."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp_or_none(millis: int | None) -> str | None:
    """Return the timestamp of a time that a controller reports; None if it is unknown, or not in the years 1970 to
    9999."""
    return timestamp(millis) if millis is not None and 0 <= millis < END_MS else None


def ms_of(text: str) -> int:
    """Parse a time that Kubernetes wrote; return epoch milliseconds."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)
