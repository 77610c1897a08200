"""Dictionaries: the distinct values of a column. In a file they ascend, and a dict id is a value's rank. FORMAT.md
§5.1.

Order: numbers by value, with -0.0 before 0.0 and NaN after +Infinity; STRING, JSON and BYTES by their bytes (ADR 4);
BIG_DECIMAL by value.
"""

import bisect
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import bits, ordering
from merlot.kernels.jit import read_only
from merlot.segment.arrow_types import STORED_DTYPES, STORED_NAMES, is_fixed_width
from merlot.segment.buffers import Array, MappedFile
from merlot.segment.index import variable
from merlot.segment.index.variable import BYTES, OFFSETS, arrow_values, buffers_of, shapes_of
from merlot.segment.json_values import from_json
from merlot.segment.metadata import ColumnMetadata, Shapes
from merlot.values.types import TypeName

VALUES = "dict.values"
PACKED = "dict.packed"
_PREFIX = "dict."
TEXTS = _PREFIX + BYTES
"""Buffer with the bytes of a dictionary's texts."""

PACKED_VALUES: Final = 1 << 16
"""Limit for the values of a packed dictionary. A reader keeps their decoded values for as long as it lives, outside the
decode cache."""

# Estimate


def packed_width(values: Array) -> int | None:
    """Return the bits per value if packing takes a quarter off ascending integers, else None.

    In a segment of 1,000 rows and 20 columns, dictionaries are half the file; packed, they make the file a fifth
    smaller."""
    if values.dtype.kind != "i" or not 1 < len(values) <= PACKED_VALUES:
        return None
    width = (int(values[-1]) - int(values[0])).bit_length()
    packed = 8 * bits.packed_words(len(values), width)
    return width if width < bits.MAX_WIDTH and packed <= 0.75 * values.nbytes else None


# Write


def write_numeric(values: Array) -> dict[str, Array]:
    """Return the buffers of ascending numbers."""
    width = packed_width(values)
    if width is None:
        return {VALUES: values}
    words = np.zeros(bits.packed_words(len(values), width), dtype="<u8")
    bits.pack(values, int(values[0]), width, words)
    return {PACKED: words}


def write_variable(values: pa.Array) -> dict[str, Array]:
    """Return the buffers of ascending strings."""
    offsets, data = buffers_of(values)
    return {_PREFIX + OFFSETS: offsets, _PREFIX + BYTES: data}


# Check


def shapes(column: ColumnMetadata) -> Shapes:
    """Return the shapes of the `cardinality` values."""
    cardinality = column.cardinality or 0
    if not is_fixed_width(column.type):
        return shapes_of(_PREFIX, cardinality)
    if PACKED not in column.buffers:
        return {VALUES: (STORED_NAMES[column.type], cardinality)}
    width = stored_width(column)
    # An impossible number of bits gets a shape that no buffer has.
    fits = STORED_DTYPES[column.type].kind == "i" and 0 < width < bits.MAX_WIDTH and cardinality <= PACKED_VALUES
    return {PACKED: (("u8",) if fits else (), bits.packed_words(cardinality, width))}


def check_numbers(values: Array, metadata: ColumnMetadata, file: MappedFile) -> None:
    """Raise CorruptionError unless the values ascend from the minimum in the footer to the maximum."""
    if not len(values):
        return
    is_float = values.dtype.kind == "f"
    ascend = ordering.floats_ascend(values) if is_float else ordering.integers_ascend(values)
    file.require(bool(ascend), f"values of a dictionary do not ascend column={metadata.name}")
    for end, stored in ((metadata.min, values[0]), (metadata.max, values[-1])):
        assert end is not None
        expected = values.dtype.type(from_json(metadata.type, end))
        is_same = expected == stored or (is_float and np.isnan(expected) and np.isnan(stored))
        file.require(bool(is_same), f"values of a dictionary are not between min and max column={metadata.name}")


def check_strings(offsets: Array, data: NDArray[np.uint8], metadata: ColumnMetadata, file: MappedFile) -> None:
    """Raise CorruptionError as `check_numbers` does, for strings that have passed `variable.check`."""
    if len(offsets) == 1:
        return
    is_decimal = metadata.type is TypeName.BIG_DECIMAL
    ascend = ordering.decimals_ascend(offsets, data) if is_decimal else ordering.strings_ascend(offsets, data)
    file.require(bool(ascend), f"values of a dictionary do not ascend column={metadata.name}")
    for end, stored in ((metadata.min, Slices(offsets, data)[0]), (metadata.max, Slices(offsets, data)[-2])):
        if end is not None:
            expected = bytes.fromhex(str(end)) if metadata.type is TypeName.BYTES else str(end).encode()
            file.require(
                expected == stored, f"values of a dictionary are not between min and max column={metadata.name}"
            )


def stored_width(column: ColumnMetadata) -> int:
    """Return the bits of a value of a packed dictionary, counted from the minimum."""
    return (int(column.max or 0) - int(column.min or 0)).bit_length()


# Read


class ValueDictionary(Protocol):
    """Distinct values by dict id, in arbitrary order. In an `OrderedDictionary` they ascend."""

    def __len__(self) -> int: ...

    @property
    def numeric(self) -> Array | None:
        """Values of a fixed-width type; None for other types."""
        ...

    @property
    def ascending(self) -> Array | None:
        """The same as `numeric` if a dict id is a value's rank, else None."""
        ...

    def arrow(self) -> pa.Array:
        """Return all values; BOOLEAN as int32, TIMESTAMP as int64, BIG_DECIMAL as text."""
        ...


