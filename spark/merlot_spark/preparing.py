"""Executor side before the shuffle: conform, count and group source rows.

Counts travel as rows, one per task, so that they are exact when Spark retries a task.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from merlot.ingest import grouping, transform
from merlot.ingest.bad_rows import BadRows
from merlot.spec import manifest
from merlot.spec.table import Table
from merlot_spark import parcels
from merlot_spark.expressions import JudgedRows

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(slots=True)
class TaskCounts:
    """Counts of the rows of some tasks. Every source row is in exactly one of `outside`, `filtered`, `bad` and the rows
    that were grouped."""

    rows_in: int = 0
    outside: int = 0
    """Rows whose time is not in the requested window."""
    filtered: int = 0
    """Good rows that do not pass the filter."""
    bad: BadRows = field(default_factory=BadRows)
    cut: Counter[str] = field(default_factory=Counter)
    """Texts cut to the column's maxLength, by column."""
    seen: set[str] = field(default_factory=set)
    """Columns that rows of the source were seen to have."""

    def __add__(self, other: TaskCounts) -> TaskCounts:
        return TaskCounts(
            rows_in=self.rows_in + other.rows_in,
            outside=self.outside + other.outside,
            filtered=self.filtered + other.filtered,
            bad=self.bad + other.bad,
            cut=self.cut + other.cut,
            seen=self.seen | other.seen,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON, for the way from an executor to the driver."""
        return {
            "rowsIn": self.rows_in,
            "outside": self.outside,
            "filtered": self.filtered,
            "bad": self.bad.to_json(),
            "cut": self.cut,
            "seen": sorted(self.seen),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TaskCounts:
        """Return the counts from the JSON of `to_json`."""
        return cls(
            rows_in=value["rowsIn"],
            outside=value["outside"],
            filtered=value["filtered"],
            bad=BadRows.from_json(value["bad"]),
            cut=Counter(value["cut"]),
            seen=set(value["seen"]),
        )


@functools.lru_cache(maxsize=4)
def read_table(manifest_text: str) -> Table:
    """Return the table of a manifest (the JSON of `manifest.dump`), parsed once per worker."""
    return manifest.from_stored(json.loads(manifest_text))


@dataclass(frozen=True, kw_only=True)
class PrepareTask:
    """Input of an executor that prepares rows: plain data, since it travels in the task."""

    manifest_text: str
    num_tasks: int
    """Number of tasks that build from the prepared rows."""
    window: transform.Window | None = None
    """Window of time; rows outside are left out."""


def prepare(batches: Iterable[JudgedRows], task: PrepareTask) -> Iterator[pa.RecordBatch]:
    """Turn source rows into parcels, and a last row with the counts of the task."""
    table = read_table(task.manifest_text)
    packer = parcels.Packer(parcels.rows_schema(table), len(parcels.key_names(table)), task.num_tasks)
    counts = TaskCounts()
    for judged in batches:
        grouped, batch_counts = _prepared(judged, table, task.window)
        counts += batch_counts
        yield from packer.add(grouped)
    yield from packer.pack()
    yield parcels.counts_row(json.dumps(counts.to_json()))


def _prepared(judged: JudgedRows, table: Table, window: transform.Window | None) -> tuple[grouping.Grouped, TaskCounts]:
    conformed, num_outside = transform.inside(transform.conform(judged.rows, table.spec), window)
    grouped = grouping.group(conformed, table.spec)
    counts = TaskCounts(
        rows_in=judged.num_rows,
        outside=num_outside,
        bad=judged.bad + grouped.bad,
        cut=Counter(conformed.cut),
        seen=set(judged.rows.column_names),
    )
    if judged.dropped is not None and judged.dropped.num_rows:
        # Filtered rows are conformed like all others: a bad row is counted, whatever the filter says.
        dropped = transform.conform(judged.dropped, table.spec)
        counts.bad += dropped.bad
        counts.filtered = dropped.rows.num_rows
    return grouped, counts
