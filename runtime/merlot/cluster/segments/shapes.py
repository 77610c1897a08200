"""Check that published segments were built for the table as it is applied. Pure.

A builder has its own copy of the manifest. Its segments are compared with the table here, the only place that knows
both. If a publisher sends no shape, records are compared by columns, days and partitions.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.batch_names import BatchSegment, division_of
from merlot.cluster.segments.publish import PublishRequest
from merlot.ids import RawTableName
from merlot.spec import shape
from merlot.spec.evolution import can_widen
from merlot.spec.shape import ShapeError
from merlot.spec.table import TableSpec
from merlot.values.periods import DAY_MS
from merlot.values.types import TypeName

_EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY: Final = (date.min - _EPOCH).days


def check_shape(table: str, spec: TableSpec, request: PublishRequest) -> None:
    """Raise ShapeError, which names the field, if the table would read the segments of a request as something else, or
    if they have rows that other segments of the table have too."""
    if request.shape is not None:
        shape.check(shape.shape_of(spec), request.shape, table=table, what="the manifest that segments were built by")
    if not request.entry and not request.is_recovery:
        for record in request.records:
            _check_batch_segment(RawTableName(table), spec, record)
    seen: set[str] = set()
    for record in request.records:
        if record.columns not in seen:
            seen.add(record.columns)
            for field in spec.table_schema.fields:
                stored = record.column_types.get(field.name)
                if stored is not None and not (can_widen(stored[0], field.type) and stored[1] == field.multi_value):
                    raise ShapeError(
                        f"segment has a column that cannot be read as the applied table's table={table} "
                        f"segment={record.name} column={field.name} applied={_text(field.type, field.multi_value)} "
                        f"segment's={_text(*stored)}; build it by the table's own manifest (GET /tables/NAME/manifest)"
                    )


def _check_batch_segment(table: RawTableName, spec: TableSpec, record: SegmentRecord) -> None:
    """Check a segment whose name has the form of a batch's. Rows of other days, or under another partitioning, would be
    in the table twice once a batch publishes them in its own segments."""
    segment = BatchSegment.of(table, record)
    if segment is None:
        return
    applied = division_of(spec.partitioning)
    if segment.division.is_other(applied):
        raise _other(table, record, "spec.partitioning", applied, segment.division)
    if segment.day is not None and spec.time_column is None:
        raise _other(table, record, "spec.timeColumn", shape.ABSENT, "set")
    if segment.day is None and spec.time_column is not None and record.total_docs and record.start_time_ms is None:
        raise _other(table, record, "spec.timeColumn", spec.time_column, shape.ABSENT)
    if segment.day is not None and record.start_time_ms is not None and record.end_time_ms is not None:
        days = spec.ingestion.days_per_segment
        times = (record.start_time_ms, record.end_time_ms)
        first, last = (max(ms // DAY_MS // days * days, _FIRST_DAY) for ms in times)
        if not first == last == (segment.day - _EPOCH).days:
            held = f"days {record.start_time_ms // DAY_MS} to {record.end_time_ms // DAY_MS} since 1970"
            raise _other(table, record, "spec.ingestion.daysPerSegment", days, held)


def _other(table: str, record: SegmentRecord, path: str, applied: object, actual: object) -> ShapeError:
    return ShapeError(
        f"segment does not hold the rows that its name says in the applied table table={table} segment={record.name} "
        f"{path}: applied {applied} and here {actual}; build it by the table's own manifest "
        "(GET /tables/NAME/manifest)"
    )


def _text(type_: TypeName, is_list: bool) -> str:
    return f"{type_}[]" if is_list else str(type_)
