"""Metrics and logs: every metric's name in one place, and one set-up for logs.

Roles of one process share the registry, so a name says its role: `merlot_server_…`. Counters and histograms may be
touched from any thread. Pinot's dashboards read other names (`pinot_broker_queries_Count`); an exporter can add those
as aliases.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Final, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from merlot.uris import redact

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
TRACEBACK_EVERY_S: Final = 60.0
"""Time between two tracebacks of the same kind of error from the same place."""

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_FAST_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SLOW_S: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300)

BROKER_QUERIES: Final = Counter(
    "merlot_broker_queries",
    "Queries answered, by table and first error code (0: none)",
    ["table", "code"],
    registry=REGISTRY,
)
BROKER_QUERY_SECONDS: Final = Histogram(
    "merlot_broker_query_seconds", "From request to answer", ["table"], buckets=_FAST_S, registry=REGISTRY
)
BROKER_RETRIES: Final = Counter(
    "merlot_broker_retries", "Calls repeated on another replica", ["table"], registry=REGISTRY
)
BROKER_UNKNOWN_PRUNERS: Final = Gauge(
    "merlot_broker_unknown_pruners",
    "Pruners that a table names and this version lacks: its segments are not pruned while this is not 0",
    ["table"],
    registry=REGISTRY,
)
BROKER_UNREADABLE_PRUNING: Final = Gauge(
    "merlot_broker_segments_unreadable_pruning",
    "Segments never pruned because their records' bounds or partitions cannot be read",
    ["table"],
    registry=REGISTRY,
)
BROKER_PRUNER_FAILURES: Final = Counter(
    "merlot_broker_pruner_failures",
    "Answers of packages' pruners that were an error or no mask: nothing was pruned by them",
    ["table", "pruner"],
    registry=REGISTRY,
)

KERNEL_COMPILATIONS: Final = Counter(
    "merlot_kernel_compilations",
    "Kernels compiled by this process, not counting those loaded from disk: a query waits for each",
    ["kernel"],
    registry=REGISTRY,
)

SERVER_QUERIES: Final = Counter(
    "merlot_server_queries",
    "Requests of brokers, by table and error code (0: none)",
    ["table", "code"],
    registry=REGISTRY,
)
SERVER_QUERY_SECONDS: Final = Histogram(
    "merlot_server_query_seconds",
    "From request to answer, waiting included",
    ["table"],
    buckets=_FAST_S,
    registry=REGISTRY,
)
SERVER_WAIT_SECONDS: Final = Histogram(
    "merlot_server_wait_seconds", "Time that requests waited for a thread", buckets=_FAST_S, registry=REGISTRY
)
SERVER_RUNNING: Final = Gauge("merlot_server_running_queries", "Requests running now", registry=REGISTRY)
SERVER_WAITING: Final = Gauge("merlot_server_waiting_queries", "Requests waiting for a thread", registry=REGISTRY)
SERVER_SEGMENTS: Final = Gauge(
    "merlot_server_segments",
    "Segments by table and state: loaded, failed, loading, retired",
    ["table", "state"],
    registry=REGISTRY,
)
SERVER_LOADS: Final = Counter(
    "merlot_server_segment_loads",
    "Segments brought in, by where from: disk, deep store",
    ["table", "source"],
    registry=REGISTRY,
)
SERVER_LOAD_FAILURES: Final = Counter(
    "merlot_server_segment_load_failures",
    "Attempts that failed, by family of error",
    ["table", "error"],
    registry=REGISTRY,
)
SERVER_LOAD_SECONDS: Final = Histogram(
    "merlot_server_segment_load_seconds", "Fetch, verify and map one segment", buckets=_SLOW_S, registry=REGISTRY
)
SERVER_INDEX_BUILD_SECONDS: Final = Histogram(
    "merlot_server_index_build_seconds",
    "Make the indexes and star-trees that one segment lacks",
    buckets=_SLOW_S,
    registry=REGISTRY,
)
SERVER_INDEX_FAILURES: Final = Counter(
    "merlot_server_index_failures",
    "Indexes of a segment that could not be made, or turned out damaged",
    ["table"],
    registry=REGISTRY,
)
SERVER_QUARANTINED: Final = Counter(
    "merlot_server_segments_quarantined", "Local files found corrupt and set aside", ["table"], registry=REGISTRY
)
SERVER_MISSING: Final = Counter(
    "merlot_server_segments_missing", "Segment versions that brokers asked for in vain", ["table"], registry=REGISTRY
)

STREAM_ROWS: Final = Gauge(
    "merlot_stream_rows_consumed", "Rows since the server began", ["table", "partition"], registry=REGISTRY
)
STREAM_BAD: Final = Gauge(
    "merlot_stream_bad_messages",
    "Messages since the server began that are no rows of the table",
    ["table", "partition"],
    registry=REGISTRY,
)
STREAM_MISPLACED: Final = Gauge(
    "merlot_stream_misplaced_rows",
    "Rows of upsert tables since the server began that are in another partition than the table declares",
    ["table", "partition"],
    registry=REGISTRY,
)
STREAM_LAG: Final = Gauge(
    "merlot_stream_lag",
    "Messages, or bytes of files, that the stream has and the server has not read",
    ["table", "partition"],
    registry=REGISTRY,
)
STREAM_LAG_SECONDS: Final = Gauge(
    "merlot_stream_lag_seconds",
    "Age of the last message that was read, while there are others behind it",
    ["table", "partition"],
    registry=REGISTRY,
)
STREAM_COMMITS: Final = Counter(
    "merlot_stream_commits",
    "Segments sealed, by what became of them: committed, other, gone; differs: rows other than the committed ones",
    ["table", "outcome"],
    registry=REGISTRY,
)
STREAM_COMMIT_SECONDS: Final = Histogram(
    "merlot_stream_commit_seconds", "Seal, upload and commit one segment", buckets=_SLOW_S, registry=REGISTRY
)
UPSERT_SNAPSHOTS: Final = Counter(
    "merlot_upsert_snapshots",
    "Snapshots of valid docs that checkpoints have named in the records",
    ["table"],
    registry=REGISTRY,
)
UPSERT_SNAPSHOT_FAILURES: Final = Counter(
    "merlot_upsert_snapshot_failures",
    "Checkpoints that could not be kept, or not be read, by family of error",
    ["table", "error"],
    registry=REGISTRY,
)
STREAM_FAILURES: Final = Counter(
    "merlot_stream_failures", "What failed while consuming, by family of error", ["table", "error"], registry=REGISTRY
)
STREAM_GAPS: Final = Counter(
    "merlot_stream_gaps",
    "Times that messages were gone from the stream before they were read",
    ["table"],
    registry=REGISTRY,
)

UPSERT_KEYS: Final = Gauge(
    "merlot_upsert_keys", "Primary keys that are remembered", ["table", "partition"], registry=REGISTRY
)
UPSERT_BYTES: Final = Gauge(
    "merlot_upsert_index_bytes",
    "Memory of the keys and of the bits of valid rows",
    ["table", "partition"],
    registry=REGISTRY,
)
UPSERT_MEMORY_LIMIT: Final = Gauge(
    "merlot_upsert_memory_limit_bytes", "Memory that the server's process may take", registry=REGISTRY
)
UPSERT_MEMORY_NEEDED: Final = Gauge(
    "merlot_upsert_memory_needed_bytes",
    "Memory that the process takes, with room for its keys to grow: above the limit, it will be killed",
    registry=REGISTRY,
)

CONTROLLER_PASSES: Final = Counter(
    "merlot_controller_passes",
    "Passes over a table by outcome: changed, unchanged, failed",
    ["outcome"],
    registry=REGISTRY,
)
CONTROLLER_IS_LEADER: Final = Gauge("merlot_controller_is_leader", "1 while this controller decides", registry=REGISTRY)
CONTROLLER_MERGE_DELAY: Final = Gauge(
    "mergeRollupTaskDelayInNumBuckets",
    "Buckets between the first one to merge and the last one that could be merged by now",
    ["table", "level"],
    registry=REGISTRY,
)
CONTROLLER_MERGE_TO_DO: Final = Gauge(
    "merlot_controller_merge_buckets_to_do", "Buckets that wait to be merged", ["table", "level"], registry=REGISTRY
)
CONTROLLER_MERGE_WATERMARK: Final = Gauge(
    "merlot_controller_merge_watermark_seconds",
    "Start of the bucket that was begun last, Unix time",
    ["table", "level"],
    registry=REGISTRY,
)
CONTROLLER_MERGE_LATE: Final = Gauge(
    "merlot_controller_merge_late_segments",
    "Segments behind the watermark that no merge of this level takes",
    ["table", "level"],
    registry=REGISTRY,
)
CONTROLLER_MERGE_QUEUE: Final = Gauge(
    "merlot_controller_merge_queue",
    "Merge tasks by state: QUEUED (waiting or running), POISONED (set aside), CANCELLED (being undone)",
    ["table", "level", "state"],
    registry=REGISTRY,
)
CONTROLLER_MERGE_TASKS: Final = Counter(
    "merlot_controller_merge_tasks", "Merge tasks queued", ["table", "level"], registry=REGISTRY
)

TLS_CERTIFICATE_SECONDS: Final = Gauge(
    "merlot_tls_certificate_seconds_left", "Seconds until the certificate ends", ["file"], registry=REGISTRY
)
TLS_RELOADS: Final = Counter(
    "merlot_tls_reloads",
    "Changes of certificate files, by outcome: taken, failed (the former ones stay)",
    ["outcome"],
    registry=REGISTRY,
)
TLS_FAILURES: Final = Counter(
    "merlot_tls_handshake_failures",
    "Connections that ended before TLS was agreed on, by port: http, frames",
    ["port"],
    registry=REGISTRY,
)

MINION_TASKS: Final = Counter(
    "merlot_minion_tasks", "Tasks run, by kind and outcome", ["kind", "outcome"], registry=REGISTRY
)
MINION_TASK_SECONDS: Final = Histogram(
    "merlot_minion_task_seconds", "From taking a task to leaving it", ["kind"], buckets=_SLOW_S, registry=REGISTRY
)
MINION_RUNNING: Final = Gauge("merlot_minion_running_tasks", "Tasks running now", ["kind"], registry=REGISTRY)
MINION_QUEUED: Final = Gauge(
    "merlot_minion_queued_tasks", "Tasks in the queue when this minion last looked", ["kind"], registry=REGISTRY
)
MINION_ROWS: Final = Counter("merlot_minion_merged_rows", "Rows read by merges", ["table"], registry=REGISTRY)


class _Caches(Collector):
    """Collector that reads the statistics of caches when metrics are collected."""

    def __init__(self) -> None:
        self.stats: dict[str, Callable[[], Mapping[str, int]]] = {}

    def collect(self) -> Iterator[Metric]:
        stats_of = {cache: stats() for cache, stats in self.stats.items()}
        for name, text in _CACHE_GAUGES.items():
            gauge = GaugeMetricFamily(f"merlot_server_cache_{name}", text, labels=["cache"])
            for cache, stats in stats_of.items():
                gauge.add_metric([cache], stats[name])
            yield gauge
        for name, text in _CACHE_COUNTERS.items():
            counter = CounterMetricFamily(f"merlot_server_cache_{name}", text, labels=["cache"])
            for cache, stats in stats_of.items():
                counter.add_metric([cache], stats[name])
            yield counter


_CACHE_GAUGES: Final = {
    "bytes": "Memory that a cache takes",
    "capacity_bytes": "Memory that it may take",
    "entries": "Arrays or sets of segments that it holds",
}
_CACHE_COUNTERS: Final = {
    "hits": "Lookups that found what they asked for",
    "misses": "Lookups that did not",
    "evictions": "Entries dropped to keep to the bound",
}
_CACHES: Final = _Caches()
REGISTRY.register(_CACHES)


def watch_cache(name: str, stats: Callable[[], Mapping[str, int]]) -> None:
    """Add a cache to the metrics: its bytes, bound, entries, hits, misses and evictions."""
    _CACHES.stats[name] = stats


def render_metrics() -> bytes:
    """Return all metrics in Prometheus' text format, of type `CONTENT_TYPE`."""
    return generate_latest(REGISTRY)


