"""Make the record of a segment from its footer, and upload its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merlot.cluster.column_types import format_columns
from merlot.cluster.distincts import format_distincts
from merlot.cluster.records import PartitionRecord, SegmentRecord
from merlot.ids import TableName
from merlot.segment.build.request import BuiltSegment
from merlot.segment.metadata import ColumnMetadata, PartitionInfo, SegmentMetadata
from merlot.store.deepstore import DeepStore

MAX_DISCOVERED = 8
"""Maximum number of columns in a record that are sorted without being declared so: a small segment may have dozens."""
MAX_BOUND_CHARS = 64
"""Maximum length of a text that is a bound of such a column."""
MAX_BLOOM_CHARS = 128 * 1024
"""Maximum length of all Bloom filters in a record, as text: a record has to fit into a bucket."""


def record_of(
    metadata: SegmentMetadata, url: str, size_bytes: int, blooms: Mapping[str, str] | None = None
) -> SegmentRecord:
    """Return the record of a segment whose file is at `url`, with the small Bloom filters that its build reported, as
    far as there is room for them.

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
        blooms=fitting_blooms(blooms or {}),
        columns=format_columns({name: (column.type, column.multi_value) for name, column in metadata.columns.items()}),
        distincts=format_distincts({name: column.cardinality for name, column in metadata.columns.items()}),
        creation_time_ms=metadata.creation.time_ms,
    )


def fitting_blooms(blooms: Mapping[str, str], num_chars: int = 0) -> dict[str, str]:
    """Return the first of these filters that fit into a record which has filters of `num_chars` characters."""
    fitting = {}
    for column, text in blooms.items():
        if num_chars + len(text) <= MAX_BLOOM_CHARS:
            fitting[column] = text
            num_chars += len(text)
    return fitting


def upload(deep_store: DeepStore, built: BuiltSegment, table: TableName) -> SegmentRecord:
    """Put a built segment where its table's files are, and return the record to publish. Running it again is
    harmless."""
    url = deep_store.url_of(table, built.metadata.key)
    deep_store.put(built.path, url)
    return record_of(built.metadata, url, built.size_bytes, built.blooms)


def ranges_of(metadata: SegmentMetadata, more: Sequence[str] = ()) -> dict[str, tuple[Any, Any]]:
    """Return the bounds that brokers prune by.

    They are those of the time column, the declared sorted columns and `more`, where known, and of at most
    MAX_DISCOVERED columns that happen to be sorted."""
    names = dict.fromkeys([*([metadata.time_column] if metadata.time_column else []), *metadata.sort_order, *more])
    columns = [metadata.columns[name] for name in names if name in metadata.columns]
    columns += [column for column in metadata.columns.values() if column.name not in names and _is_sorted(column)][
        :MAX_DISCOVERED
    ]
    return {
        column.name: (column.min, column.max) for column in columns if column.min is not None and column.max is not None
    }


def _is_sorted(column: ColumnMetadata) -> bool:
    """Return True if the rows happen to be in the column's order, and its bounds are short enough for every broker to
    keep."""
    texts = [bound for bound in (column.min, column.max) if isinstance(bound, str)]
    return column.is_sorted and not column.multi_value and all(len(text) <= MAX_BOUND_CHARS for text in texts)


def partition_records(partitions: Mapping[str, PartitionInfo]) -> dict[str, PartitionRecord]:
    """Return a footer's partitions in the form that records have."""
    return {
        column: PartitionRecord(
            function_name=info.function_name,
            num_partitions=info.num_partitions,
            partitions=info.partitions,
            function_config=info.function_config or None,
        )
        for column, info in partitions.items()
    }
