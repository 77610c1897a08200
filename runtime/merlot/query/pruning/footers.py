"""Statistics of segments, from their footers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from merlot.errors import CorruptionError, InvalidInputError
from merlot.query.pruning.bounds import bounds_of
from merlot.query.pruning.partitions import ColumnPartitions, SegmentPartitions, function_of
from merlot.query.pruning.ranges import Bounds, ColumnRanges
from merlot.query.pruning.statistics import SegmentStatistics
from merlot.segment.metadata import PartitionInfo, SegmentMetadata
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.values.types import TypeName

_INTEGERS = (TypeName.INT, TypeName.LONG)


def statistics_of(
    footers: Sequence[SegmentMetadata], schema: TableSchema, columns: Collection[str]
) -> SegmentStatistics:
    """Return the statistics of these columns of the schema. It takes about a microsecond per segment and column."""
    num_docs = np.array([footer.num_docs for footer in footers], np.int64)
    is_empty = num_docs == 0
    fields = [field for name in columns if (field := schema.field(name)) is not None]
    partitioned = [field for field in fields if any(field.name in footer.partitions for footer in footers)]
    return SegmentStatistics(
        num_segments=len(footers),
        is_empty=is_empty if is_empty.any() else None,
        ranges={field.name: ColumnRanges.of([_bounds(footer, field) for footer in footers]) for field in fields},
        partitions={
            field.name: ColumnPartitions.of(field.type, [_partitions(footer, field) for footer in footers])
            for field in partitioned
        },
        null_counts={field.name: np.array([_nulls(footer, field) for footer in footers]) for field in fields},
        num_docs=num_docs,
    )


def _bounds(footer: SegmentMetadata, field: FieldSpec) -> Bounds | None:
    """Return the bounds of a column in a segment; None if the footer has none that can be read. A segment without the
    column has the default value that the schema names at the time of a query."""
    column = footer.columns.get(field.name)
    if column is None:
        return None
    try:
        return bounds_of(column.type, field.type, column.min, column.max)
    except CorruptionError:
        return None


def _partitions(footer: SegmentMetadata, field: FieldSpec) -> SegmentPartitions | None:
    info, column = footer.partitions.get(field.name), footer.columns.get(field.name)
    if info is None or column is None or not are_texts_alike(column.type, field.type):
        return None
    if not info.partitions and footer.num_docs:
        return None  # its rows are somewhere
    return _segment_partitions(info)


def are_texts_alike(stored: TypeName, declared: TypeName) -> bool:
    """Return whether equal values have the same text for a partition function, even if the type was widened since."""
    return stored is declared or (stored in _INTEGERS and declared in _INTEGERS)


def _segment_partitions(info: PartitionInfo) -> SegmentPartitions | None:
    try:
        function = function_of(info.function_name, info.num_partitions, info.function_config)
    except InvalidInputError:
        return None  # a function that this version lacks
    return SegmentPartitions(function, frozenset(info.partitions))


def _nulls(footer: SegmentMetadata, field: FieldSpec) -> int:
    column = footer.columns.get(field.name)
    return footer.num_docs if column is None else column.num_nulls
