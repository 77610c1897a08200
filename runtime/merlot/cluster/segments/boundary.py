"""Time boundary of a hybrid table: rows before it are the batches', rows from it on the stream's. Pure.

The root of the table's segments holds it, so that all brokers have the same boundary. The controller raises it when
servers have loaded all that batches have before it. If batches lose their newest segments, readers lower it at once,
without a write: no reader uses a boundary above what `lowered` allows for the present segments (ADR 30).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Final

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.parts import is_of_stream
from merlot.spec.table import TableSpec
from merlot.values.datetime_format import EpochFormat

BEFORE_ALL: Final = -(1 << 62)
"""Boundary while batches have nothing yet: all rows are the stream's."""


class TimeSplit(IntEnum):
    """Rows of a segment that a query sees."""

    ALL = 0
    BEFORE = 1
    """Rows before the boundary: of a batch's segment that reaches beyond it."""
    FROM = 2
    """Rows from the boundary on: of a stream's segment that begins before it."""
    HIDDEN = 3
    """No rows: the other part of the table answers for its time."""


@dataclass(frozen=True, slots=True)
class BoundaryRule:
    """Rule by which the boundary follows from the batches' segments. `step_ms` is the resolution of the time column."""

    column: str
    unit_ms: int
    step_ms: Fraction = Fraction(1)

    @classmethod
    def of(cls, spec: TableSpec) -> BoundaryRule | None:
        """Return the rule of a hybrid table; None for any other table."""
        declared = spec.ingestion.time_boundary
        if declared is None or spec.time_column is None:
            return None
        field = spec.table_schema.field(spec.time_column)
        assert field is not None, "a manifest names a column of its schema"
        step_ms = field.time_format.step_ms if isinstance(field.time_format, EpochFormat) else Fraction(1)
        return cls(field.name, declared.unit_ms, step_ms)

    def target(self, records: Iterable[SegmentRecord], now_ms: int) -> int:
        """Return where the boundary belongs by these segments: the last unit that batches reach into is the stream's.

        Segments in the future do not count: one row with a wrong time would hide all rows of the stream."""
        latest_ms = now_ms + self.unit_ms
        ends = [record.newest_ms for record in records if not is_of_stream(record) and record.newest_ms is not None]
        newest_ms = max((end for end in ends if end <= latest_ms), default=None)
        if newest_ms is None:
            return BEFORE_ALL
        return newest_ms - newest_ms % self.unit_ms

    def lowered(self, boundary_ms: int, records: Iterable[SegmentRecord], now_ms: int) -> int:
        """Return the boundary, lowered to what these segments allow."""
        return min(boundary_ms, self.target(records, now_ms))

    def value(self, boundary_ms: int) -> int:
        """Return the boundary in the time column's own unit."""
        return boundary_ms // self.step_ms


def time_split(record: SegmentRecord, boundary_ms: int, *, is_known: bool = True) -> TimeSplit:
    """Return which rows of a segment a query sees. `is_known`: the record describes exactly the rows that are
    queried."""
    start_ms = record.start_time_ms if is_known and not record.is_open else None
    end_ms = record.end_time_ms if is_known and not record.is_open else None
    if is_of_stream(record):
        if boundary_ms == BEFORE_ALL or (start_ms is not None and start_ms >= boundary_ms):
            return TimeSplit.ALL
        return TimeSplit.HIDDEN if end_ms is not None and end_ms < boundary_ms else TimeSplit.FROM
    if boundary_ms == BEFORE_ALL or (start_ms is not None and start_ms >= boundary_ms):
        return TimeSplit.HIDDEN
    return TimeSplit.ALL if end_ms is not None and end_ms < boundary_ms else TimeSplit.BEFORE
