"""Write one column of rows: its buffers and its entry in the footer."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.kernels import bits
from merlot.segment import compression
from merlot.segment.arrow_types import STORED_DTYPES
from merlot.segment.buffers import Array
from merlot.segment.build.coding import DictionaryEncoded, code
from merlot.segment.build.encoding import ColumnStatistics, choose
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.build.rows import BuildColumn, EncodedColumn
from merlot.segment.index import dict_ids, dictionary, multi_value, nulls, raw, variable, zones
from merlot.segment.index.kind import AnyIndex, IndexedColumn
from merlot.segment.index.registry import INDEXES, is_plain
from merlot.segment.json_values import MAX_BOUND_LENGTH, to_json
from merlot.segment.metadata import BufferRef, ColumnEncoding, ColumnMetadata, JsonValue
from merlot.spec.indexing import INDEX_KINDS, Compression, Encoding, IndexingSpec
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.values.types import TypeName

CODECS = {Compression.NONE: compression.NONE, Compression.LZ4: compression.LZ4, Compression.ZSTD: compression.ZSTD}


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnRequest:
    """Encoding, codec and indexes that the table asks for in one column."""

    encoding: Encoding = Encoding.AUTO
    compression: Compression | None = None
    """Codec; None to compress where it pays."""
    indexes: tuple[AnyIndex, ...] = ()
    indexing: IndexingSpec = field(default_factory=IndexingSpec)
    """Settings of the table, for the options of indexes."""
    sort_key: bool = False


_last: tuple[IndexingSpec, TableSchema, tuple[ColumnRequest, ...]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenColumn:
    """A column's entry in the footer, and its dictionary if its distinct values were counted."""

    metadata: ColumnMetadata
    coded: DictionaryEncoded | None
    indexes: dict[str, Array]
    """Buffers of the indexes, by name."""

    @property
    def distinct(self) -> Array | pa.Array | None:
        """Distinct values, ascending; None if they were not counted."""
        return None if self.coded is None else self.coded.values


def request_of(indexing: IndexingSpec, column: FieldSpec) -> ColumnRequest:
    """Return what a table asks of a column."""
    name = column.name
    kinds = indexing.kinds_of(name)
    needs_dictionary = any(column.type not in INDEX_KINDS[kind].raw_types for kind in kinds)
    needs_dictionary |= name in indexing.tree_dimensions
    return ColumnRequest(
        encoding=Encoding.DICTIONARY if needs_dictionary else indexing.encoding_of(name),
        compression=indexing.compression.get(name),
        indexes=tuple(INDEXES[kind] for kind in kinds),
        indexing=indexing,
        sort_key=name in indexing.sorted_columns,
    )


def requests_of(indexing: IndexingSpec, schema: TableSchema) -> tuple[ColumnRequest, ...]:
    """Return what a table asks of each of its columns. The last result is cached, because a job builds many segments of
    one table."""
    global _last
    last = _last
    if last is None or last[0] is not indexing or last[1] is not schema:
        last = _last = (indexing, schema, tuple(request_of(indexing, field) for field in schema.fields))
    return last[2]


def write_column(column: BuildColumn, request: ColumnRequest, writer: FileWriter) -> WrittenColumn:
    """Choose the encoding and append the buffers. They are the same whether or not the column came with a
    dictionary."""
    coded = None
    if request.encoding is not Encoding.RAW:
        coded = column.coded if isinstance(column, EncodedColumn) else code(column.field.type, column.values)
    statistics = _statistics(column, coded)
    encoding = choose(statistics, request.encoding, needs_dictionary=request.sort_key)
    buffers, low, high = _buffers(column, coded, encoding, statistics)
    indexed = _indexed(column, coded, encoding)
    indexes: dict[str, Array] = {}
    for index in request.indexes:
        indexes |= index.write(indexed, request.indexing)
    buffers |= indexes
    refs = {name: writer.add(array, _codec(name, request)) for name, array in buffers.items()}
    metadata = _metadata(column, coded, encoding, statistics, (low, high), refs)
    if request.compression is not None:
        metadata = metadata.model_copy(update={"compression": request.compression.value})
    return WrittenColumn(metadata=metadata, coded=coded, indexes=indexes)


def _statistics(column: BuildColumn, coded: DictionaryEncoded | None) -> ColumnStatistics:
    values = column.values if coded is None else coded.values
    ordered = values if coded is None else coded.ids
    is_sorted = column.offsets is None and isinstance(ordered, np.ndarray) and bool(bits.is_sorted(ordered))
    width = STORED_DTYPES[column.field.type].itemsize if isinstance(values, np.ndarray) else None
    return ColumnStatistics(
        role=column.field.role,
        num_values=column.num_values,
        cardinality=column.num_values if coded is None else coded.cardinality,
        raw_bytes=column.num_values * (width or 0),
        dictionary_bytes=len(values) * (width or 0),
        is_fixed_width=width is not None,
        is_sorted=is_sorted,
        integer_width=None if width is None else _integer_width(values, coded),
    )


