"""Bounds of the bytes of a function's result before it is made: never too low, and exact where that costs little.

A function whose result is no longer than `usual` has no bound of its own. A function that makes more of its arguments
has the trait `most_bytes`. Bytes include the result, and the Python objects that are held meanwhile.
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
"""Function from the arguments to a limit of the bytes of their result."""

ROW_BYTES: Final = 64
"""Bytes per row that cover short results, such as numbers written out."""
GROWTH: Final = 3
"""Bytes of a result per byte of an argument: 'ΐ' has two, and six in capitals."""
VALUE_BYTES: Final = 48
"""Bytes per value for its place and row, which are held while lists are made from others."""
MANY_BYTES: Final = 4 << 20
"""Bytes up to which a rough bound suffices."""


def num_rows(args: Sequence[Vector]) -> int:
    """Return the number of rows of a result."""
    return max((len(arg.data) for arg in args if not arg.is_constant), default=1)


def bytes_of(arg: Vector) -> int:
    """Return the bytes of an argument's values; a constant counts once."""
    data = arg.data
    return scalar_bytes(data) if isinstance(data, pa.Scalar) else size_of(data)


def spread_bytes(args: Sequence[Vector]) -> int:
    """Return the bytes of all arguments, with constants repeated in every row."""
    rows = num_rows(args)
    return sum(bytes_of(arg) * (rows if arg.is_constant else 1) for arg in args)


def num_values(arg: Vector) -> int:
    """Return the number of values in all lists of an argument; 0 if it has none."""
    if not arg.type.is_array:
        return 0
    if isinstance(arg.data, pa.ListScalar):
        return len(arg.data.values) if arg.data.is_valid else 0
    return int(arg.data.offsets[-1].as_py()) - int(arg.data.offsets[0].as_py()) if len(arg.data) else 0


def usual(args: Sequence[Vector]) -> int:
    """Bound a result whose length follows from those of the arguments that vary."""
    return growing(GROWTH)(args)


def growing(factor: int) -> MostBytes:
    """Return a function that allows `factor` bytes for each byte of the arguments. Constants count once."""

    def most_bytes(args: Sequence[Vector]) -> int:
        values = sum([num_values(arg) for arg in args])
        return num_rows(args) * ROW_BYTES + factor * sum([bytes_of(arg) for arg in args]) + values * VALUE_BYTES

    return most_bytes


def per_row(num_bytes: int) -> MostBytes:
    """Return a function that allows `num_bytes` for each row, whatever the arguments are."""
    return lambda args: num_rows(args) * num_bytes


def together(args: Sequence[Vector]) -> int:
    """Bound a text that joins all arguments, or a list of them."""
    rows = num_rows(args)
    values = sum([num_values(arg) * (rows if arg.is_constant else 1) for arg in args])
    return rows * ROW_BYTES + 2 * spread_bytes(args) + values * VALUE_BYTES


def whole(arg: Vector) -> int:
    """Return the value of a constant whole number."""
    return int(arg.data[()]) if isinstance(arg.data, np.ndarray) else int(arg.data.as_py())


def word(arg: Vector) -> str:
    """Return the value of a constant text."""
    return str(arg.data.as_py())


def lengths_of(arg: Vector) -> Any:
    """Return the length of each text in bytes, (n,) i64; (1,) for a constant."""
    if arg.is_constant:
        return np.array([bytes_of(arg)], np.int64)
    return pc.binary_length(arg.data).to_numpy(zero_copy_only=False).astype(np.int64)


def counted(arg: Vector, pattern: str, *, is_regex: bool = False) -> int:
    """Return a number that the matches of a pattern in all texts together do not exceed."""
    length = bytes_of(arg)
    shortest = 0 if is_regex else len(pattern.encode())
    rough = length // max(shortest, 1) + num_rows([arg])
    if rough * 8 <= MANY_BYTES:
        return rough
    count = pc.count_substring_regex if is_regex else pc.count_substring
    texts = pa.array([word(arg)]) if arg.is_constant else arg.data
    return int(pc.sum(count(texts, pattern)).as_py() or 0) + (num_rows([arg]) if is_regex else 0)
