"""Bound the bytes of a function's result before it is made: never too low, and exact where that costs little.

A function whose result is no longer than `usual` says nothing. One that makes more of its arguments has `most_bytes`
among its traits. Bytes count the result, and what Python holds of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.vectors.account import size_of
from merlot.vectors.vector import Vector, scalar_bytes

MostBytes = Callable[[Sequence[Vector]], int]
"""Arguments to the bytes that a result of them has at most."""

ROW_BYTES: Final = 64
"""Short results, as numbers written out."""
GROWTH: Final = 3
"""Bytes of a result to one of an argument: 'ΐ' has two, and six in capitals."""
VALUE_BYTES: Final = 48
"""Bytes that places and rows of a list's value take while lists are made of others."""
MANY_BYTES: Final = 4 << 20
"""Up to so many, a rough bound does."""


def num_rows(args: Sequence[Vector]) -> int:
    """Rows of a result."""
    return max((len(arg.data) for arg in args if not arg.is_constant), default=1)


def bytes_of(arg: Vector) -> int:
    """Bytes of an argument's values, of a constant once."""
    data = arg.data
    return scalar_bytes(data) if isinstance(data, pa.Scalar) else size_of(data)


def spread_bytes(args: Sequence[Vector]) -> int:
    """Bytes of all arguments, constants in every row."""
    rows = num_rows(args)
    return sum(bytes_of(arg) * (rows if arg.is_constant else 1) for arg in args)


def num_values(arg: Vector) -> int:
    """Values of all lists of an argument; 0 if it has none."""
    if not arg.type.is_array:
        return 0
    if isinstance(arg.data, pa.ListScalar):
        return len(arg.data.values) if arg.data.is_valid else 0
    return int(arg.data.offsets[-1].as_py()) - int(arg.data.offsets[0].as_py()) if len(arg.data) else 0


def usual(args: Sequence[Vector]) -> int:
    """Bound a result whose length follows from those of the arguments that vary."""
    return growing(GROWTH)(args)


def growing(factor: int) -> MostBytes:
    """Make a bound of so many bytes to each of the arguments, constants not repeated."""

    def most_bytes(args: Sequence[Vector]) -> int:
        values = sum([num_values(arg) for arg in args])
        return num_rows(args) * ROW_BYTES + factor * sum([bytes_of(arg) for arg in args]) + values * VALUE_BYTES

    return most_bytes


def per_row(num_bytes: int) -> MostBytes:
    """Make a bound of so many bytes to each row, whatever the arguments are."""
    return lambda args: num_rows(args) * num_bytes


def together(args: Sequence[Vector]) -> int:
    """Bound a text of all arguments, or a list of them."""
    rows = num_rows(args)
    values = sum([num_values(arg) * (rows if arg.is_constant else 1) for arg in args])
    return rows * ROW_BYTES + 2 * spread_bytes(args) + values * VALUE_BYTES


def whole(arg: Vector) -> int:
    """Value of a constant whole number."""
    return int(arg.data[()]) if isinstance(arg.data, np.ndarray) else int(arg.data.as_py())


def word(arg: Vector) -> str:
    """Value of a constant text."""
    return str(arg.data.as_py())


def lengths_of(arg: Vector) -> Any:
    """Bytes of each text, as numpy's whole numbers."""
    if arg.is_constant:
        return np.array([bytes_of(arg)], np.int64)
    return pc.binary_length(arg.data).to_numpy(zero_copy_only=False).astype(np.int64)


def counted(arg: Vector, pattern: str, *, is_regex: bool = False) -> int:
    """Count how often a pattern is in all texts together, at most."""
    length = bytes_of(arg)
    shortest = 0 if is_regex else len(pattern.encode())
    rough = length // max(shortest, 1) + num_rows([arg])
    if rough * 8 <= MANY_BYTES:
        return rough
    count = pc.count_substring_regex if is_regex else pc.count_substring
    texts = pa.array([word(arg)]) if arg.is_constant else arg.data
    return int(pc.sum(count(texts, pattern)).as_py() or 0) + (num_rows([arg]) if is_regex else 0)
