"""Values of a column while they arrive: numbers in an array, texts as Arrow lays them out.

The writer appends at a position; a reader takes a prefix, the first values. Bounds hold for every prefix.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from merlot.kernels import bits
from merlot.kernels.jit import read_only
from merlot.segment.arrow_types import STORED_DTYPES
from merlot.segment.buffers import Array
from merlot.segment.index.dictionary import ValueDictionary
from merlot.segment.index.variable import arrow_values, buffers_of
from merlot.segment.mutable.growing_arrays import GrowingArray
from merlot.values.types import TypeName

MAX_SMALL_BYTES = 1 << 31
"""Size from which the texts of a column need 64-bit offsets."""


class ValuePrefix(Protocol):
    """The first values of a column: dict ids and a dictionary, numbers, or texts."""

    @property
    def dictionary(self) -> ValueDictionary | None: ...
    def dict_ids(self) -> Array: ...
    def values(self) -> Array: ...
    def strings(self) -> pa.Array: ...


class GrowingValues(Protocol):
    """All values of a column so far."""

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Whole numbers between which all values lie; None if not known."""
        ...

    def append(self, position: int, values: Array | pa.Array) -> GrowingValues:
        """Write values from a position on. Returns the container that holds all of them from now on: this one or
        another."""
        ...

    def prefix(self, count: int) -> ValuePrefix: ...
    def nbytes(self, count: int) -> int:
        """Return the memory of the first values."""
        ...


class Numbers:
    """Growing values of fixed width."""

    def __init__(self, type_: TypeName) -> None:
        self._array = GrowingArray(STORED_DTYPES[type_])
        self.bounds: tuple[int, int] | None = None

    def append(self, position: int, values: Array | pa.Array) -> GrowingValues:
        assert isinstance(values, np.ndarray)
        self._array.put(position, values)
        if values.dtype.kind == "i" and len(values):
            ends = np.empty(2, values.dtype)
            bits.min_max(read_only(values), ends)
            low, high = ends.tolist()
            before = self.bounds or (low, high)
            self.bounds = min(low, before[0]), max(high, before[1])
        return self

    def prefix(self, count: int) -> ValuePrefix:
        return NumberPrefix(self._array.view(count))

    def nbytes(self, count: int) -> int:
        return count * self._array.dtype.itemsize


class NumberPrefix:
    """The first numbers of a column."""

    dictionary: ValueDictionary | None = None

    def __init__(self, numbers: Array) -> None:
        self._numbers = numbers

    def dict_ids(self) -> Array:
        raise AssertionError("these numbers have no dictionary")

    def values(self) -> Array:
        return self._numbers

    def strings(self) -> pa.Array:
        raise AssertionError("numbers are no texts")


class Texts:
    """Growing values of variable width."""

    bounds: tuple[int, int] | None = None

    def __init__(self, type_: TypeName) -> None:
        self.type = type_
        self._offsets = GrowingArray(np.dtype("<i4"))
        self._offsets.put(0, np.zeros(1, np.int32))
        self._data = GrowingArray(np.uint8)

    def append(self, position: int, values: Array | pa.Array) -> GrowingValues:
        offsets, data = buffers_of(values)
        end = int(self._offsets.view(position + 1)[position])
        if end + len(data) >= MAX_SMALL_BYTES and self._offsets.dtype.itemsize == 4:
            wide = GrowingArray(np.dtype("<i8"))
            wide.put(0, self._offsets.view(position + 1))
            self._offsets = wide
        self._data.put(end, data)
        self._offsets.put(position + 1, offsets[1:].astype(self._offsets.dtype) + self._offsets.dtype.type(end))
        return self

    def prefix(self, count: int) -> ValuePrefix:
        offsets = self._offsets.view(count + 1)
        return TextPrefix(arrow_values(self.type, offsets, self._data.view(int(offsets[count]))))

    def nbytes(self, count: int) -> int:
        return (count + 1) * self._offsets.dtype.itemsize + int(self._offsets.view(count + 1)[count])


class TextPrefix:
    """The first texts of a column."""

    dictionary: ValueDictionary | None = None

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts

    def dict_ids(self) -> Array:
        raise AssertionError("these texts have no dictionary")

    def values(self) -> Array:
        raise AssertionError("texts are no numbers")

    def strings(self) -> pa.Array:
        return self._texts
