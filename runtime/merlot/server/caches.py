"""A server's caches: their bounds, out of the memory that its process may take, and what they tell of themselves.

They are the process's, since segments are: roles of one process share them, and the server sets their bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from merlot import memory, telemetry
from merlot.query.shortcuts import joined_segments
from merlot.segment import buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """Bounds in bytes."""

    decoded_bytes: int | None = None
    """Columns decoded from files; None: a quarter of the memory."""
    joined_bytes: int | None = None
    """Small segments joined in memory; None: an eighth of the memory, 512 MiB at most."""


def set_bounds(config: CacheConfig) -> None:
    """Have the caches keep to their bounds from now on."""
    total = memory.total_bytes()
    decoded = total // 4 if config.decoded_bytes is None else config.decoded_bytes
    joined = joined_segments.default_bytes(total) if config.joined_bytes is None else config.joined_bytes
    buffers.DECODE_CACHE.resize(decoded)
    joined_segments.BATCH_CACHE.resize(joined)


telemetry.watch_cache("decoded", buffers.DECODE_CACHE.stats)
telemetry.watch_cache("joined", joined_segments.BATCH_CACHE.stats)
