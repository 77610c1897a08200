"""Group rows with equal keys: codes of columns are packed into words, and words into groups, for queries and merges
alike.

A word is a mixed-radix number of at most 63 bits, or a single code of 64 bits. Codes that do not fit go into another
word. So any number of columns of any cardinality has exact groups, and a table of groups grows with the groups that
exist, not with the combinations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import group as kernels
from merlot.kernels.jit import read_only
from merlot.vectors import account

WORD: Final = 1 << 63
"""Combinations that a word of several codes can distinguish; a code of 64 bits has a word of its own."""
MAX_DENSE: Final = 1 << 24
"""Combinations up to which each may have a slot of its own."""
LEAST_ROOM: Final = 1 << 10
MOST_ROOM_AT_FIRST: Final = 1 << 15

Codes = NDArray[Any]
Words = NDArray[np.uint64]
Rows = NDArray[np.uint32]


@dataclass(slots=True)
class KeyWords:
    """Codes of columns, most significant first, packed into as few words as hold them."""

    num_rows: int
    words: list[Words] = field(default_factory=list)
    spaces: list[int] = field(default_factory=list)
    """Number of keys that each word can distinguish."""

    def add(self, codes: Codes, cardinality: int) -> None:
        """Append a column whose codes are below `cardinality`."""
        if cardinality <= 1:
            return
        is_first = not self.words or not fits(self.spaces[-1], cardinality)
        if is_first:
            self.words.append(np.zeros(self.num_rows, np.uint64))
            self.spaces.append(1)
        kernels.append_key(read_only(codes), 0 if is_first else cardinality, self.words[-1])
        self.spaces[-1] *= cardinality

    def take(self, rows: Rows) -> KeyWords:
        """Return the keys of some rows."""
        return KeyWords(len(rows), [word[rows] for word in self.words], list(self.spaces))


def fits(space: int, cardinality: int) -> bool:
    """Return True if a word of `space` keys has room for one more column."""
    return space * cardinality <= WORD


class Packing:
    """Assignment of columns to words, by which keys can be taken apart again."""

    def __init__(self, cardinalities: Sequence[int]) -> None:
        self.places: list[tuple[int, int]] = []
        """Word of each column, and the radix to append with, 0 for the first of a word."""
        self.spaces: list[int] = []
        self._cardinalities = cardinalities
        for cardinality in cardinalities:
            is_first = not self.spaces or not fits(self.spaces[-1], cardinality)
            if is_first:
                self.spaces.append(1)
            self.spaces[-1] *= cardinality
            self.places.append((len(self.spaces) - 1, 0 if is_first else cardinality))

        if not self.spaces:
            self.spaces.append(1)

    @property
    def width(self) -> int:
        """Number of words of a key, at least one."""
        return len(self.spaces)

    @property
    def space(self) -> int:
        """Number of possible keys."""
        space = 1
        for word_space in self.spaces:
            space *= word_space
        return space

    def codes(self, keys: Words) -> list[Words]:
        """Return the codes of each column, of keys (G, W)."""
        left = [keys[:, word] for word in range(keys.shape[1])]
        codes: list[Words] = []
        for (word, radix), cardinality in zip(reversed(self.places), reversed(self._cardinalities), strict=True):
            if radix:
                left[word], code = np.divmod(left[word], np.uint64(cardinality))
            else:
                code = left[word]
            codes.append(code)
        codes.reverse()
        return codes


class GroupTable:
    """Groups of keys of `width` words, by order of arrival; memory grows with the groups.

    The query that the thread works for holds the table's memory until `close`."""

    def __init__(self, width: int, num_rows: int) -> None:
        """`num_rows` is the largest number of keys that is expected."""
        self.num_groups = 0
        self._width = width
        self._room = max(LEAST_ROOM, min(num_rows, MOST_ROOM_AT_FIRST))
        self._num_bytes = 0
        self._hold(self._bytes_of(self._room))
        self._keys = np.empty((self._room, width), np.uint64)
        self._slots = _slots_for(self._room)

    def assign(self, words: Words) -> NDArray[np.uint32]:
        """Return the group of each key; words (W, N)."""
        num_rows = words.shape[1]
        groups = np.empty(num_rows, np.uint32)
        start = 0
        while start < num_rows:
            # Every row may be a new group. A step begins with a quarter of the table free, so that steps are few.
            if 4 * self.num_groups > 3 * self._room:
                self._grow()
            stop = min(num_rows, start + self._room - self.num_groups)
            self._assign(words, start, stop, groups)
            start = stop
        return groups

    def keys(self) -> Words:
        """Return the key of each group, (G, W)."""
        return self._keys[: self.num_groups]

    def close(self) -> None:
        """Give the memory back to the query's account; the caller frees the table next."""
        self._hold(0)

    def _hold(self, num_bytes: int) -> None:
        account.current().resize("groups", self._num_bytes, num_bytes)
        self._num_bytes = num_bytes

    def _bytes_of(self, room: int) -> int:
        return room * self._width * 8 + _num_slots(room) * 4

    def _assign(self, words: Words, start: int, stop: int, groups: NDArray[np.uint32]) -> None:
        if self._width == 1:
            keys = words[0, start:stop]
            self.num_groups = kernels.assign_groups(
                keys, self.num_groups, self._slots, self._keys.reshape(-1), groups[start:stop]
            )
        else:
            self.num_groups = kernels.assign_wide(words, start, stop, self.num_groups, self._slots, self._keys, groups)

    def _grow(self) -> None:
        before = self._num_bytes
        self._room *= 2
        self._hold(before + self._bytes_of(self._room))
        larger = np.empty((self._room, self._width), np.uint64)
        larger[: self.num_groups] = self.keys()
        self._keys = larger
        self._slots = _slots_for(self._room)
        self._hold(self._num_bytes - before)
        if self._width == 1:
            kernels.fill_slots(self.keys().reshape(-1), self._slots)
        else:
            kernels.fill_slots_wide(self.keys(), self._slots)


