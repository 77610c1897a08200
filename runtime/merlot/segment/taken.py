"""Read chosen docs of a column as Arrow rows, as a builder takes them, without converting the other docs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.segment.arrow_types import ARROW_TYPES, is_fixed_width
from merlot.segment.reader import Docs, RowReader
from merlot.values.types import TypeName
from merlot.vectors.runs import rows_of_runs


def taken_column(reader: RowReader, docs: Docs) -> pa.Array:
    """Return the values of docs in the order of `docs`, nulls as nulls. Lists of a multi-value column have 64-bit
    offsets."""
    is_null = _nulls_at(reader.nulls, docs)
    if not reader.multi_value:
        values = _values_at(reader, docs)
        return (
            values if is_null is None else pa.compute.if_else(pa.array(is_null), pa.scalar(None, values.type), values)
        )
    starts = reader.offsets()
    firsts, lengths = starts[docs].astype(np.int64), (starts[docs + 1] - starts[docs]).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    positions = rows_of_runs(firsts, ends)
    flat = _values_at(reader, positions.astype(np.uint32))
    mask = None if is_null is None else pa.array(is_null)
    return pa.LargeListArray.from_arrays(pa.array(ends), flat, mask=mask)


def _nulls_at(words: NDArray[np.uint64] | None, docs: Docs) -> NDArray[np.bool_] | None:
    if words is None:
        return None
    is_null: NDArray[np.bool_] = (words[docs >> 6] >> (docs & 63).astype(np.uint64) & np.uint64(1)).astype(np.bool_)
    return is_null if is_null.any() else None


def _values_at(reader: RowReader, positions: Docs) -> pa.Array:
    dictionary = reader.dictionary
    if dictionary is not None and dictionary.numeric is not None:
        return _numbers(reader.type, dictionary.numeric[reader.take_dict_ids(positions)])
    if dictionary is not None:
        return _texts(reader.type, dictionary.arrow().take(pa.array(reader.take_dict_ids(positions))))
    if is_fixed_width(reader.type):
        return _numbers(reader.type, reader.take_values(positions))
    return _texts(reader.type, reader.take_strings(positions))


def _numbers(type_: TypeName, values: Any) -> pa.Array:
    if type_ is TypeName.BOOLEAN:
        return pa.array(values != 0)
    return pa.array(np.ascontiguousarray(values)).view(ARROW_TYPES[type_])


def _texts(type_: TypeName, values: pa.Array) -> pa.Array:
    return values if values.type == ARROW_TYPES[type_] else values.cast(ARROW_TYPES[type_])
