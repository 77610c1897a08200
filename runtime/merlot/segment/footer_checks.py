"""Check a footer against itself and against the sizes of the buffers. FORMAT.md §7.

No buffer is read, so these checks are cheap: those of the whole segment run when a file is opened, those of a column
when it is first used. The modules of `segment.index` check what buffers hold when they are first read.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from merlot.kernels import bits
from merlot.segment import compression
from merlot.segment.arrow_types import STORED_DTYPES
from merlot.segment.buffers import MappedFile
from merlot.segment.index import dict_ids, dictionary, multi_value, nulls, raw, variable, zones
from merlot.segment.index.registry import BUFFERS, indexes_in, is_plain
from merlot.segment.json_values import is_value
from merlot.segment.layout import damaged
from merlot.segment.metadata import MAX_DOCS, ColumnEncoding, ColumnMetadata, SegmentMetadata, Shapes
from merlot.spec.derived import derived_of
from merlot.values.types import TypeName

_MAX_VALUES: Final = (1 << 32) - 1
_MAX_MS: Final = 1 << 63
_CODECS: Final = (compression.LZ4, compression.ZSTD)
_DICTIONARIES: Final = frozenset(encoding for encoding in ColumnEncoding if encoding.has_dictionary)
_PACKED: Final = {
    name: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for name, dtype in STORED_DTYPES.items()
    if dtype.kind == "i"
}
"""Ranges of integer types."""
_KNOWN: Final = frozenset(
    {
        *(dictionary.VALUES, dictionary.PACKED, "dict.offsets", "dict.bytes", "raw.offsets", "raw.bytes"),
        *(dict_ids.ALIGNED, dict_ids.PACKED, dict_ids.RUNS, raw.VALUES, raw.PACKED, multi_value.LENGTHS, nulls.WORDS),
        *(zones.MIN, zones.MAX, zones.NULLS, *BUFFERS),
    }
)


def check_segment(metadata: SegmentMetadata, file: MappedFile) -> None:
    """Raise CorruptionError unless what the footer says of the whole segment is possible."""
    start, end = metadata.start_time_ms, metadata.end_time_ms
    if not 0 <= metadata.num_docs <= MAX_DOCS:
        raise damaged(file.path, f"no segment has {metadata.num_docs} docs")
    names = [column.name for column in metadata.derived]
    if len(set(names)) != len(names) or any(derived_of(name) is None for name in names):
        raise damaged(file.path, f"derived columns are twice the same, or none names={','.join(names)[:200]}")
    if start is not None and end is not None and not -_MAX_MS <= start <= end < _MAX_MS:
        raise damaged(file.path, f"times are none or reversed start={start} end={end}")


def check_column(column: ColumnMetadata, num_docs: int, file: MappedFile) -> None:
    """Raise CorruptionError unless the column's counts and bounds are possible, and it has the buffers of its encoding,
    each of its dtype and size."""
    wrong = _wrong_numbers(column, num_docs) or _wrong_values(column)
    if wrong is None:
        shapes = _shapes(column, num_docs)
        wrong = _wrong_buffers(column, shapes, file)
    if wrong is not None:
        raise damaged(file.path, f"{wrong} column={column.name}")


def check_derived(
    column: ColumnMetadata, columns: Mapping[str, ColumnMetadata], num_docs: int, file: MappedFile
) -> None:
    """Raise CorruptionError unless the column can be the derived column that its name stands for."""
    check_column(column, num_docs, file)
    derived = derived_of(column.name)
    source = None if derived is None else columns.get(derived.column)
    is_possible = source is not None and column.num_nulls == source.num_nulls and not source.multi_value
    if not is_possible or column.type is not TypeName.LONG or column.multi_value:
        raise damaged(file.path, f"no such column is derived column={column.name}")


def check_indexes(column: ColumnMetadata, num_docs: int, file: MappedFile) -> None:
    """Raise CorruptionError unless the buffers of a column, in a file that has only indexes of it, are those of
    indexes, each of its dtype and size."""
    shapes: Shapes = {}
    for index in indexes_in(column):
        shapes.update(index.shapes(column, num_docs))
    wrong = _wrong_buffers(column, shapes, file)
    if wrong is not None:
        raise damaged(file.path, f"{wrong} column={column.name}")


def _wrong_numbers(column: ColumnMetadata, num_docs: int) -> str | None:
    values, cardinality = column.total_values, column.cardinality
    if not (0 <= values <= _MAX_VALUES if column.multi_value else values == num_docs):
        return f"{values} values of {num_docs} docs"
    if not (0 <= column.num_nulls <= num_docs and 0 <= column.max_values_per_doc <= values + 1):
        return f"nulls={column.num_nulls} of {num_docs} docs, up to {column.max_values_per_doc} values each"
    if cardinality is None:
        if column.encoding in _DICTIONARIES:
            return f"no number of distinct values of {values}"
    elif not 0 <= cardinality <= values or (values > 0) != (cardinality > 0):
        return f"{cardinality} distinct ones of {values} values"
    if column.encoding in _DICTIONARIES:
        if column.encoding is ColumnEncoding.DICTIONARY_RUNS and column.multi_value:
            return "runs of a multi-value column"
    elif (column.type in STORED_DTYPES) == (column.encoding is ColumnEncoding.RAW_VARIABLE):
        return f"{column.encoding} of {column.type}"
    return None


def _wrong_values(column: ColumnMetadata) -> str | None:
    least, greatest, type_name = column.min, column.max, column.type
    if least is None or greatest is None:
        must_have = column.encoding in _DICTIONARIES and type_name in STORED_DTYPES and column.total_values > 0
        if must_have or least is not greatest:
            return f"a bound is missing min={least!r:.40} max={greatest!r:.40}"
    elif not (is_value(type_name, least) and is_value(type_name, greatest)):
        return f"bounds are no values of {type_name} min={least!r:.40} max={greatest!r:.40}"
    if not is_value(type_name, column.default_null_value):
        return f"default is no value of {type_name} default={column.default_null_value!r:.40}"
    if column.encoding is ColumnEncoding.RAW_PACKED:
        limits = _PACKED.get(type_name)
        if limits is None or not 0 <= (column.bits or 0) < bits.MAX_WIDTH or not limits[0] <= column.base <= limits[1]:
            return f"{type_name} packed in {column.bits} bits from {column.base}"
    return None


def _shapes(column: ColumnMetadata, num_docs: int) -> Shapes:
    """Return the shapes of all buffers that the column must have, and of the indexes that it has."""
    shapes: Shapes = {}
    if column.encoding in _DICTIONARIES:
        shapes.update(dictionary.shapes(column))
        shapes.update(dict_ids.shapes(column))
    else:
        shapes.update(raw.shapes(column) if column.type in STORED_DTYPES else variable.shapes(column))
    if column.multi_value:
        shapes.update(multi_value.shapes(column, num_docs))
    if column.num_nulls:
        shapes.update(nulls.shapes(column, num_docs))
    if num_docs > zones.BLOCK_DOCS:
        shapes.update(zones.shapes(column, num_docs))
    for index in indexes_in(column):
        shapes.update(index.shapes(column, num_docs))
    return shapes


def _wrong_buffers(column: ColumnMetadata, shapes: Shapes, file: MappedFile) -> str | None:
    missing = shapes.keys() - column.buffers.keys()
    if missing:
        return f"no buffer {min(missing)}"
    for name, ref in column.buffers.items():
        shape = shapes.get(name)
        if shape is None:
            if name in _KNOWN:
                return f"buffer {name} has no place there"
            continue
        dtypes, size = shape
        if ref.dtype not in dtypes or (ref.size != size if size is not None else ref.size < 0):
            return f"buffer {name} is {ref} instead of {dtypes} * {size}"
        _, length, _, codec = file.stored(ref)
        if codec == compression.NONE:
            if length != ref.size * int(ref.dtype[1]):
                return f"buffer {name} of {ref.size} * {ref.dtype} has {length} bytes"
        elif codec not in _CODECS or is_plain(name):
            return f"buffer {name} is compressed by {codec!r:.40}"
    return None
