"""Statistics of a table's columns, from the footers of its segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from merlot.query.plan.derived import Computed
from merlot.segment.metadata import ColumnMetadata, JsonValue, SegmentMetadata
from merlot.spec.derived import Granularity
from merlot.values.periods import DAY_MS
from merlot.values.time_units import NANOS_OF_MILLI, UNIT_NANOS
from merlot.values.types import TypeName

_GRANULARITY_MS: Final = {
    Granularity.MILLISECOND: 1,
    Granularity.SECOND: 1000,
    Granularity.MINUTE: 60_000,
    Granularity.HOUR: 3_600_000,
    Granularity.DAY: DAY_MS,
    Granularity.WEEK: 7 * DAY_MS,
    Granularity.MONTH: 28 * DAY_MS,
    Granularity.QUARTER: 90 * DAY_MS,
    Granularity.YEAR: 365 * DAY_MS,
}
"""Shortest span of each granularity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """Statistics of one column over several segments."""

    type: TypeName
    multi_value: bool = False
    cardinality: int
    """Largest number of distinct values in a segment; its number of rows if they were not counted."""
    is_sorted: bool = False
    """True if every segment is sorted by it."""
    has_nulls: bool = False
    min: JsonValue | None = None
    max: JsonValue | None = None
    stored_bytes: int = 0
    """Bytes of its buffers in all segments, before compression."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of several segments of a table."""

    num_docs: int
    docs_each: float
    """Mean number of docs of a segment."""
    columns: dict[str, ColumnFacts]


def statistics(segments: Sequence[SegmentMetadata]) -> Statistics:
    """Return the statistics of the columns that every segment has. Empty segments are ignored."""
    segments = [segment for segment in segments if segment.num_docs]
    num_docs = sum(segment.num_docs for segment in segments)
    if not segments:
        return Statistics(0, 0.0, {})
    names = set(segments[0].columns).intersection(*(segment.columns for segment in segments[1:]))
    columns = {
        name: _facts([(segment.columns[name], segment.num_docs) for segment in segments]) for name in sorted(names)
    }
    return Statistics(num_docs, num_docs / len(segments), columns)


def _facts(parts: Sequence[tuple[ColumnMetadata, int]]) -> ColumnFacts:
    columns = [column for column, _ in parts]
    return ColumnFacts(
        type=columns[0].type,
        multi_value=any(column.multi_value for column in columns),
        cardinality=max(num_docs if column.cardinality is None else column.cardinality for column, num_docs in parts),
        is_sorted=all(column.is_sorted for column in columns),
        has_nulls=any(column.num_nulls for column in columns),
        min=min((column.min for column in columns if isinstance(column.min, int | float)), default=None),
        max=max((column.max for column in columns if isinstance(column.max, int | float)), default=None),
        stored_bytes=sum(map(_bytes, columns)),
    )


def _bytes(column: ColumnMetadata) -> int:
    return sum(ref.size * np.dtype(ref.dtype).itemsize for ref in column.buffers.values())


def with_derived(stored: Statistics, derived: Iterable[Computed]) -> Statistics:
    """Add estimated statistics of derived columns that the segments do not store."""
    columns = dict(stored.columns)
    for computed in derived:
        base, nanos = stored.columns.get(computed.derived.column), UNIT_NANOS.get(computed.unit)
        if base is None or nanos is None or computed.derived.name in columns:
            continue
        if isinstance(base.min, int) and isinstance(base.max, int):
            span_ms = (base.max - base.min) * nanos // NANOS_OF_MILLI
            cardinality = min(base.cardinality, span_ms // _GRANULARITY_MS[computed.derived.granularity] + 2)
            columns[computed.derived.name] = ColumnFacts(
                type=TypeName.LONG, cardinality=cardinality, is_sorted=base.is_sorted, has_nulls=base.has_nulls
            )
    return replace(stored, columns=columns)
