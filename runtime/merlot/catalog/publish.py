"""What a published segment's record says, taken from its footer, and the upload before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merlot.cluster.records import PartitionRecord, SegmentRecord, format_columns
from merlot.ids import TableName
from merlot.segment.build.request import BuiltSegment
from merlot.segment.metadata import PartitionInfo, SegmentMetadata
from merlot.store.deepstore import DeepStore


def record_of(
    metadata: SegmentMetadata, url: str, size_bytes: int, blooms: Mapping[str, str] | None = None
) -> SegmentRecord:
    """The record of a segment whose file is at `url`, with the small Bloom filters that its build told of.

    Push and refresh times are set when it is published."""
    return SegmentRecord(
        name=metadata.name,
        crc=metadata.crc,
        size_bytes=size_bytes,
        url=url,
        total_docs=metadata.num_docs,
        start_time_ms=metadata.start_time_ms,
        end_time_ms=metadata.end_time_ms,
        ranges=ranges_of(metadata),
        partitions=partition_records(metadata.partitions),
        blooms=dict(blooms or {}),
        columns=format_columns({name: (column.type, column.multi_value) for name, column in metadata.columns.items()}),
        creation_time_ms=metadata.creation.time_ms,
    )


def upload(deep_store: DeepStore, built: BuiltSegment, table: TableName) -> SegmentRecord:
    """Put a built segment where its table's files are; returns the record to publish. Rerunning it is harmless."""
    url = deep_store.url_of(table, built.metadata.key)
    deep_store.put(built.path, url)
    return record_of(built.metadata, url, built.size_bytes, built.blooms)


def ranges_of(metadata: SegmentMetadata, more: Sequence[str] = ()) -> dict[str, tuple[Any, Any]]:
    """Of the time column, every sorted column and `more`, where known: what brokers prune by."""
    names = dict.fromkeys([*([metadata.time_column] if metadata.time_column else []), *metadata.sort_order, *more])
    columns = ((name, metadata.columns.get(name)) for name in names)
    return {
        name: (column.min, column.max)
        for name, column in columns
        if column is not None and column.min is not None and column.max is not None
    }


def partition_records(partitions: Mapping[str, PartitionInfo]) -> dict[str, PartitionRecord]:
    """A footer's partitions as a record has them."""
    return {
        column: PartitionRecord(
            function_name=info.function_name,
            num_partitions=info.num_partitions,
            partitions=info.partitions,
            function_config=info.function_config or None,
        )
        for column, info in partitions.items()
    }
