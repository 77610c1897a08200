"""Assign rows to segments and name the segments: one per partition and UTC day of the time column, or stretch of
`daysPerSegment` days.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pyarrow as pa

from merlot.ids import RawTableName, SegmentName
from merlot.ingest import arrays, instants
from merlot.ingest.arrays import CastResult
from merlot.ingest.bad_rows import SAMPLES_PER_REASON, BadRow, BadRows
from merlot.ingest.transform import Conformed, bad_row
from merlot.segment.build.partitions import texts
from merlot.segment.build.rows import default_scalar
from merlot.spec import partition_functions
from merlot.spec.indexing import PartitionEnforcement, PartitionFunctionSpec
from merlot.spec.schema import FieldSpec
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

_EPOCH = date(1970, 1, 1)
_FIRST_DAY = (date.min - _EPOCH).days


@dataclass(frozen=True, order=True, slots=True)
class SegmentGroup:
    """Rows of one segment: its first day (since 1970; None without a time column) and one partition per partition
    column."""

    day: int | None
    partitions: tuple[int, ...] = ()

    def name(self, table: RawTableName) -> SegmentName:
        """Return the segment's name: `flights_2013-01-31`, `flights_2013-01-31_p3`, `flights_p3`, or `flights_0`
        without day and partition."""
        parts: list[str] = [table]
        if self.day is not None:
            parts.append((_EPOCH + timedelta(days=self.day)).isoformat())
        if self.partitions:
            parts.append("p" + "_".join(map(str, self.partitions)))
        return SegmentName("_".join(parts) if len(parts) > 1 else f"{table}_0")


@dataclass(frozen=True, slots=True)
class Grouped:
    """Conformed rows with int32 keys of the same length: the first day of their segment (zeros without a time column),
    then one partition per repartitioned column. `bad` counts all rows that were left out."""

    rows: pa.Table
    keys: tuple[pa.Array, ...]
    bad: BadRows


def repartitioned_columns(spec: TableSpec) -> Mapping[str, PartitionFunctionSpec]:
    """Return the columns whose partition divides rows into segments. With `enforce: assert` there are none, because the
    source is divided already."""
    if spec.partitioning is None or spec.partitioning.enforce is PartitionEnforcement.ASSERT:
        return {}
    return spec.partitioning.columns


def group(conformed: Conformed, spec: TableSpec) -> Grouped:
    """Find every row's group. A row that the partition function refuses is counted as bad."""
    columns = repartitioned_columns(spec)
    partitions = [_partitions(conformed.rows, _field(spec, name), columns[name]) for name in columns]
    bad = np.zeros(conformed.rows.num_rows, dtype=bool)
    counts: dict[str, int] = {}
    samples: list[BadRow] = []
    for name, cast in zip(columns, partitions, strict=True):
        refused = np.flatnonzero(cast.bad.to_numpy(zero_copy_only=False) & ~bad)
        if len(refused):
            reason = f"{name}: {columns[name].function_name} refuses the value"
            counts[reason] = len(refused)
            samples += [
                bad_row(reason, conformed.rows, int(row), column=name, origin=conformed.origin)
                for row in refused[:SAMPLES_PER_REASON]
            ]
            bad[refused] = True
    keys = [_days(conformed, spec.ingestion.days_per_segment), *(cast.values for cast in partitions)]
    rows = conformed.rows
    if counts:
        is_good = pa.array(~bad)
        rows, keys = rows.filter(is_good), [key.filter(is_good) for key in keys]
    return Grouped(rows, tuple(keys), conformed.bad + BadRows(counts, tuple(samples)))


def group_of(key: tuple[int, ...], spec: TableSpec) -> SegmentGroup:
    """Return the group that a key of `Grouped.keys` stands for."""
    return SegmentGroup(key[0] if spec.time_column is not None else None, key[1:])


def _field(spec: TableSpec, name: str) -> FieldSpec:
    column = spec.table_schema.field(name)
    assert column is not None, "a manifest names existing columns"
    return column


def _days(conformed: Conformed, per_segment: int) -> pa.Array:
    if conformed.millis is None:
        return pa.array(np.zeros(conformed.rows.num_rows, dtype=np.int32))
    days = instants.days_of(arrays.plain(conformed.millis))
    if per_segment == 1:
        return days
    counted = days.to_numpy()
    # The stretch that 0001-01-01 is in may begin before it, where no date can name it.
    return pa.array(np.maximum(counted - counted % np.int32(per_segment), np.int32(_FIRST_DAY)))


def _partitions(rows: pa.Table, column: FieldSpec, function: PartitionFunctionSpec) -> CastResult:
    """Return the partition of each row. Each distinct value is hashed once; a null goes where its default value
    goes."""
    partition_of = partition_functions.get(function)
    values = arrays.plain(rows.column(column.name)).fill_null(default_scalar(column))
    if column.type is TypeName.TIMESTAMP:
        values = values.cast(pa.int64())
    encoded = values.dictionary_encode()
    distinct = pa.array(texts(column.type, encoded.dictionary), pa.string())
    partitions = arrays.map_distinct(distinct, partition_of, pa.int32())
    return CastResult(partitions.values.take(encoded.indices), partitions.bad.take(encoded.indices))
