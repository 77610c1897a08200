"""Values with a dictionary in the order of their first occurrence. They become plain values once it does not pay.

The table that finds a value's dict id is the writer's alone. A reader takes the first entries of the dictionary, as it
takes the first values; these entries do not change.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels.hashing import hash_spans
from merlot.kernels.jit import read_only
from merlot.kernels.texts import EMPTY, assign_texts, fill_text_slots
from merlot.segment.arrow_types import STORED_DTYPES, is_fixed_width
from merlot.segment.buffers import Array
from merlot.segment.build.encoding import DISTINCT_SHARE
from merlot.segment.index.dict_ids import id_dtype
from merlot.segment.index.dictionary import UnorderedDictionary, ValueDictionary
from merlot.segment.index.variable import arrow_values, buffers_of
from merlot.segment.mutable.growing_arrays import GrowingArray
from merlot.segment.mutable.values import MAX_SMALL_BYTES, GrowingValues, Numbers, Texts, ValuePrefix
from merlot.values.types import TypeName
from merlot.vectors.groups import GroupTable

FIRST_LOOK: Final = 1 << 18
"""Number of values after which a dictionary is first compared with plain values; the comparison is repeated when the
number has doubled. If 100,000 texts are evenly distributed, nearly all are new at first: 4,096 values say nothing about
a million."""
MOST_MEMORY: Final = 1.5
"""Multiple of the memory of plain values that a dictionary and its ids may take, because GROUP BY, DISTINCT and
predicates are ten times faster by dict id."""
_DECODED: Final = 1 << 20


class ValueEntries(Protocol):
    """Distinct values. The dict id of a value is the number of values before it."""

    @property
    def bounds(self) -> tuple[int, int] | None: ...
    @property
    def nbytes(self) -> int:
        """Memory of the values, and of the table that finds them."""
        ...

    def __len__(self) -> int: ...
    def has_room_for(self, values: Array | pa.Array) -> bool:
        """Return True if there is room even if all of the values are new."""
        ...

    def ids_of(self, values: Array | pa.Array) -> NDArray[np.uint32]:
        """Return the dict id of each value; new values become entries."""
        ...

    def dictionary(self, count: int) -> ValueDictionary:
        """Return a dictionary of the first `count` entries."""
        ...


class NumberEntries:
    """Distinct whole numbers."""

    def __init__(self, type_: TypeName) -> None:
        self._table = GroupTable(1, 0)
        self._numbers = GrowingArray(STORED_DTYPES[type_])
        self.bounds: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self._table.num_groups

    @property
    def nbytes(self) -> int:
        """Memory of the numbers, and of the table that finds them, estimated as 24 bytes per number."""
        return (self._numbers.dtype.itemsize + 24) * len(self)

    def has_room_for(self, values: Array | pa.Array) -> bool:
        return True

    def ids_of(self, values: Array | pa.Array) -> NDArray[np.uint32]:
        num_before = len(self)
        ids = self._table.assign(values.astype(np.int64).view(np.uint64).reshape(1, -1))
        new = self._table.keys()[num_before:, 0].view(np.int64)
        if len(new):
            self._numbers.put(num_before, new)
            low, high = int(new.min()), int(new.max())
            before = self.bounds or (low, high)
            self.bounds = min(low, before[0]), max(high, before[1])
        return ids

    def dictionary(self, count: int) -> ValueDictionary:
        return UnorderedDictionary(self._numbers.view(count))


class TextEntries:
    """Distinct texts."""

    bounds: tuple[int, int] | None = None

    def __init__(self, type_: TypeName) -> None:
        self._type = type_
        self._count = np.zeros(1, np.int64)
        self._slots = _empty(1024)
        self._hashes = GrowingArray(np.uint64)
        self._offsets = GrowingArray(np.int32)
        self._offsets.put(0, np.zeros(1, np.int32))
        self._data = GrowingArray(np.uint8)

    def __len__(self) -> int:
        return int(self._count[0])

    @property
    def nbytes(self) -> int:
        return 12 * len(self) + self._filled + self._slots.nbytes

    @property
    def _filled(self) -> int:
        count = len(self)
        return int(self._offsets.view(count + 1)[count])

    def has_room_for(self, values: Array | pa.Array) -> bool:
        return self._filled + int(values.nbytes) < MAX_SMALL_BYTES

    def ids_of(self, values: Array | pa.Array) -> NDArray[np.uint32]:
        offsets, data = map(read_only, buffers_of(values))
        hashes = np.empty(len(values), np.uint64)
        hash_spans(data, offsets, hashes)
        ids = np.empty(len(values), np.uint32)
        row = 0
        while True:
            count = len(self)
            data_room = self._data.reserve(self._filled, 0)
            room = self._hashes.reserve(count, 1), self._offsets.reserve(count + 1, 1), data_room
            row = assign_texts(offsets, data, hashes, row, self._count, self._slots, *room, ids)
            if row == len(values):
                return ids
            self._make_room(int(offsets[row + 1] - offsets[row]))

    def dictionary(self, count: int) -> ValueDictionary:
        offsets = self._offsets.view(count + 1)
        return UnorderedDictionary(arrow_values(self._type, offsets, self._data.view(int(offsets[count]))))

    def _make_room(self, length: int) -> None:
        """Make room for one more entry of `length` bytes."""
        count = len(self)
        self._data.reserve(self._filled, length)
        if 2 * count >= len(self._slots):
            slots = _empty(2 * len(self._slots))
            fill_text_slots(self._hashes.view(count), slots)
            self._slots = slots


def _empty(size: int) -> NDArray[np.uint32]:
    return np.full(size, EMPTY, np.uint32)


class _Coded(NamedTuple):
    """Ids, and the number of entries that they refer to: ids are below that number, and wide enough for it."""

    ids: GrowingArray
    num_entries: int


class CodedValues:
    """Values as dict ids, and their dictionary."""

    def __init__(self, type_: TypeName, *, is_wanted: bool = False) -> None:
        """is_wanted: keep the dictionary even if plain values take less memory, unless its texts outgrow 32-bit
        offsets."""
        self._type = type_
        self._entries: ValueEntries = NumberEntries(type_) if is_fixed_width(type_) else TextEntries(type_)
        self._coded = _Coded(GrowingArray(np.uint8), 0)
        self._plain_bytes = 0
        self._next_look = FIRST_LOOK
        self._is_wanted = is_wanted

    @property
    def bounds(self) -> tuple[int, int] | None:
        return self._entries.bounds

    def append(self, position: int, values: Array | pa.Array) -> GrowingValues:
        if not self._entries.has_room_for(values):
            return self._as_plain(position).append(position, values)
        ids = self._entries.ids_of(values)
        array, num_entries = self._coded.ids, len(self._entries)
        if id_dtype(num_entries).itemsize > array.dtype.itemsize:
            wider = GrowingArray(id_dtype(num_entries))
            wider.put(0, array.view(position))
            array = wider
        array.put(position, ids)
        self._coded = _Coded(array, num_entries)
        self._plain_bytes += values.nbytes
        count = position + len(values)
        if count < self._next_look or self._is_wanted:
            return self
        self._next_look = 2 * count
        return self if self._pays(count) else self._as_plain(count)

    def _pays(self, count: int) -> bool:
        is_small = self.nbytes(count) <= MOST_MEMORY * self._plain_bytes
        return is_small and len(self._entries) <= DISTINCT_SHARE * count

    def prefix(self, count: int) -> ValuePrefix:
        coded = self._coded
        return CodedPrefix(coded.ids.view(count), self._entries.dictionary(coded.num_entries))

    def nbytes(self, count: int) -> int:
        return count * self._coded.ids.dtype.itemsize + self._entries.nbytes

    def _as_plain(self, count: int) -> GrowingValues:
        plain: GrowingValues = Numbers(self._type) if is_fixed_width(self._type) else Texts(self._type)
        entries, ids = self._entries.dictionary(len(self._entries)), self._coded.ids.view(count)
        for start in range(0, count, _DECODED):
            part = ids[start : start + _DECODED]
            numbers = entries.numeric
            plain.append(start, entries.arrow().take(pa.array(part)) if numbers is None else numbers[part])
        return plain


class CodedPrefix:
    """The first values of a column, by dict id."""

    def __init__(self, ids: Array, dictionary: ValueDictionary) -> None:
        self._ids = ids
        self.dictionary: ValueDictionary | None = dictionary

    def dict_ids(self) -> Array:
        return self._ids

    def values(self) -> Array:
        raise AssertionError("these values have a dictionary")

    def strings(self) -> pa.Array:
        raise AssertionError("these values have a dictionary")
