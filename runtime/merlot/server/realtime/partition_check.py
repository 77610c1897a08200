"""Count rows that are not in the partition of the stream that their table declares: all rows of a key have to meet in
one partition.

Producers have to mend this, so rows are counted and kept. If a partition function has no kernel, only the first rows of
each batch are checked.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.segment.build.partitions import quick_partitions, texts
from merlot.segment.build.rows import stored_column
from merlot.spec import partition_functions
from merlot.spec.indexing import PartitionFunctionSpec
from merlot.spec.schema import FieldSpec
from merlot.spec.table import TableSpec

LOOKED_AT: Final = 200
"""Rows of a batch that are checked one by one if a function has no kernel: less than a millisecond."""


def misplaced(table: TableSpec, rows: pa.Table, partition: int) -> int:
    """Count the rows in this partition of the stream that no column of the table's partitioning puts there."""
    if table.partitioning is None:
        return 0
    is_wrong = np.ones(rows.num_rows, np.bool_)
    for name, function in table.partitioning.columns.items():
        field = table.table_schema.field(name)
        assert field is not None
        is_wrong &= _is_elsewhere(field, function, rows, partition)
    return int(np.count_nonzero(is_wrong))


def _is_elsewhere(
    field: FieldSpec, function: PartitionFunctionSpec, rows: pa.Table, partition: int
) -> NDArray[np.bool_]:
    column = rows.column(field.name)
    partitions = quick_partitions(field.type, function, stored_column(field, column).values)
    if partitions is not None:
        is_other: NDArray[np.bool_] = partitions != partition
        return is_other
    is_elsewhere = np.zeros(len(column), np.bool_)
    for row, text in enumerate(texts(field.type, stored_column(field, column[:LOOKED_AT]).values)):
        is_elsewhere[row] = _partition(function, text) != partition
    return is_elsewhere


def _partition(function: PartitionFunctionSpec, text: str) -> int | None:
    """Return the partition of a value; None if the function refuses the value, or is not available."""
    try:
        return partition_functions.get(function)(text)
    except InvalidInputError:
        return None
