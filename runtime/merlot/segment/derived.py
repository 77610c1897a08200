"""Derived columns of a segment (`spec.derived`): the values that DATETRUNC would compute for every doc, nulls included.

They are written together with their column, or later into a sidecar, and read by name, `$ts$DAY`. The entry in the
footer names the unit of the column's times. If a segment lacks the derived column, or has it in another unit, queries
compute it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from merlot.functions.truncation import convert_unit, truncate
from merlot.segment.buffers import Array
from merlot.segment.build.coding import DictionaryEncoded
from merlot.segment.build.column_writer import ColumnRequest, WrittenColumn, write_column
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.build.rows import BuildColumn, EncodedColumn, StoredColumn
from merlot.segment.index.dict_ids import id_dtype
from merlot.segment.metadata import ColumnMetadata
from merlot.spec.derived import DerivedColumn, unit_of
from merlot.spec.indexing import Encoding
from merlot.spec.schema import FieldSpec
from merlot.values.types import TypeName

_FIELD: Final = FieldSpec(name="derived", type=TypeName.LONG)


def unit_of_column(stored: ColumnMetadata) -> str | None:
    """Return the unit of a stored column's times; None if it has none, or holds lists."""
    return None if stored.multi_value else unit_of(stored.type, stored.format)


def write_derived(
    derived: DerivedColumn,
    column: BuildColumn,
    coded: DictionaryEncoded | None,
    unit: str,
    *,
    encoding: Encoding,
    file: FileWriter,
) -> WrittenColumn:
    """Append a derived column of a column that is being written; `coded` is that column's dictionary, if it has one."""
    derived_column = _derived_column(derived, column, coded, unit)
    written = write_column(derived_column, ColumnRequest(encoding=encoding), file)
    metadata = written.metadata.model_copy(update={"name": derived.name, "format": unit})
    return WrittenColumn(metadata=metadata, coded=written.coded, indexes=written.indexes)


def truncated(values: Array, derived: DerivedColumn, unit: str) -> Array:
    """Truncate values as DATETRUNC does, in the unit of the values."""
    with np.errstate(over="ignore"):
        millis = convert_unit(np.asarray(values, np.int64), unit, "MILLISECONDS")
        return convert_unit(truncate(millis, derived.granularity), "MILLISECONDS", unit)


def _derived_column(
    derived: DerivedColumn, column: BuildColumn, coded: DictionaryEncoded | None, unit: str
) -> BuildColumn:
    if coded is None:
        values = column.values
        assert isinstance(values, np.ndarray)
        return StoredColumn(
            field=_FIELD,
            num_docs=column.num_docs,
            values=truncated(values, derived, unit),
            offsets=None,
            nulls=column.nulls,
            num_nulls=column.num_nulls,
        )
    assert isinstance(coded.values, np.ndarray)
    distinct, positions = np.unique(truncated(coded.values, derived, unit), return_inverse=True)
    return EncodedColumn(
        field=_FIELD,
        num_docs=column.num_docs,
        coded=DictionaryEncoded(positions.astype(id_dtype(len(distinct)))[coded.ids], distinct),
        offsets=None,
        nulls=column.nulls,
        num_nulls=column.num_nulls,
    )
