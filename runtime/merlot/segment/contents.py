"""Check that columns are what their footer says by reading all of them, which takes too long when a file is opened.

A column's entry in the footer is checked when the column is first used. Reading checks all that a reader trusts for
memory access. The remaining claims could only make answers wrong: bounds, zone maps, indexes, filters and star-trees
of other values than the column's. They are checked here.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.segment.buffers import Array
from merlot.segment.column import ColumnReader
from merlot.segment.derived import truncated, unit_of_column
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index import zones
from merlot.segment.index.kind import AnyIndex, ColumnIndexes, IndexedColumn
from merlot.segment.index.registry import INDEXES
from merlot.segment.json_values import to_json
from merlot.segment.metadata import ColumnMetadata
from merlot.segment.startree import agreement
from merlot.spec.derived import derived_of
from merlot.values.types import TypeName


def check_file(path: Path) -> None:
    """Read every byte and every value of a segment file. Raises CorruptionError at the first that is wrong,
    NotFoundError or UnavailableError."""
    with ImmutableSegment.open(path, verify=True) as segment:
        check_contents(segment)


def check_contents(segment: ImmutableSegment) -> None:
    """Raise CorruptionError at the first column, derived column or star-tree that is not what the footer says. The
    check takes some nanoseconds per value. It closes the segment after each of them, to drop the decoded arrays."""
    for name in segment.column_names:
        column = segment.column(name)
        assert column is not None
        for is_right, what in _claims(column):
            segment.file.require(is_right(), f"{what} are not those of the values column={name}")
        segment.close()
    for derived in segment.metadata.derived:
        segment.file.require(
            _is_derived(segment, derived), f"values are not those of its column derived={derived.name}"
        )
        segment.close()
    for tree in segment.star_trees:
        is_right_tree = agreement.agrees(tree, segment.column, segment.num_docs)
        segment.file.require(is_right_tree, f"star-tree is not that of the rows dimensions={','.join(tree.dimensions)}")
        segment.close()


def _is_derived(segment: ImmutableSegment, stored: ColumnMetadata) -> bool:
    derived, column = derived_of(stored.name), segment.column(stored.name)
    source = None if derived is None else segment.column(derived.column)
    if derived is None or column is None or source is None:
        return False
    if unit_of_column(source.metadata) != stored.format or stored.format is None:
        return False
    if not all(is_right() for is_right, _ in _claims(column)):
        return False
    wanted = truncated(_numbers(source), derived, stored.format)
    have, theirs = column.nulls, source.nulls
    same_nulls = have is theirs is None or (have is not None and theirs is not None and np.array_equal(have, theirs))
    return same_nulls and np.array_equal(_numbers(column), wanted)


def _numbers(column: ColumnReader) -> Array:
    dictionary = column.dictionary
    if dictionary is None:
        return column.values()
    assert dictionary.numeric is not None
    values: Array = dictionary.numeric[column.dict_ids()]
    return values


Claims = Iterator[tuple[Callable[[], bool], str]]


def _claims(column: ColumnReader) -> Claims:
    has_dictionary = column.dictionary is not None
    if has_dictionary:
        yield lambda: _all_occur(column), "dict ids"
    else:
        yield lambda: _bounds_agree(column), "bounds"
    yield lambda: _lists_agree(column), "lengths of lists"
    yield lambda: _zones_agree(column), "zone maps"
    if (indexes := column.indexes) is not None:
        for name in indexes.names:
            yield partial(_index_agrees, INDEXES[name], indexes, column), f"contents of the {name} index"


def _all_occur(column: ColumnReader) -> bool:
    assert column.dictionary is not None
    return bool(np.bincount(column.dict_ids(), minlength=len(column.dictionary)).all())


def _bounds_agree(column: ColumnReader) -> bool:
    metadata, values = column.metadata, raw_values(column)
    if metadata.min is None or not len(values):
        return metadata.total_values == 0 or not isinstance(values, np.ndarray)
    if isinstance(values, np.ndarray):
        bounds = np.fmin.reduce(values), np.maximum.reduce(values)
    else:
        ends = pc.min_max(values).as_py()
        bounds = ends["min"], ends["max"]
    return metadata.type is not TypeName.BIG_DECIMAL and (metadata.min, metadata.max) == (
        to_json(metadata.type, bounds[0]),
        to_json(metadata.type, bounds[1]),
    )


def _lists_agree(column: ColumnReader) -> bool:
    if not column.multi_value:
        return True
    longest = np.diff(column.offsets()).max() if column.num_docs else 0
    return bool(longest == column.metadata.max_values_per_doc)


def _zones_agree(column: ColumnReader) -> bool:
    zone_maps = column.zones
    values = raw_values(column) if column.dictionary is None else column.dict_ids()
    if zone_maps is None or not isinstance(values, np.ndarray):
        return True
    if column.multi_value:
        return zones.agrees(zone_maps, zones.write_multi_value(values, column.offsets(), column.nulls))
    return zones.agrees(zone_maps, zones.write(values, column.nulls))


def _index_agrees(index: AnyIndex, indexes: ColumnIndexes, column: ColumnReader) -> bool:
    return index.agrees(indexes.get(index), indexed_column(column))


def indexed_column(column: ColumnReader) -> IndexedColumn:
    """Return what an index of a stored column is built from."""
    dictionary = column.dictionary
    if dictionary is None:
        distinct, ids, values = None, None, partial(raw_values, column)
    else:
        distinct = dictionary.arrow() if dictionary.numeric is None else dictionary.numeric
        ids, values = column.dict_ids(), partial(_looked_up, distinct, column)
    return IndexedColumn(
        name=column.metadata.name,
        type=column.type,
        num_docs=column.num_docs,
        distinct=distinct,
        ids=ids,
        values=values,
        offsets=column.offsets() if column.multi_value else None,
    )


def _looked_up(distinct: Array | pa.Array, column: ColumnReader) -> Array | pa.Array:
    ids = column.dict_ids()
    return distinct[ids] if isinstance(distinct, np.ndarray) else distinct.take(pa.array(ids))


def raw_values(column: ColumnReader) -> Array | pa.Array:
    """Return the values of a column without a dictionary."""
    return column.strings() if column.metadata.encoding == "RAW_VARIABLE" else column.values()