class OrderedDictionary(ABC):
    """`ValueDictionary` whose dict ids are ranks, so that comparing ids compares values. Sealed segments have no other.

    Values are ascending up to `_comparable`: NaN, which is last, compares with nothing."""

    _keys: Sequence[Any]
    _comparable: int

    @property
    @abstractmethod
    def numeric(self) -> Array | None: ...

    @abstractmethod
    def arrow(self) -> pa.Array: ...

    @property
    def ascending(self) -> Array | None:
        return self.numeric

    def _key(self, value: Any) -> Any:
        return value

    def __len__(self) -> int:
        return len(self._keys)

    def index_of(self, value: Any) -> int:
        """Return the dict id of a value, -1 if absent. -0.0 equals 0.0: if both are there, the id is that of -0.0, and
        `range_of` returns both."""
        key = self._key(value)
        if key != key:
            return self._comparable if self._comparable < len(self._keys) else -1
        position = bisect.bisect_left(self._keys, key, 0, self._comparable)
        return position if position < self._comparable and self._keys[position] == key else -1

    def range_of(self, low: Any, high: Any, include_low: bool, include_high: bool) -> tuple[int, int]:
        """Return the half-open range of the dict ids between two values; None is unbounded. It may be empty, never
        inverted."""
        start = 0 if low is None else self._bound(self._key(low), after=not include_low)
        stop = len(self._keys) if high is None else self._bound(self._key(high), after=include_high)
        return start, max(start, stop)

    def _bound(self, key: Any, *, after: bool) -> int:
        if key != key:
            return len(self._keys) if after else self._comparable
        search = bisect.bisect_right if after else bisect.bisect_left
        return search(self._keys, key, 0, self._comparable)


class NumericDictionary(OrderedDictionary):
    """Dictionary of numbers, over the mapped array, or over an array in memory that looks the same to kernels."""

    def __init__(self, values: Array) -> None:
        values = read_only(values)
        self._values = values
        self._keys = cast(Sequence[Any], values)
        last_is_nan = values.dtype.kind == "f" and len(values) > 0 and math.isnan(values[-1])
        self._comparable = len(values) - 1 if last_is_nan else len(values)

    @property
    def numeric(self) -> Array | None:
        return self._values

    def arrow(self) -> pa.Array:
        return pa.array(self._values)


class VariableDictionary(OrderedDictionary):
    """Dictionary of STRING, JSON or BYTES, over offsets and bytes, mapped or in memory."""

    def __init__(self, type_name: TypeName, offsets: Array, data: NDArray[np.uint8]) -> None:
        self._type = type_name
        self._offsets = offsets
        self._data = data
        self._keys = Slices(offsets, data)
        self._comparable = len(self._keys)

    def _key(self, value: Any) -> Any:
        return value.encode() if isinstance(value, str) else bytes(value)

    @property
    def numeric(self) -> Array | None:
        return None

    def arrow(self) -> pa.Array:
        return arrow_values(self._type, self._offsets, self._data)


class DecimalDictionary(VariableDictionary):
    """Dictionary of BIG_DECIMAL as plain text, in the order of the numbers."""

    def __init__(self, offsets: Array, data: NDArray[np.uint8]) -> None:
        super().__init__(TypeName.BIG_DECIMAL, offsets, data)
        self._keys = _Decimals(Slices(offsets, data))

    def _key(self, value: Any) -> Any:
        return value if isinstance(value, Decimal) else Decimal(str(value))


class UnorderedDictionary:
    """Dictionary in arbitrary order, over an array in memory: numbers, or texts as Arrow has them."""

    ascending: Array | None = None

    def __init__(self, values: Array | pa.Array) -> None:
        self._values = values
        self.numeric: Array | None = values if isinstance(values, np.ndarray) else None

    def __len__(self) -> int:
        return len(self._values)

    def arrow(self) -> pa.Array:
        return pa.array(self._values) if self.numeric is not None else self._values


class Slices(Sequence[bytes]):
    """Sequence of strings over their offsets and bytes."""

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


def of_values(type_name: TypeName, values: Array | pa.Array) -> OrderedDictionary:
    """Return a dictionary of distinct values that ascend."""
    if isinstance(values, np.ndarray):
        return NumericDictionary(values)
    offsets, data = variable.buffers_of(values)
    if type_name is TypeName.BIG_DECIMAL:
        return DecimalDictionary(offsets, data)
    return VariableDictionary(type_name, offsets, data)


def _unpacked(metadata: ColumnMetadata, file: MappedFile) -> Array:
    values = np.empty(metadata.cardinality or 0, dtype=STORED_DTYPES[metadata.type])
    width = stored_width(metadata)
    words = file.array(metadata.buffers[PACKED], bits.packed_words(len(values), width))
    bits.unpack(words, width, 0, int(metadata.min or 0), values)
    values.flags.writeable = False
    return values


def read(metadata: ColumnMetadata, file: MappedFile) -> OrderedDictionary:
    """Return the dictionary of a column that has one. Raises CorruptionError if it is not in order, because queries
    compare dict ids instead of values."""
    type_name, buffers, cardinality = metadata.type, metadata.buffers, metadata.cardinality or 0
    if is_fixed_width(type_name):
        numbers = _unpacked(metadata, file) if PACKED in buffers else file.array(buffers[VALUES], cardinality)
        check_numbers(numbers, metadata, file)
        return NumericDictionary(numbers)
    offsets, data = variable.arrays(_PREFIX, metadata, cardinality, file)
    variable.check(offsets, data, metadata, file)
    check_strings(offsets, data, metadata, file)
    if type_name is TypeName.BIG_DECIMAL:
        return DecimalDictionary(offsets, data)
    return VariableDictionary(type_name, offsets, data)
