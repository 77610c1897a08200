"""BIG_DECIMAL as whole numbers of a common scale, where 64 bits hold them: almost always, without an object a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import decimals as kernels
from merlot.vectors.texts import text_buffers

_MOST_BYTES = 64
"""More than any text of a number of 64 bits takes at a scale that `texts_of` writes."""
MOST_SCALE = 40


@dataclass(frozen=True, slots=True)
class Scaled:
    """Numbers in units of 10**-scale, i64, none below `low` or above `high`."""

    values: NDArray[np.int64]
    scale: int
    low: int
    high: int


def scaled_of(texts: pa.Array) -> Scaled | None:
    """Plain decimal texts without nulls as whole numbers; None if 64 bits may not hold one, or it is no such text."""
    offsets, data = text_buffers(texts)
    scale = kernels.common_scale(offsets, data)
    if scale < 0:
        return None
    values = np.empty(len(texts), np.int64)
    kernels.parse(offsets, data, scale, values)
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return Scaled(values, scale, low, high)


def raised(numbers: Scaled, scale: int) -> Scaled | None:
    """The same numbers in units of 10**-scale, which are no larger; None if 64 bits may not hold them."""
    factor = 10 ** (scale - numbers.scale)
    low, high = numbers.low * factor, numbers.high * factor
    if low <= -(1 << 63) or high >= 1 << 63:
        return None
    return Scaled(numbers.values if factor == 1 else numbers.values * factor, scale, low, high)


def texts_of(values: NDArray[np.int64], scale: int) -> pa.Array | None:
    """Plain texts of numbers in units of 10**-scale; None if they are more than one array takes."""
    if scale > MOST_SCALE or len(values) * _MOST_BYTES >= 1 << 31:
        return None
    offsets = np.empty(len(values) + 1, np.int64)
    kernels.text_offsets(values, scale, offsets)
    data = np.empty(int(offsets[-1]), np.uint8)
    kernels.write(values, scale, offsets, data)
    narrow = offsets.astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(narrow), pa.py_buffer(data)])
