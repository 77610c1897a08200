"""What segments' footers say of their columns, taken together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

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
"""The least that each may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """One column over some segments."""

    type: TypeName
    multi_value: bool = False
    cardinality: int
    """Distinct values of the segment that has most; its rows, where none were counted."""
    is_sorted: bool = False
    """Within each segment."""
    has_nulls: bool = False
    min: JsonValue | None = None
    max: JsonValue | None = None
    stored_bytes: int = 0
    """Decoded, of all segments."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Some segments of a table."""

    num_docs: int
    docs_each: float
    """Of a segment, on average."""
    columns: dict[str, ColumnFacts]


def statistics(segments: Sequence[SegmentMetadata]) -> Statistics:
    """Of columns that every segment has."""
    segments = [one for one in segments if one.num_docs]
    num_docs = sum(one.num_docs for one in segments)
    if not segments:
        return Statistics(0, 0.0, {})
    names = set(segments[0].columns).intersection(*(one.columns for one in segments[1:]))
    columns = {name: _facts([(one.columns[name], one.num_docs) for one in segments]) for name in sorted(names)}
    return Statistics(num_docs, num_docs / len(segments), columns)


def _facts(parts: Sequence[tuple[ColumnMetadata, int]]) -> ColumnFacts:
    columns = [column for column, _ in parts]
    return ColumnFacts(
        type=columns[0].type,
        multi_value=any(one.multi_value for one in columns),
        cardinality=max(num_docs if one.cardinality is None else one.cardinality for one, num_docs in parts),
        is_sorted=all(one.is_sorted for one in columns),
        has_nulls=any(one.num_nulls for one in columns),
        min=min((one.min for one in columns if isinstance(one.min, int | float)), default=None),
        max=max((one.max for one in columns if isinstance(one.max, int | float)), default=None),
        stored_bytes=sum(_bytes(one) for one in columns),
    )


def _bytes(column: ColumnMetadata) -> int:
    return sum(ref.size for ref in column.buffers.values())


def with_derived(known: Statistics, derived: Iterable[Computed]) -> Statistics:
    """The same with what derived columns would be, which segments may not have yet."""
    columns = dict(known.columns)
    for one in derived:
        base, nanos = known.columns.get(one.derived.column), UNIT_NANOS.get(one.unit)
        if base is None or nanos is None or one.derived.name in columns:
            continue
        if isinstance(base.min, int) and isinstance(base.max, int):
            span_ms = (base.max - base.min) * nanos // NANOS_OF_MILLI
            cardinality = min(base.cardinality, span_ms // _GRANULARITY_MS[one.derived.granularity] + 2)
            columns[one.derived.name] = ColumnFacts(
                type=TypeName.LONG, cardinality=cardinality, is_sorted=base.is_sorted, has_nulls=base.has_nulls
            )
    return replace(known, columns=columns)
