"""What a broker counts. One registry per broker, so that several in one process do not collide."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from merlot.broker.response import BrokerAnswer

_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class BrokerMetrics:
    """Counters by table and error code; times in seconds."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._queries = Counter("merlot_broker_queries", "Queries answered", ["table"], registry=self.registry)
        self._errors = Counter(
            "merlot_broker_query_exceptions", "Answers with exceptions, by the first one's code", ["code"],
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "merlot_broker_query_seconds", "Time from request to answer", registry=self.registry, buckets=_BUCKETS_S
        )
        self.running = Gauge("merlot_broker_queries_running", "Queries under way", registry=self.registry)

    def observe(self, answer: BrokerAnswer, elapsed_s: float) -> None:
        """Count one answer."""
        self._queries.labels(answer.tables[0] if answer.tables else "").inc()
        self._seconds.observe(elapsed_s)
        if answer.exceptions:
            self._errors.labels(str(answer.error_code)).inc()

    def to_text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)