class LogFormat(StrEnum):
    """LINE for people, JSON for collectors."""

    LINE = "line"
    JSON = "json"


class _LineFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO server.loader segment loaded segment=…`; tracebacks on lines of their own. UTC."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(short_name)s %(message)s")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        record.short_name = record.name.removeprefix("merlot.")
        return redact(super().format(record))


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def __init__(self, facts: dict[str, str]) -> None:
        super().__init__()
        self._facts = facts

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "ts": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            **self._facts,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps({name: redact(text) for name, text in entry.items()}, ensure_ascii=False)


class _SparingHandler(logging.StreamHandler[TextIO]):
    """Handler that writes the traceback of errors from one place now and then only: a bug that every query meets must
    not fill a disk.

    The line itself is always written: users are told to look for their request in it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._shown_at: dict[tuple[str, int, type[BaseException] | None], float] = {}

    def format(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return super().format(record)
        place = (record.pathname, record.lineno, record.exc_info[0])
        if record.created - self._shown_at.get(place, float("-inf")) >= TRACEBACK_EVERY_S:
            self._shown_at[place] = record.created
            return super().format(record)
        spared = copy.copy(record)
        spared.msg, spared.args = f"{record.getMessage()} error={record.exc_info[1]!r:.500}", None
        spared.exc_info = spared.exc_text = None
        return super().format(spared)


_QUIET: Final = ("kazoo", "aiohttp.access", "asyncio", "numba", "botocore", "py4j")


def configure_logging(
    level: str = "INFO", log_format: LogFormat = LogFormat.LINE, *, stream: TextIO | None = None, **facts: str
) -> None:
    """Send all logs to `stream` (stderr). `facts`, e.g. role and instance, go into every JSON line."""
    handler = _SparingHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(facts) if log_format is LogFormat.JSON else _LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
