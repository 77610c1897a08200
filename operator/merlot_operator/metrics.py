"""Metrics of the operator, served as `/metrics` beside `/healthz` and `/readyz`."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from merlot.telemetry import REGISTRY

PASSES: Final = Counter("merlot_operator_passes", "Passes over one object", ["subject"], registry=REGISTRY)
FAILURES: Final = Counter(
    "merlot_operator_failed_passes", "Passes that will be repeated", ["subject", "cause"], registry=REGISTRY
)
PASS_SECONDS: Final = Histogram(
    "merlot_operator_pass_seconds", "Duration of a pass", ["subject"], buckets=(0.01, 0.1, 1, 10), registry=REGISTRY
)
QUEUE: Final = Gauge("merlot_operator_queue", "Objects that wait for their next pass", registry=REGISTRY)
SERVED: Final = Gauge(
    "merlot_operator_namespace_served",
    "1: served; 0: left out for want of rights",
    ["served_namespace"],
    registry=REGISTRY,
)
WRITES: Final = Gauge("merlot_operator_writes", "Requests to the API server that change something", registry=REGISTRY)