def _integer_width(values: Array, coded: DictionaryEncoded | None) -> int | None:
    if values.dtype.kind != "i" or len(values) == 0:
        return None
    low, high = _numeric_bounds(values, coded)
    return raw.width_bits(int(low), int(high))


def _numeric_bounds(values: Array, coded: DictionaryEncoded | None) -> tuple[Any, Any]:
    if coded is not None:
        return coded.values[0], coded.values[-1]
    if values.dtype.kind == "f":
        return np.fmin.reduce(values), np.maximum.reduce(values)
    bounds = np.empty(2, values.dtype)
    bits.min_max(values, bounds)
    return bounds[0], bounds[1]


def _buffers(
    column: BuildColumn, coded: DictionaryEncoded | None, encoding: ColumnEncoding, statistics: ColumnStatistics
) -> tuple[dict[str, Array], JsonValue | None, JsonValue | None]:
    buffers: dict[str, Array] = {}
    low, high = _bounds(column, coded)
    zoned: Array | None = None
    if encoding.has_dictionary:
        assert coded is not None
        if isinstance(coded.values, np.ndarray):
            buffers |= dictionary.write_numeric(coded.values)
        else:
            buffers |= dictionary.write_variable(coded.values)
        buffers |= dict_ids.write(coded.ids, coded.cardinality, encoding)
        zoned = coded.ids
    elif isinstance(values := column.values, np.ndarray):
        base = int(low) if encoding is ColumnEncoding.RAW_PACKED and low is not None else 0
        buffers |= raw.write(values, encoding, base, statistics.integer_width or 0)
        zoned = values
    else:
        buffers |= variable.write(values)
    if column.offsets is not None:
        buffers |= multi_value.write(column.offsets, _max_values_per_doc(column))
        if zoned is not None:
            buffers |= zones.write_multi_value(zoned, column.offsets, column.nulls)
    elif zoned is not None:
        buffers |= zones.write(zoned, column.nulls)
    if column.nulls is not None:
        buffers[nulls.WORDS] = column.nulls
    return buffers, low, high


def _bounds(column: BuildColumn, coded: DictionaryEncoded | None) -> tuple[JsonValue | None, JsonValue | None]:
    values = column.values if coded is None else coded.values
    if len(values) == 0:
        return None, None
    if isinstance(values, np.ndarray):
        low, high = _numeric_bounds(values, coded)
        return to_json(column.field.type, low), to_json(column.field.type, high)
    if coded is not None:
        low_text, high_text = values[0].as_py(), values[-1].as_py()
    elif column.field.type is not TypeName.BIG_DECIMAL:
        ends = pc.min_max(values).as_py()
        low_text, high_text = ends["min"], ends["max"]
    else:
        # Text of numbers is not in the order of the numbers.
        return None, None
    if max(len(low_text), len(high_text)) > MAX_BOUND_LENGTH:
        return None, None
    return to_json(column.field.type, low_text), to_json(column.field.type, high_text)


def _indexed(column: BuildColumn, coded: DictionaryEncoded | None, encoding: ColumnEncoding) -> IndexedColumn:
    return IndexedColumn(
        name=column.field.name,
        type=column.field.type,
        num_docs=column.num_docs,
        distinct=None if coded is None else coded.values,
        ids=None if coded is None or not encoding.has_dictionary else coded.ids,
        values=lambda: column.values,
        offsets=column.offsets,
    )


def _codec(buffer_name: str, request: ColumnRequest) -> str | None:
    """Return the codec of a buffer; None to compress it where it pays."""
    if is_plain(buffer_name):
        return compression.NONE
    return None if request.compression is None else CODECS[request.compression]


def _max_values_per_doc(column: BuildColumn) -> int:
    if column.offsets is None:
        return 1
    return int(np.diff(column.offsets).max()) if column.num_docs else 0


def _metadata(
    column: BuildColumn,
    coded: DictionaryEncoded | None,
    encoding: ColumnEncoding,
    statistics: ColumnStatistics,
    bounds: tuple[JsonValue | None, JsonValue | None],
    refs: dict[str, BufferRef],
) -> ColumnMetadata:
    field = column.field
    is_packed = encoding is ColumnEncoding.RAW_PACKED
    return ColumnMetadata(
        name=field.name,
        type=TypeName(field.type),
        role=field.role.value,
        multi_value=field.multi_value,
        format=field.format,
        default_null_value=to_json(field.type, field.default_value),
        encoding=encoding,
        cardinality=None if coded is None else coded.cardinality,
        min=bounds[0],
        max=bounds[1],
        num_nulls=column.num_nulls,
        is_sorted=statistics.is_sorted,
        bits=_bits(coded, encoding, statistics),
        base=int(bounds[0] or 0) if is_packed else 0,
        total_values=column.num_values,
        max_values_per_doc=_max_values_per_doc(column),
        buffers=refs,
    )


def _bits(coded: DictionaryEncoded | None, encoding: ColumnEncoding, statistics: ColumnStatistics) -> int | None:
    if encoding is ColumnEncoding.RAW_PACKED:
        return statistics.integer_width
    return dict_ids.width_bits(coded.cardinality) if coded is not None and encoding.has_dictionary else None
