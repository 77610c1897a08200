"""The time boundary of a hybrid table: rows before it are the batches', rows from it on the stream's. Pure.

The root of the table's segments holds it, so that all brokers have the same one. The controller moves it up when
servers have loaded all that batches have before it. Batches that lose their newest segments lower it at once, in every
reader's eyes, without a write: nobody goes by more than `lowered` allows for the segments that there are (ADR 30).
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
"""Batches have nothing yet: all rows are the stream's."""


class Cut(IntEnum):
    """Which rows of a segment a query sees."""

    ALL = 0
    BEFORE = 1
    """Those before the boundary: a batch's segment that reaches beyond it."""
    FROM = 2
    """Those from the boundary on: a stream's segment that begins before it."""
    HIDDEN = 3
    """None: the other part answers for its time."""


@dataclass(frozen=True, slots=True)
class BoundaryRule:
    """How the boundary follows from what batches have. `step_ms` is what the time column tells apart."""

    column: str
    unit_ms: int
    step_ms: Fraction = Fraction(1)

    @classmethod
    def of(cls, spec: TableSpec) -> BoundaryRule | None:
        """The rule of a hybrid table; None of any other."""
        declared = spec.ingestion.time_boundary
        if declared is None or spec.time_column is None:
            return None
        field = spec.table_schema.field(spec.time_column)
        assert field is not None, "a manifest names a column of its schema"
        step_ms = field.time_format.step_ms if isinstance(field.time_format, EpochFormat) else Fraction(1)
        return cls(field.name, declared.unit_ms, step_ms)

    def target(self, records: Iterable[SegmentRecord], now_ms: int) -> int:
        """Where the boundary belongs by these segments: the last unit that batches reach into is the stream's.

        Segments that lie in the future do not count: one row of a wrong time would hide all that the stream brings.
        """
        latest_ms = now_ms + self.unit_ms
        ends = [one.newest_ms for one in records if not is_of_stream(one) and one.newest_ms is not None]
        newest_ms = max((end for end in ends if end <= latest_ms), default=None)
        if newest_ms is None:
            return BEFORE_ALL
        return newest_ms - newest_ms % self.unit_ms

    def lowered(self, boundary_ms: int, records: Iterable[SegmentRecord], now_ms: int) -> int:
        """The boundary as these segments allow it."""
        return min(boundary_ms, self.target(records, now_ms))

    def value(self, boundary_ms: int) -> int:
        """The boundary in the time column's own unit."""
        return boundary_ms // self.step_ms


def cut(record: SegmentRecord, boundary_ms: int, *, is_known: bool = True) -> Cut:
    """What a query sees of a segment. `is_known`: whether its record tells of the rows that are asked for."""
    start_ms = record.start_time_ms if is_known and not record.is_open else None
    end_ms = record.end_time_ms if is_known and not record.is_open else None
    if is_of_stream(record):
        if boundary_ms == BEFORE_ALL or (start_ms is not None and start_ms >= boundary_ms):
            return Cut.ALL
        return Cut.HIDDEN if end_ms is not None and end_ms < boundary_ms else Cut.FROM
    if boundary_ms == BEFORE_ALL or (start_ms is not None and start_ms >= boundary_ms):
        return Cut.HIDDEN
    return Cut.ALL if end_ms is not None and end_ms < boundary_ms else Cut.BEFORE
