"""Values as small numbers: equal values get equal codes, so that rows of several keys can be grouped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.kernels import group as kernels

DENSE_RANGE = 1 << 22
"""Whole numbers that span less than this are coded by their distance from the smallest, without hashing."""
MAX_DENSE_SPACE = 1 << 25
"""Combinations of codes up to this many may be marked in an array of bytes."""

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Values by code: `distinct` in the order of codes, or whole numbers from `low`."""

    codes: Codes
    num_codes: int
    type: pa.DataType
    distinct: pa.Array | None = None
    low: int = 0

    def values(self, codes: Codes) -> pa.Array:
        """Values of codes."""
        if self.distinct is not None:
            return self.distinct.take(pa.array(codes))
        return pa.array(codes + self.low).cast(self.type)


def encode(values: pa.Array) -> Encoded:
    """Equal values get equal codes below num_codes; null is a value like others, as are NaN and (with 0.0) -0.0."""
    if pa.types.is_integer(values.type) and values.null_count == 0 and len(values):
        numbers = values.to_numpy()
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < min(DENSE_RANGE, 16 * len(values) + 4096):
            return Encoded(numbers.astype(np.int64) - low, high - low + 1, values.type, low=low)
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    codes: Codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Encoded(codes, max(1, len(encoded.dictionary)), values.type, encoded.dictionary)


def distinct_codes(codes: Codes, space: int) -> Codes:
    """The codes that occur, ascending; all are below space."""
    if not is_dense(space, len(codes)):
        return np.unique(codes)
    present = np.zeros(space, np.uint8)
    kernels.mark(codes, present)
    return np.flatnonzero(present)


def is_dense(space: int, num_rows: int) -> bool:
    """Whether an array of `space` elements is cheaper than hashing or sorting num_rows."""
    return space <= min(MAX_DENSE_SPACE, 16 * num_rows + 65_536)


def group_rows(keys: Sequence[pa.Array], num_rows: int) -> tuple[NDArray[np.uint32], Codes]:
    """Group of each row, and a row of each group."""
    if not keys:
        return np.zeros(num_rows, np.uint32), np.arange(min(1, num_rows))
    packed = np.zeros(num_rows, np.int64)
    space = 1
    for key in keys:
        encoded = encode(key)
        if space * encoded.num_codes >= 1 << 62:
            groups, num_groups = _group_codes(packed, space)
            packed, space = groups.astype(np.int64), num_groups
        packed = packed * encoded.num_codes + encoded.codes
        space *= encoded.num_codes
    groups, num_groups = _group_codes(packed, space)
    row_of = np.empty(num_groups, np.int64)
    row_of[groups] = np.arange(num_rows)
    return groups, row_of


def _group_codes(packed: Codes, space: int) -> tuple[NDArray[np.uint32], int]:
    """Group of each code, and the number of groups."""
    if is_dense(space, len(packed)):
        present = distinct_codes(packed, space)
        places = np.empty(space, np.uint32)
        places[present] = np.arange(len(present), dtype=np.uint32)
        return places[packed], len(present)
    slots = np.full(1 << max(4, (2 * len(packed)).bit_length()), kernels.EMPTY, np.uint32)
    groups = np.empty(len(packed), np.uint32)
    num_groups = kernels.assign_groups(packed.view(np.uint64), 0, slots, np.empty(len(packed), np.uint64), groups)
    return groups, num_groups
