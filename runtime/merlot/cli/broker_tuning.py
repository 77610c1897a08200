"""Options that tune a broker, the same in `merlot serve` and in a process of its own (ADR 27)."""

from __future__ import annotations

from typing import Annotated

from merlot.broker.settings import BrokerSettings
from merlot.cli.tuning import option, size_option

DEFAULTS = BrokerSettings()


def of_broker(
    *,
    inline_values: Annotated[
        int,
        option("--inline-values", "Values of partial answers up to which a broker reduces without a thread.", least=0),
    ] = DEFAULTS.inline_values,
    plan_cache: Annotated[
        int | None,
        size_option(
            "--plan-cache",
            "Texts and encoded plans that a broker remembers; they take twenty times that in memory.",
            default="8 MB",
        ),
    ] = None,
    stage_queries: Annotated[
        int, option("--stage-queries", "Queries of several stages (joins, windows) that a broker runs at a time.")
    ] = DEFAULTS.stage_queries,
    stage_memory: Annotated[
        int | None,
        size_option(
            "--stage-memory",
            "Memory of such a query for its leaves, and as much again for its engine.",
            default="an eighth of it, 512 MB at most",
        ),
    ] = None,
    stage_spill: Annotated[
        int | None,
        size_option("--stage-spill", "Disk that such a query may take once its memory is full.", default="2 GB"),
    ] = None,
    query_log: Annotated[
        int,
        option("--query-log", "Queries that a broker remembers for `merlot advise`; 0 for none.", least=0),
    ] = DEFAULTS.query_log_forms,
    query_log_samples: Annotated[
        int,
        option("--query-log-samples", "Texts kept of each such query; with 0, no constant is kept.", least=0),
    ] = DEFAULTS.query_log_samples,
) -> BrokerSettings:
    """Return the broker's settings from the options of a command."""
    return BrokerSettings(
        inline_values=inline_values,
        plan_cache_bytes=plan_cache or DEFAULTS.plan_cache_bytes,
        stage_queries=stage_queries,
        stage_memory_bytes=stage_memory,
        stage_spill_bytes=stage_spill or DEFAULTS.stage_spill_bytes,
        query_log_forms=query_log,
        query_log_samples=query_log_samples,
    )
