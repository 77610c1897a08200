"""Values as small numbers: equal values get equal codes, so that rows of several keys can be grouped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.kernels import group as kernels

DENSE_RANGE = 1 << 22
"""Whole numbers that span less than this are coded by their distance from the smallest, without hashing."""


def encode(values: pa.Array) -> tuple[NDArray[np.int64], int]:
    """A code in [0, n) for each value, and n; null is a value like others, as are NaN and (with 0.0) -0.0."""
    if pa.types.is_integer(values.type) and values.null_count == 0 and len(values):
        numbers = values.to_numpy()
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < min(DENSE_RANGE, 16 * len(values) + 4096):
            return numbers.astype(np.int64) - low, high - low + 1
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    codes: NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, max(1, len(encoded.dictionary))


def group_rows(keys: Sequence[pa.Array], num_rows: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Group of each row, and the first row of each group; groups are numbered by first appearance."""
    if not keys:
        return np.zeros(num_rows, np.uint32), np.arange(min(1, num_rows))
    packed = np.zeros(num_rows, np.uint64)
    product = 1
    for key in keys:
        codes, num_codes = encode(key)
        if product * num_codes >= 1 << 63:
            packed, product = _compact(packed)
        packed = packed * np.uint64(num_codes) + codes.astype(np.uint64)
        product *= num_codes
    groups, num_groups, _ = assign(packed)
    first = np.empty(num_groups, np.int64)
    first[groups[::-1]] = np.arange(num_rows - 1, -1, -1)
    return groups, first


def assign(packed: NDArray[np.uint64]) -> tuple[NDArray[np.uint32], int, NDArray[np.uint64]]:
    """Group of each key by first appearance, their number, and the key of each."""
    num_slots = 1 << max(4, (2 * len(packed)).bit_length())
    slots = np.full(num_slots, kernels.EMPTY, np.uint32)
    group_keys = np.empty(len(packed), np.uint64)
    groups = np.empty(len(packed), np.uint32)
    num_groups = kernels.assign_groups(packed, 0, slots, group_keys, groups)
    return groups, num_groups, group_keys[:num_groups]


def _compact(packed: NDArray[np.uint64]) -> tuple[NDArray[Any], int]:
    groups, num_groups, _ = assign(packed)
    return groups.astype(np.uint64), max(1, num_groups)
