"""Codes of columns that compare like their values, and the order of rows by such codes."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.kernels import bits, radix
from merlot.merge.columns import Array, MergeColumn, Rows
from merlot.segment.index.dict_ids import id_dtype
from merlot.vectors.groups import KeyWords


def order_of(keys: KeyWords) -> Rows | None:
    """Return the rows in the order of their keys; rows with equal keys keep their order.

    None: the rows are in order already, as a single word of keys shows, or there are no keys."""
    if not keys.words or (len(keys.words) == 1 and bits.is_sorted(keys.words[0])):
        return None
    rows = np.arange(keys.num_rows, dtype=np.uint32)
    for word, space in zip(reversed(keys.words), reversed(keys.spaces), strict=True):
        _, rows = radix.sort(word[rows] if len(keys.words) > 1 else word, rows, space)
    return rows


def order_codes(column: MergeColumn) -> tuple[Array, int]:
    """Return numbers in the order of a column's values, as in its dictionary, and how many there are."""
    coded = column.coded()
    assert coded.ids is not None
    return coded.ids, len(coded.values)


def key_codes(column: MergeColumn) -> tuple[Array, int]:
    """Return codes like `order_codes`, also for lists: equal values get equal codes, and null gets the last code."""
    coded = with_one_zero(column.coded())
    codes, cardinality = order_codes(coded) if coded.offsets is None else list_codes(coded)
    if column.nulls is not None and column.nulls.any():
        codes = np.where(column.nulls, np.uint32(cardinality), codes).astype(id_dtype(cardinality + 1))
        cardinality += 1
    return codes, cardinality


def with_one_zero(column: MergeColumn) -> MergeColumn:
    """Replace -0.0 by 0.0, which equals it."""
    values = column.values
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or not (np.signbit(values) & (values == 0)).any():
        return column
    return column.coded().with_dictionary(column.coded().values + 0.0)


def list_codes(column: MergeColumn) -> tuple[Array, int]:
    """Return codes of whole lists, ordered by their elements."""
    assert column.ids is not None
    assert column.offsets is not None
    # The bytes of big-endian ids compare like the ids.
    data = np.ascontiguousarray(column.ids.astype(column.ids.dtype.newbyteorder(">")))
    offsets = (column.offsets - column.offsets[0]) * data.itemsize
    lists = pa.Array.from_buffers(pa.large_binary(), column.num_rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    encoded = lists.dictionary_encode()
    ranks = np.empty(len(encoded.dictionary), id_dtype(len(encoded.dictionary)))
    ranks[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks), dtype=ranks.dtype)
    return ranks[encoded.indices.to_numpy()], len(ranks)
