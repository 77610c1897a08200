"""Dictionaries: the distinct values of a column, ascending; a dict id is a value's rank. FORMAT.md §5.1.

Order: numbers by value, with -0.0 before 0.0 and NaN after +Infinity; STRING, JSON and BYTES by their bytes (ADR 4);
BIG_DECIMAL by value.
"""

import bisect
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.segment.arrow_types import is_fixed_width
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.index.variable import BYTES, OFFSETS, arrow_values, buffers_of
from merlot.segment.metadata import BufferRef
from merlot.spec.types import TypeName

VALUES = "dict.values"
_PREFIX = "dict."

# Estimate


def variable_size_bytes(values: pa.Array) -> int:
    """What a dictionary of these strings takes."""
    offsets, data = buffers_of(values)
    return offsets.nbytes + data.nbytes


# Write


def write_numeric(values: Array) -> dict[str, Array]:
    """Buffers of ascending numbers."""
    return {VALUES: values}


def write_variable(values: pa.Array) -> dict[str, Array]:
    """Buffers of ascending strings."""
    offsets, data = buffers_of(values)
    return {_PREFIX + OFFSETS: offsets, _PREFIX + BYTES: data}


# Read


class Dictionary(Protocol):
    """Values of dict ids, and dict ids of values."""

    def __len__(self) -> int: ...

    @property
    def numeric(self) -> Array | None:
        """The values of a fixed-width type, ascending; None for others."""
        ...

    def arrow(self) -> pa.Array:
        """All values; BOOLEAN as int32, TIMESTAMP as int64, BIG_DECIMAL as text."""
        ...

    def index_of(self, value: Any) -> int:
        """Dict id of a value, -1 if absent. -0.0 finds 0.0: `range_of` finds both."""
        ...

    def range_of(self, low: Any, high: Any, include_low: bool, include_high: bool) -> tuple[int, int]:
        """Half-open range of the dict ids between two values; None is unbounded. May be empty, never inverted."""
        ...


class _Ordered:
    """Binary search over a sequence that is ascending up to `_comparable`: NaN compares with nothing."""

    _keys: Sequence[Any]
    _comparable: int

    def _key(self, value: Any) -> Any:
        return value

    def __len__(self) -> int:
        return len(self._keys)

    def index_of(self, value: Any) -> int:
        key = self._key(value)
        if key != key:
            return self._comparable if self._comparable < len(self._keys) else -1
        position = bisect.bisect_left(self._keys, key, 0, self._comparable)
        return position if position < self._comparable and self._keys[position] == key else -1

    def range_of(self, low: Any, high: Any, include_low: bool, include_high: bool) -> tuple[int, int]:
        start = 0 if low is None else self._bound(self._key(low), after=not include_low)
        stop = len(self._keys) if high is None else self._bound(self._key(high), after=include_high)
        return start, max(start, stop)

    def _bound(self, key: Any, *, after: bool) -> int:
        if key != key:
            return len(self._keys) if after else self._comparable
        search = bisect.bisect_right if after else bisect.bisect_left
        return search(self._keys, key, 0, self._comparable)


class NumericDictionary(_Ordered):
    """Numbers, over the mapped array."""

    def __init__(self, values: Array) -> None:
        self._values = values
        self._keys = cast(Sequence[Any], values)
        last_is_nan = values.dtype.kind == "f" and len(values) > 0 and math.isnan(values[-1])
        self._comparable = len(values) - 1 if last_is_nan else len(values)

    @property
    def numeric(self) -> Array | None:
        return self._values

    def arrow(self) -> pa.Array:
        return pa.array(self._values)


class VariableDictionary(_Ordered):
    """STRING, JSON and BYTES, over the mapped offsets and bytes."""

    def __init__(self, type_name: TypeName, offsets: Array, data: NDArray[np.uint8]) -> None:
        self._type = type_name
        self._offsets = offsets
        self._data = data
        self._keys = _Slices(offsets, data)
        self._comparable = len(self._keys)

    def _key(self, value: Any) -> Any:
        return value.encode() if isinstance(value, str) else bytes(value)

    @property
    def numeric(self) -> Array | None:
        return None

    def arrow(self) -> pa.Array:
        return arrow_values(self._type, self._offsets, self._data)


class DecimalDictionary(VariableDictionary):
    """BIG_DECIMAL as plain text, in the order of the numbers."""

    def __init__(self, offsets: Array, data: NDArray[np.uint8]) -> None:
        super().__init__(TypeName.BIG_DECIMAL, offsets, data)
        self._keys = _Decimals(_Slices(offsets, data))

    def _key(self, value: Any) -> Any:
        return value if isinstance(value, Decimal) else Decimal(str(value))


class _Slices(Sequence[bytes]):
    def __init__(self, offsets: Array, data: NDArray[np.uint8]) -> None:
        self._offsets = offsets
        self._data = data.data

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, position: Any) -> Any:
        return bytes(self._data[self._offsets[position] : self._offsets[position + 1]])


class _Decimals(Sequence[Decimal]):
    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, position: Any) -> Any:
        return Decimal(self._texts[position].decode())


def read(type_name: TypeName, buffers: Mapping[str, BufferRef], file: MappedFile) -> Dictionary:
    """The dictionary of a column that has one."""
    if is_fixed_width(type_name):
        return NumericDictionary(file.array(buffers[VALUES]))
    offsets, data = file.array(buffers[_PREFIX + OFFSETS]), file.array(buffers[_PREFIX + BYTES])
    if type_name is TypeName.BIG_DECIMAL:
        return DecimalDictionary(offsets, data)
    return VariableDictionary(type_name, offsets, data)
