"""What a deployment may tune of a broker. Everything else is a constant where it is used (ADR 27)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PLAN_CACHE_BYTES: Final = 8_000_000
MOST_STAGE_MEMORY_BYTES: Final = 512_000_000
STAGES_SHARE: Final = 2
"""Parts of the process's memory of which one is for all queries of several stages that run at a time."""
STAGE_SPILL_BYTES: Final = 2_000_000_000
QUERY_LOG_FORMS: Final = 500
QUERY_LOG_SAMPLES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Bounds of what it does on its event loop, and of what it remembers."""

    inline_values: int = 20_000
    """Partial answers of more, rows times columns, are reduced in a thread, so that other queries go on."""
    plan_cache_bytes: int = PLAN_CACHE_BYTES
    """Of all texts and encoded plans together: a tree takes some twenty times as much."""
    stage_queries: int = 2
    """Queries of more than one stage that run at a time; others wait."""
    stage_memory_bytes: int | None = None
    """Memory of one such query for the answers of its leaves, and as much again for what is computed from them; None:
    derived from the process's memory."""
    stage_spill_bytes: int = STAGE_SPILL_BYTES
    """Disk space of one such query, once its memory is full."""
    query_log_forms: int = QUERY_LOG_FORMS
    """Queries that are remembered for `merlot advise`, those that differ in constants counted as one; 0: none."""
    query_log_samples: int = QUERY_LOG_SAMPLES
    """Texts, constants included, that are kept of each; 0: none, so that no constant is kept."""


def stage_memory_bytes(settings: BrokerSettings, total_bytes: int) -> int:
    """Return how much memory the leaves of one query may take, and its engine as much again, in a process that may take
    `total_bytes`. Pure."""
    if settings.stage_memory_bytes is not None:
        return settings.stage_memory_bytes
    return min(MOST_STAGE_MEMORY_BYTES, total_bytes // STAGES_SHARE // (2 * settings.stage_queries))