def _num_slots(room: int) -> int:
    return 1 << (2 * room - 1).bit_length()


def _slots_for(room: int) -> NDArray[np.uint32]:
    return np.full(_num_slots(room), kernels.EMPTY, np.uint32)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows, numbered from 0. `group` numbers them in the order of arrival; other functions may use another
    order."""

    of_rows: NDArray[np.uint32]
    """Group of each row."""
    first_rows: Rows
    """First row of each group; ascending only if groups are numbered in the order of arrival."""

    def __len__(self) -> int:
        return len(self.first_rows)


def group(keys: KeyWords) -> Groups:
    """Group rows with equal keys; groups are numbered in the order of arrival."""
    if not keys.words:
        return Groups(np.zeros(keys.num_rows, np.uint32), np.zeros(min(1, keys.num_rows), np.uint32))
    if len(keys.words) == 1 and is_dense(keys.spaces[0], keys.num_rows):
        of_rows = np.empty(keys.num_rows, np.uint32)
        account.current().expect("groups", 4 * keys.spaces[0])
        slots = np.full(keys.spaces[0], kernels.EMPTY, np.uint32)
        num_groups = kernels.assign_dense(keys.words[0], slots, of_rows)
    else:
        table = GroupTable(len(keys.words), keys.num_rows)
        words = keys.words[0][np.newaxis] if len(keys.words) == 1 else np.stack(keys.words)
        of_rows = table.assign(words)
        num_groups = table.num_groups
        table.close()
    first_rows = np.empty(num_groups, np.uint32)
    kernels.first_rows(of_rows, first_rows)
    return Groups(of_rows, first_rows)


def is_dense(space: int, num_rows: int) -> bool:
    """Return True if an array of `space` elements is cheaper than hashing num_rows keys."""
    return space <= min(MAX_DENSE, 8 * num_rows + 65_536)
