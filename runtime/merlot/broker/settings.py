"""Settings of a broker that a deployment may tune. Everything else is a constant where it is used (ADR 27)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PLAN_CACHE_BYTES: Final = 8_000_000
MOST_STAGE_MEMORY_BYTES: Final = 512_000_000
STAGES_SHARE: Final = 2
"""Divisor of the process's memory that gives the memory for all queries of several stages that run at a time."""
STAGE_SPILL_BYTES: Final = 2_000_000_000
QUERY_LOG_FORMS: Final = 500
QUERY_LOG_SAMPLES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Bounds of the work on a broker's event loop, and of what the broker keeps in memory."""

    inline_values: int = 20_000
    """Larger partial answers, by rows times columns or by bytes, are reduced in a thread, so that other queries go
    on."""
    plan_cache_bytes: int = PLAN_CACHE_BYTES
    """Bytes of all cached texts and encoded plans together: a tree takes some twenty times as much."""
    stage_queries: int = 2
    """Queries of several stages that run at a time; others wait."""
    stage_memory_bytes: int | None = None
    """Memory of a query of several stages for the answers of its leaves, and as much again for what is computed from
    them; None: derived from the process's memory."""
    stage_spill_bytes: int = STAGE_SPILL_BYTES
    """Disk space of such a query, once its memory is full."""
    query_log_forms: int = QUERY_LOG_FORMS
    """Forms of queries that are logged for `merlot advise`: queries that differ in constants only have one form. 0:
    none."""
    query_log_samples: int = QUERY_LOG_SAMPLES
    """Texts, constants included, that are logged of each form; 0: none, so that no constant is kept."""


def stage_memory_bytes(settings: BrokerSettings, total_bytes: int) -> int:
    """Return the memory that the leaves of one query may take, in a process that may use `total_bytes`; its engine may
    take as much again. Pure."""
    if settings.stage_memory_bytes is not None:
        return settings.stage_memory_bytes
    return min(MOST_STAGE_MEMORY_BYTES, total_bytes // STAGES_SHARE // (2 * settings.stage_queries))
