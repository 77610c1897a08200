"""Arrays to whose end one thread writes, and whose beginning any thread reads."""

from __future__ import annotations

import mmap
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.segment.buffers import Array
from merlot.segment.index.nulls import words_of

FIRST_ROOM: Final = 1024
MAPPED_BYTES: Final = 1 << 18


class GrowingArray:
    """Elements by position. What was put stays where `view` finds it, until something else is put in its place.

    When there is no room left, the elements move to an array of at least twice the room. Views of the old array keep it
    alive and stay right. Room that was never written to takes no memory, because the kernel gives pages when they are
    first written."""

    __slots__ = ("_array",)

    def __init__(self, dtype: Any) -> None:
        self._array: Array = np.empty(FIRST_ROOM, dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._array.dtype

    def put(self, position: int, values: Array) -> None:
        """Write values from a position on; everything before it was put already. For the writer alone."""
        self.reserve(position, len(values))[position : position + len(values)] = values

    def reserve(self, filled: int, more: int) -> Array:
        """Return the array itself, of which `filled` elements count, with room for `more`. For the writer alone."""
        array = self._array
        if filled + more > len(array):
            larger = _room_for(max(filled + more, 2 * len(array)), array.dtype)
            larger[:filled] = array[:filled]
            self._array = array = larger
        return array

    def view(self, count: int) -> Array:
        """Return the first elements, read-only. `count` is a number of elements that the writer has announced."""
        view = self._array[:count]
        view.flags.writeable = False
        return view


def _room_for(count: int, dtype: np.dtype[Any]) -> Array:
    """Return an array without content. A large array is a mapping of its own: its pages are allocated as they are
    written to, and freed with the last view of it. The allocator would keep the pages of every array that was
    outgrown."""
    num_bytes = count * dtype.itemsize
    if num_bytes < MAPPED_BYTES:
        return np.empty(count, dtype)
    return np.frombuffer(mmap.mmap(-1, num_bytes), dtype, count)


class GrowingBits:
    """Bits by position; bits that were never put are 0."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: NDArray[np.uint64] = np.zeros(FIRST_ROOM // 64, np.uint64)

    def put(self, position: int, bits: NDArray[np.bool_]) -> None:
        """Write bits from a position on. For the writer alone."""
        first, before = position >> 6, position & 63
        self._reserve(position + len(bits))
        earlier = np.unpackbits(self._words[first : first + 1].view(np.uint8), count=before, bitorder="little")
        words = words_of(np.concatenate([earlier.view(np.bool_), bits]))
        self._words[first : first + len(words)] = words

    def words(self, count: int) -> NDArray[np.uint64] | None:
        """Return the words of the first `count` bits, with 0 behind them; None if none of them is set.

        The words are a copy, because the last word of a view would hold bits of later positions, which change."""
        words = self._words[: (count + 63) >> 6].copy()
        if count & 63 and len(words):
            words[-1] &= (np.uint64(1) << np.uint64(count & 63)) - np.uint64(1)
        words.flags.writeable = False
        return words if words.any() else None

    def _reserve(self, count: int) -> None:
        needed = (count + 63) >> 6
        if needed >= len(self._words):
            larger = np.zeros(max(needed + 1, 2 * len(self._words)), np.uint64)
            larger[: len(self._words)] = self._words
            self._words = larger
