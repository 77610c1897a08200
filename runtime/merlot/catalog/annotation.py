"""Find in a segment's file the pruning facts that its record lacks."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from merlot.catalog.publish import fitting_blooms, partition_records, ranges_of
from merlot.cluster.column_types import format_columns
from merlot.cluster.records import UNREADABLE, AnnotationRecord, SegmentRecord
from merlot.errors import CorruptionError
from merlot.segment.immutable import ImmutableSegment, verify_file
from merlot.segment.index import bloom
from merlot.segment.observed import observed_partitions, small_blooms
from merlot.spec.table import TableSpec
from merlot.store.deepstore import DeepStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Facts to add to a record, and the reasons why partition columns are not among them."""

    annotation: AnnotationRecord | None
    unpartitioned: Mapping[str, str] = field(default_factory=dict)


def lacks_info(record: SegmentRecord, spec: TableSpec) -> bool:
    """Return True if the record says less than the table declares.

    A column that the segment lacks does not count, unless it is a partition column."""
    if _is_unreadable(record) or not record.columns:
        return True
    declared = {*_range_columns(spec)} & record.column_types.keys()
    partitioned = () if spec.partitioning is None else spec.partitioning.columns
    if not (declared <= record.ranges.keys() and set(partitioned) <= record.partitions.keys()):
        return True
    return any(_lacks_bloom(record, spec, name) for name in spec.indexing.bloom)


def _lacks_bloom(record: SegmentRecord, spec: TableSpec, column: str) -> bool:
    """Return True if the record lacks a Bloom filter that is certainly small. Filters of more docs may be small too,
    but only the file could tell."""
    fpp = spec.indexing.bloom_fpp_of(column)
    is_here = column in record.column_types and column not in record.blooms
    return is_here and fpp is not None and bloom.is_small(record.total_docs, fpp)


def examine(record: SegmentRecord, spec: TableSpec, store: DeepStore) -> Finding:
    """Fetch the segment's file, verify every byte, and compare it with the record.

    Raise CorruptionError if the file is damaged or another version's, NotFoundError or UnavailableError if it cannot be
    fetched."""
    with tempfile.TemporaryDirectory(prefix="merlot-annotate-") as folder:
        path = Path(folder) / "segment.mseg"
        store.fetch(record.url, path, expected_size=record.size_bytes, verify=verify_file)
        with ImmutableSegment.open(path) as segment:
            if segment.key != record.key:
                raise CorruptionError(f"file is of another segment expected={record.key} got={segment.key}")
            return _finding(segment, record, spec)


def _finding(segment: ImmutableSegment, record: SegmentRecord, spec: TableSpec) -> Finding:
    metadata = segment.metadata
    partitions, wrong = ({}, {}) if spec.partitioning is None else observed_partitions(segment, spec.partitioning)
    columns = {name: (column.type, column.multi_value) for name, column in metadata.columns.items()}
    recorded = {name for name in record.partitions if name != UNREADABLE}
    ranges = ranges_of(metadata, _range_columns(spec))
    filters = small_blooms(segment, spec.indexing)
    annotation = AnnotationRecord(
        name=record.name,
        crc=record.crc,
        start_time_ms=metadata.start_time_ms,
        end_time_ms=metadata.end_time_ms,
        ranges={name: bounds for name, bounds in ranges.items() if name not in record.ranges},
        partitions=partition_records(
            {name: partition for name, partition in partitions.items() if name not in recorded}
        ),
        blooms=fitting_blooms(
            {name: text for name, text in filters.items() if name not in record.blooms},
            sum(map(len, record.blooms.values())),
        ),
        columns="" if record.columns else format_columns(columns),
    )
    is_empty = not (annotation.ranges or annotation.partitions or annotation.blooms or annotation.columns)
    astray = {name: why for name, why in wrong.items() if name not in recorded}
    return Finding(annotation=None if is_empty else annotation, unpartitioned=astray)


def _is_unreadable(record: SegmentRecord) -> bool:
    return any(UNREADABLE in entries for entries in (record.ranges, record.partitions, record.blooms))


def _range_columns(spec: TableSpec) -> tuple[str, ...]:
    time = () if spec.time_column is None else (spec.time_column,)
    return (*time, *spec.indexing.sorted_columns)
