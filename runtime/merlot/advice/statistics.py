"""What segments' footers say of their columns, taken together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merlot.segment.metadata import ColumnMetadata, JsonValue, SegmentMetadata
from merlot.values.types import TypeName


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
