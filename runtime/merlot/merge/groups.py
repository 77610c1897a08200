"""Which rows become one: groups of rows with equal keys."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import merge as kernels
from merlot.merge.columns import Rows
from merlot.merge.order import KeyWords

_MAX_DENSE: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups by order of arrival."""

    of_rows: NDArray[np.uint32]
    first_rows: Rows
    """Ascending."""

    def __len__(self) -> int:
        return len(self.first_rows)


def group(keys: KeyWords) -> Groups:
    """Rows with equal keys are one group."""
    if not keys.words:
        return Groups(np.zeros(keys.num_rows, np.uint32), np.zeros(min(1, keys.num_rows), np.uint32))
    if len(keys.words) == 1 and keys.spaces[0] <= min(_MAX_DENSE, 8 * keys.num_rows + 65_536):
        return _group_dense(keys.words[0], keys.spaces[0])
    return _group_wide(keys.words[0][np.newaxis] if len(keys.words) == 1 else np.stack(keys.words))


def _group_dense(word: NDArray[np.uint64], space: int) -> Groups:
    of_rows = np.empty(len(word), np.uint32)
    first_rows = np.empty(min(space, len(word)), np.uint32)
    number = kernels.group_dense(word, 0, np.full(space, kernels.EMPTY, np.uint32), first_rows, of_rows)
    return Groups(of_rows, first_rows[:number])


def _group_wide(words: NDArray[np.uint64]) -> Groups:
    width, num_rows = words.shape
    of_rows = np.empty(num_rows, np.uint32)
    room = min(num_rows, 1 << 16)
    slots = np.full(_slots_for(room), kernels.EMPTY, np.uint32)
    keys, first_rows = np.empty((room, width), np.uint64), np.empty(room, np.uint32)
    number = start = 0
    while start < num_rows:
        if 2 * number > room and room < num_rows:
            room = min(num_rows, 4 * room)
            keys, first_rows = _grown(keys, room), _grown(first_rows, room)
            slots = np.full(_slots_for(room), kernels.EMPTY, np.uint32)
            kernels.refill_wide(keys, number, slots)
        # Every row may be a new group; at least half of the room is free.
        stop = min(num_rows, start + room - number)
        number = kernels.group_wide(words, start, stop, number, slots, keys, first_rows, of_rows)
        start = stop
    return Groups(of_rows, first_rows[:number].copy())


def _slots_for(room: int) -> int:
    return 1 << max(4, (2 * room - 1).bit_length())


def _grown(array: NDArray[Any], room: int) -> NDArray[Any]:
    larger = np.empty((room, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
