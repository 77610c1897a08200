"""Count and time queries by table; a query that names no known table counts under the empty name."""

from __future__ import annotations

import functools
from typing import Any

from merlot import telemetry
from merlot.broker.response import BrokerAnswer


def observe(answer: BrokerAnswer, elapsed_s: float) -> None:
    """Count an answer under the first of its tables, and observe the time that it took."""
    table = answer.tables[0] if answer.tables else ""
    code = answer.error_code if answer.exceptions else 0
    _counter(table, code).inc()
    _histogram(table).observe(elapsed_s)


def observe_retries(table: str, num_calls: int) -> None:
    """Count calls repeated on other replicas."""
    telemetry.BROKER_RETRIES.labels(table).inc(num_calls)


@functools.lru_cache(maxsize=1024)
def _counter(table: str, code: int) -> Any:
    """Return the counter of a table and code. Cached: looking it up costs more than counting."""
    return telemetry.BROKER_QUERIES.labels(table, str(code))


@functools.lru_cache(maxsize=1024)
def _histogram(table: str) -> Any:
    return telemetry.BROKER_QUERY_SECONDS.labels(table)
