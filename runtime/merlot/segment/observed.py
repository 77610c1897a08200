"""Compute what a sealed segment's footer does not say about its values: partitions, and small Bloom filters."""

import pyarrow as pa

from merlot.segment.buffers import Array
from merlot.segment.build.partitions import NotPartitionedError, partition_info
from merlot.segment.column import ColumnReader
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index import bloom
from merlot.segment.metadata import ColumnEncoding, PartitionInfo
from merlot.spec.indexing import IndexingSpec, PartitioningSpec


def observed_partitions(
    segment: ImmutableSegment, partitioning: PartitioningSpec
) -> tuple[dict[str, PartitionInfo], dict[str, str]]:
    """Return the partition of each partition column whose values all belong to one partition. For each other column
    return the reason why it has none."""
    partitions, wrong = {}, {}
    for name, function in partitioning.columns.items():
        column = segment.column(name)
        if column is None:
            wrong[name] = "the segment was built before the column was added"
        elif column.multi_value:
            wrong[name] = "the column is multi-valued"
        else:
            try:
                fields = partition_info(column.type, function, _values(column), must_be_one=True)
                partitions[name] = PartitionInfo.model_validate(fields)
            except NotPartitionedError as error:
                wrong[name] = str(error)
    return partitions, wrong


def small_blooms(segment: ImmutableSegment, indexing: IndexingSpec) -> dict[str, str]:
    """Return Bloom filters as text, for the segment's record. Columns for which the table asks for no filter are left
    out, and so are filters of more than `bloom.MAX_RECORD_BYTES`."""
    texts = {}
    for name in indexing.bloom:
        column, fpp = segment.column(name), indexing.bloom_fpp_of(name)
        if column is not None and fpp is not None:
            words = column.index(bloom.INDEX)
            if words is None:
                words = bloom.write(column.type, bloom.distinct_values(_values(column)), fpp)[bloom.WORDS]
            if words.nbytes <= bloom.MAX_RECORD_BYTES:
                texts[name] = bloom.to_text(words)
    return texts


def _values(column: ColumnReader) -> Array | pa.Array:
    """Return every value at least once."""
    if column.dictionary is not None:
        return column.dictionary.numeric if column.dictionary.numeric is not None else column.dictionary.arrow()
    if column.metadata.encoding is ColumnEncoding.RAW_VARIABLE:
        return column.strings()
    return column.values()
