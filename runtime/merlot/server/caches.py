"""Caches of a server: their bounds, as shares of the process's memory, and their metrics.

Caches belong to the process, since segments do: roles of one process share them, and the server sets their bounds.
"""

from __future__ import annotations

from merlot import memory, telemetry
from merlot.query.shortcuts import coalesced_segments
from merlot.segment import buffers
from merlot.segment.immutable import keep_opened
from merlot.server.settings import ServerSettings


def set_bounds(settings: ServerSettings) -> None:
    """Set the bounds of the caches from now on."""
    total = memory.total_bytes()
    decoded = total // 4 if settings.decoded_bytes is None else settings.decoded_bytes
    joined = coalesced_segments.default_bytes(total) if settings.coalesced_bytes is None else settings.coalesced_bytes
    buffers.DECODE_CACHE.resize(decoded)
    coalesced_segments.BATCH_CACHE.resize(joined)
    keep_opened(settings.open_segments)


telemetry.watch_cache("decoded", buffers.DECODE_CACHE.stats)
telemetry.watch_cache("joined", coalesced_segments.BATCH_CACHE.stats)
