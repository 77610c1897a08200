"""Values as small numbers: equal values get equal codes, so that rows of several keys can be grouped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.vectors.groups import Groups, KeyWords, group

DENSE_RANGE = 1 << 22
"""Range below which whole numbers are coded by their distance from the smallest, without hashing."""
MAX_DENSE_SPACE = 1 << 25
"""Combinations of codes up to which an array may have an element for each."""

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
        """Return the values of codes."""
        if self.distinct is not None:
            return self.distinct.take(pa.array(codes))
        return pa.array(codes + self.low).cast(self.type)


def encode(values: pa.Array) -> Encoded:
    """Encode values: equal values get equal codes below num_codes. Null is a value like others, and so is NaN; -0.0 and
    0.0 are one value."""
    if pa.types.is_integer(values.type) and values.null_count == 0 and len(values):
        numbers = values.to_numpy()
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < min(DENSE_RANGE, 16 * len(values) + 4096):
            return Encoded(numbers.astype(np.int64) - low, high - low + 1, values.type, low=low)
    encoded = pc.dictionary_encode(with_one_zero(values), null_encoding="encode")
    codes: Codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Encoded(codes, max(1, len(encoded.dictionary)), values.type, encoded.dictionary)


def with_one_zero(values: pa.Array) -> pa.Array:
    """Return floats with 0.0 for -0.0, which equals it, and one NaN; other values as they are."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = values.fill_null(0.0) if values.null_count else values
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(one_zero(numbers.to_numpy()), values.type, mask=mask)


def one_zero(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return a new array with 0.0 for -0.0, and the same bits in every NaN."""
    same: NDArray[Any] = numbers + 0.0
    same[np.isnan(same)] = np.nan
    return same


def group_rows(columns: Sequence[pa.Array], num_rows: int) -> Groups:
    """Group rows with equal values in all columns."""
    keys = KeyWords(num_rows)
    for column in columns:
        _add(column, keys)
    return group(keys)


def _add(column: pa.Array, keys: KeyWords) -> None:
    """Add a column to keys. Numbers are their own codes: hashing them here and again as keys would cost twice."""
    type_ = column.type
    if not (pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_)):
        encoded = encode(column)
        keys.add(encoded.codes, encoded.num_codes)
        return
    if column.null_count:
        keys.add(column.is_null().to_numpy(zero_copy_only=False).view(np.uint8), 2)
        column = column.fill_null(False if pa.types.is_boolean(type_) else 0)
    numbers = column.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(type_):
        bits = one_zero(numbers).view(np.uint32 if numbers.itemsize == 4 else np.uint64)
        keys.add(bits, 1 << 8 * numbers.itemsize)
    elif len(numbers):
        wide = numbers.astype(np.int64)
        low, high = int(wide.min()), int(wide.max())
        keys.add(wide.view(np.uint64) - np.uint64(low % (1 << 64)), high - low + 1)
