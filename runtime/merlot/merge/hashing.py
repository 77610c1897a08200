"""Hash each row's key, equally in every process, so that rows with equal keys go the same way.

Values are hashed, not ids, and each dictionary entry once. A widened value hashes as the value that it became.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import merge as kernels
from merlot.merge.columns import MergeColumn
from merlot.merge.plan import MergePlan
from merlot.merge.source import MergeSource, Selection, num_rows
from merlot.segment.concat import Values
from merlot.segment.index.variable import buffers_of

Hashes = NDArray[np.uint64]
_NULL = np.uint64(0x6E756C6C6E756C6C)


def key_hashes(plan: MergePlan, source: MergeSource, selection: Selection) -> Hashes:
    """Return a hash per selected row, equal where all key columns are equal."""
    rows = np.zeros(num_rows(selection), np.uint64)
    for field in plan.key_fields():
        if field.name not in plan.erased:
            kernels.add_hashes(_row_hashes(source.column(field, selection)), rows)
    return rows


def _row_hashes(column: MergeColumn) -> Hashes:
    flat = _value_hashes(column.values)
    if column.ids is not None:
        flat = flat[column.ids]
    if column.offsets is not None:
        lists = np.empty(column.num_rows, np.uint64)
        kernels.hash_lists(flat, column.offsets, lists)
        flat = lists
    return flat if column.nulls is None else np.where(column.nulls, _NULL, flat)


def _value_hashes(values: Values) -> Hashes:
    out = np.empty(len(values), np.uint64)
    if not isinstance(values, np.ndarray):
        offsets, data = buffers_of(values)
        kernels.hash_bytes(offsets.astype(np.int64), data, out)
        return out
    if values.dtype.kind == "f":
        # Both zeros hash alike, and so do all NaNs.
        wide = values.astype(np.float64) + 0.0
        wide[np.isnan(wide)] = np.nan
        numbers = wide.view(np.uint64)
    else:
        numbers = values.astype(np.int64).view(np.uint64)
    kernels.hash_numbers(numbers, out)
    return out
