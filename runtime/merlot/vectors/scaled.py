"""BIG_DECIMAL as whole numbers of a common scale, without an object per row, where 64 bits hold them: almost always."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import decimals as kernels
from merlot.vectors.texts import text_buffers

MOST_SCALE: Final = 40
"""Largest scale of numbers that `texts_of` writes."""
_MOST_DIGITS: Final = 18
_EXACT_DOUBLE: Final = 1 << 53
_EXACT_POWER: Final = 22
"""Exponent of the largest power of ten that is a double. Whole numbers up to `_EXACT_DOUBLE` are doubles too, so that a
quotient is rounded once."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Numbers in units of 10**-scale, none below `low` or above `high`: values (N,) i64, or () for a constant."""

    values: NDArray[np.int64]
    scale: int
    low: int
    high: int

    def __len__(self) -> int:
        return len(self.values)

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def with_values(self, values: NDArray[np.int64]) -> Scaled:
        """Return other numbers of the scale, for which the bounds hold."""
        return Scaled(values, self.scale, self.low, self.high)

    def doubles(self) -> NDArray[np.float64]:
        """Return the nearest doubles."""
        if self.scale <= _EXACT_POWER and max(-self.low, self.high) <= _EXACT_DOUBLE:
            return np.asarray(self.values / 10.0**self.scale)
        texts = texts_of(np.atleast_1d(self.values), self.scale)
        if texts is None:
            return doubles_of(self.objects())
        nearest: NDArray[np.float64] = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return nearest.reshape(self.values.shape)

    def objects(self) -> NDArray[np.object_]:
        """Return Decimal objects, each of which takes as long as a hundred of these numbers."""
        out = np.empty(self.values.size, object)
        for place, number in enumerate(np.atleast_1d(self.values).tolist()):
            out[place] = _number(number, self.scale)
        return out.reshape(self.values.shape)


def _number(units: int, scale: int) -> Decimal:
    """Return the Decimal that the plain text of the number is read as."""
    if not scale:
        return Decimal(units)
    whole = str(abs(units)).rjust(scale + 1, "0")
    fraction = whole[-scale:].rstrip("0")
    sign = "-" if units < 0 else ""
    return Decimal(f"{sign}{whole[:-scale]}.{fraction}" if fraction else f"{sign}{whole[:-scale]}")


def doubles_of(numbers: Any) -> NDArray[np.float64]:
    """Return the nearest doubles of numbers of any type, as vectors have them."""
    if isinstance(numbers, Scaled):
        return numbers.doubles()
    if numbers.dtype != object:
        return np.asarray(numbers, np.float64)
    return np.array([float(number) for number in np.atleast_1d(numbers)], np.float64).reshape(numbers.shape)


def scaled_of(texts: pa.Array) -> Scaled | None:
    """Read plain decimal texts without nulls as whole numbers; None if 64 bits may not hold a number, or if a text is
    not plain."""
    offsets, data = text_buffers(texts)
    scale = kernels.common_scale(offsets, data)
    if scale < 0:
        return None
    values = np.empty(len(texts), np.int64)
    kernels.parse(offsets, data, scale, values)
    return bounded(values, scale)


def bounded(values: NDArray[np.int64], scale: int) -> Scaled:
    """Return numbers with bounds that they reach."""
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    return Scaled(values, scale, low, high)


def constant_of(number: Decimal) -> Scaled | None:
    """Return a constant; None if 64 bits may not hold it."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or abs(exponent) > _MOST_DIGITS or len(digits) + max(0, exponent) > _MOST_DIGITS:
        return None
    units = int("".join(map(str, digits))) * (-1 if sign else 1) * 10 ** max(0, exponent)
    return Scaled(np.array(units, np.int64), max(0, -exponent), units, units)


def raised(numbers: Scaled, scale: int) -> Scaled | None:
    """Return the same numbers in units of 10**-scale, which are no larger; None if 64 bits may not hold them."""
    if scale == numbers.scale:
        return numbers
    if scale - numbers.scale > _MOST_DIGITS:
        return None
    factor = 10 ** (scale - numbers.scale)
    low, high = numbers.low * factor, numbers.high * factor
    if low <= -(1 << 63) or high >= 1 << 63:
        return None
    return Scaled(np.asarray(numbers.values * factor), scale, low, high)


def aligned(parts: Sequence[Scaled]) -> list[Scaled] | None:
    """Return all parts in the smallest of their units; None if 64 bits may not hold a number."""
    scale = max(part.scale for part in parts)
    same = []
    for part in parts:
        numbers = raised(part, scale)
        if numbers is None:
            numbers = raised(bounded(part.values, part.scale), scale)
        if numbers is None:
            return None
        same.append(numbers)
    return same


def joined(parts: Sequence[Scaled], join: Any) -> Scaled | None:
    """Bring the parts to one unit, and join their values by `join`, which takes each value from one of the parts.
    Return None if 64 bits may not hold a number."""
    same = aligned(parts)
    if same is None:
        return None
    values = join([part.values for part in same])
    return Scaled(values, same[0].scale, min(part.low for part in same), max(part.high for part in same))


def texts_of(values: NDArray[np.int64], scale: int) -> pa.Array | None:
    """Return plain texts of numbers in units of 10**-scale; None for a scale above MOST_SCALE, or for more bytes than
    one array takes."""
    if scale > MOST_SCALE:
        return None
    offsets = np.empty(len(values) + 1, np.int64)
    kernels.text_offsets(values, scale, offsets)
    if offsets[-1] >= 1 << 31:
        return None
    data = np.empty(int(offsets[-1]), np.uint8)
    kernels.write(values, scale, offsets, data)
    narrow = offsets.astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(narrow), pa.py_buffer(data)])
