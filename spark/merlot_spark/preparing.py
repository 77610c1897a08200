"""What executors do to source rows before they are shuffled: conform, count and group them.

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
from merlot_spark.expressions import Judged

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(slots=True)
class Counts:
    """What became of the rows of some tasks; every source row is in exactly one of `outside`, `filtered`, `bad` and the
    rows that were grouped."""

    rows_in: int = 0
    outside: int = 0
    """Rows whose time is not in the window that was asked for."""
    filtered: int = 0
    """Good rows that the filter leaves out."""
    bad: BadRows = field(default_factory=BadRows)
    cut: Counter[str] = field(default_factory=Counter)
    """Texts cut to the column's maxLength, by column."""
    seen: set[str] = field(default_factory=set)
    """Columns that the source has, as far as rows tell."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            rows_in=self.rows_in + other.rows_in,
            outside=self.outside + other.outside,
            filtered=self.filtered + other.filtered,
            bad=self.bad + other.bad,
            cut=self.cut + other.cut,
            seen=self.seen | other.seen,
        )

    def to_json(self) -> dict[str, Any]:
        """For the way from an executor to the driver."""
        return {
            "rowsIn": self.rows_in,
            "outside": self.outside,
            "filtered": self.filtered,
            "bad": self.bad.to_json(),
            "cut": self.cut,
            "seen": sorted(self.seen),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Counts:
        """Inverse of `to_json`."""
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
    """The table of a manifest (the JSON of `manifest.dump`), parsed once per worker."""
    return manifest.from_stored(json.loads(manifest_text))


@dataclass(frozen=True, kw_only=True)
class PrepareTask:
    """What an executor needs to prepare rows: plain data, since it travels in the task."""

    manifest_text: str
    num_tasks: int
    """How many tasks build what this one reads."""
    window: transform.Window | None = None
    """Rows beyond it are left out."""


def prepare(batches: Iterable[Judged], task: PrepareTask) -> Iterator[pa.RecordBatch]:
    """Source rows to parcels, and a last row with the counts of the task."""
    table = read_table(task.manifest_text)
    packer = parcels.Packer(parcels.rows_schema(table), len(parcels.key_names(table)), task.num_tasks)
    counts = Counts()
    for judged in batches:
        grouped, found = _prepared(judged, table, task.window)
        counts += found
        yield from packer.add(grouped)
    yield from packer.pack()
    yield parcels.counts_row(json.dumps(counts.to_json()))


def _prepared(judged: Judged, table: Table, window: transform.Window | None) -> tuple[grouping.Grouped, Counts]:
    conformed, num_outside = transform.inside(transform.conform(judged.rows, table.spec), window)
    grouped = grouping.group(conformed, table.spec)
    counts = Counts(
        rows_in=judged.num_rows,
        outside=num_outside,
        bad=judged.bad + grouped.bad,
        cut=Counter(conformed.cut),
        seen=set(judged.rows.column_names),
    )
    if judged.dropped is not None and judged.dropped.num_rows:
        # They are brought to the schema like all others: a row that is bad is counted, whatever the filter says.
        dropped = transform.conform(judged.dropped, table.spec)
        counts.bad += dropped.bad
        counts.filtered = dropped.rows.num_rows
    return grouped, counts
