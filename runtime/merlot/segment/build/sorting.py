"""Sort rows by the table's sorted columns, in the order of their dictionaries. Equal rows keep their order."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.kernels import bits
from merlot.segment.buffers import Array
from merlot.segment.build.coding import code
from merlot.segment.build.request import BuildRequest
from merlot.segment.build.rows import ColumnarRows, stored_column


def sorted_order(request: BuildRequest, rows: ColumnarRows) -> pa.Array | None:
    """Return the positions of the rows in the order that the table asks for; None if it asks for none, or if the rows
    are in it already. Raises InvalidInputError for a column that does not exist or is multi-value."""
    keys = [_sort_key(request, rows, name) for name in request.indexing.sorted_columns]
    if not keys or rows.num_rows < 2:
        return None
    if len(keys) == 1:
        if bits.is_sorted(keys[0]):
            return None
        order = np.argsort(keys[0], kind="stable")
    else:
        order = np.lexsort(keys[::-1])
        if _is_identity(order):
            return None
    return pa.array(order)


def _sort_key(request: BuildRequest, rows: ColumnarRows, name: str) -> Array:
    field = request.field(name)
    if field.multi_value:
        raise InvalidInputError(f"rows cannot be sorted by this column table={request.table} column={name}")
    return code(field.type, stored_column(field, rows.column(name)).values).ids


def _is_identity(order: NDArray[np.int64]) -> bool:
    return bool((order == np.arange(len(order))).all())
