"""Derived columns of a segment (`spec.derived`): values as DATETRUNC would compute them of every doc, nulls included.

They are written where their column is, by whoever writes it, and read by name, `$ts$DAY`. The entry in the footer says
in which unit the column's times were; a segment that lacks one, or has it of another unit, is computed of as before.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from merlot.functions.truncation import convert_unit, truncate
from merlot.segment.buffers import Array
from merlot.segment.build.coding import Coded
from merlot.segment.build.column_writer import ColumnRequest, WrittenColumn, write_column
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.build.rows import BuildColumn, CodedColumn, StoredColumn
from merlot.segment.index.dict_ids import id_dtype
from merlot.segment.metadata import ColumnMetadata
from merlot.spec.derived import Derived, unit_of
from merlot.spec.indexing import Encoding
from merlot.spec.schema import FieldSpec
from merlot.values.types import TypeName

_FIELD: Final = FieldSpec(name="derived", type=TypeName.LONG)


def unit_of_column(stored: ColumnMetadata) -> str | None:
    """The unit of a stored column's times; None if it has none, or lists."""
    return None if stored.multi_value else unit_of(stored.type, stored.format)


def write_derived(
    derived: Derived, column: BuildColumn, coded: Coded | None, unit: str, *, encoding: Encoding, file: FileWriter
) -> WrittenColumn:
    """Append a derived column of a column that is written; `coded` is its dictionary, where it has one."""
    made = _made(derived, column, coded, unit)
    written = write_column(made, ColumnRequest(encoding=encoding), file)
    metadata = written.metadata.model_copy(update={"name": derived.name, "format": unit})
    return WrittenColumn(metadata=metadata, coded=written.coded, indexes=written.indexes)


def truncated(values: Array, derived: Derived, unit: str) -> Array:
    """As DATETRUNC computes it, in the unit of the values."""
    with np.errstate(over="ignore"):
        millis = convert_unit(np.asarray(values, np.int64), unit, "MILLISECONDS")
        return convert_unit(truncate(millis, derived.granularity), "MILLISECONDS", unit)


def _made(derived: Derived, column: BuildColumn, coded: Coded | None, unit: str) -> BuildColumn:
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
    distinct, places = np.unique(truncated(coded.values, derived, unit), return_inverse=True)
    return CodedColumn(
        field=_FIELD,
        num_docs=column.num_docs,
        coded=Coded(places.astype(id_dtype(len(distinct)))[coded.ids], distinct),
        offsets=None,
        nulls=column.nulls,
        num_nulls=column.num_nulls,
    )
