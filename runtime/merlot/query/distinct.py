"""Lists of distinct values by group, the state of DISTINCTCOUNT."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.spec.types import TypeName
from merlot.tree.types import SqlType
from merlot.vectors.encoding import distinct_codes, encode
from merlot.vectors.errors import LimitExceededError
from merlot.vectors.vector import arrow_type

MAX_LISTED: Final = (1 << 31) - 1
"""Values of one Arrow array of lists: its offsets have 32 bits, and would wrap."""


def value_type(argument: SqlType) -> pa.DataType:
    """Type of a listed value."""
    return arrow_type(SqlType(argument.base))


def lists_of(
    values: pa.Array | None, of_rows: NDArray[np.int64], groups: NDArray[np.int64], argument: SqlType
) -> pa.ListArray:
    """Lists of the distinct values of each of `groups`; of_rows says which group a value belongs to."""
    element = value_type(argument)
    if values is None or len(values) == 0:
        return pa.ListArray.from_arrays(pa.array(np.zeros(len(groups) + 1, np.int32)), pa.array([], element))
    if values.type != element:
        values = values.cast(pa.bool_() if argument.base is TypeName.BOOLEAN else element)
    encoded = encode(values)
    space = (int(of_rows.max()) + 1) * encoded.num_codes
    owners, codes = np.divmod(distinct_codes(of_rows * encoded.num_codes + encoded.codes, space), encoded.num_codes)
    return lists_of_distinct(encoded.values(codes), owners, groups, argument)


def lists_of_distinct(
    values: pa.Array, owners: NDArray[np.int64], groups: NDArray[np.int64], argument: SqlType
) -> pa.ListArray:
    """As lists_of, for values that are distinct in each group, in ascending order of their groups."""
    element = value_type(argument)
    if values.type != element:
        values = values.cast(pa.bool_() if argument.base is TypeName.BOOLEAN else element)
    starts = np.searchsorted(owners, groups, "left")
    lengths = np.searchsorted(owners, groups, "right") - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if offsets[-1] > MAX_LISTED:
        raise LimitExceededError(f"answer lists too many distinct values limit={MAX_LISTED} got={offsets[-1]}")
    if not np.array_equal(starts, offsets[:-1]):
        values = values.take(pa.array(np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def merge_lists(lists: pa.ListArray, groups: NDArray[np.uint32], num_groups: int, argument: SqlType) -> pa.ListArray:
    """The union of the lists of each group."""
    lengths = np.diff(lists.offsets.to_numpy())
    of_rows = np.repeat(groups.astype(np.int64), lengths)
    return lists_of(lists.flatten(), of_rows, np.arange(num_groups), argument)


def count_lists(lists: pa.ListArray) -> NDArray[np.int32]:
    """Length of each list."""
    counts: NDArray[np.int32] = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int32)
    return counts
