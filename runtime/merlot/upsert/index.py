"""Index of a partition's primary keys: shards of open-addressing tables (`kernels.upsert`) with one writer.

A shard grows by an eighth once it is nine tenths full, at another time than its neighbours: an entry of 32 bytes (one
comparison value) takes 36 to 40 bytes, 38 on average; while a shard grows, a sixty-fourth of the keys is stored twice.
Tables larger than LARGE_BYTES are memory-mapped, so that the system gets their memory back.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import upsert as kernels
from merlot.kernels.upsert import FIRST_VALUE
from merlot.upsert.keys import Keys

Longs = NDArray[np.int64]

SHARDS: Final = 64
LARGE_BYTES: Final = 1 << 16
_FULL: Final = (9, 10)
_SMALL_SLOTS: Final = 512
_FIRST_SLOTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEntries:
    """Rows to enter, (N,) each; `values` (N, C), whose NULLs are filled in from the row that is replaced.

    places are those of `kernels.upsert`; alive_from and deleted_from are the bounds that each row sees."""

    keys: Keys
    values: Longs
    places: Longs
    alive_from: Longs
    deleted_from: Longs
    verdicts: NDArray[np.uint8] = field(init=False)
    """Verdict on each row."""
    replaced: Longs = field(init=False)
    """Place that each row took its key from; 0: none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdicts", np.zeros(len(self.places), np.uint8))
        object.__setattr__(self, "replaced", np.zeros(len(self.places), np.int64))


class FoundKeys(NamedTuple):
    """Keys that are in the index, and the first comparison value of each, (N,) each."""

    is_there: NDArray[np.bool_]
    values: Longs


class Shard:
    """A table of a part of the keys."""

    def __init__(self, number: int, num_values: int) -> None:
        self._number = number
        self._width = FIRST_VALUE + num_values
        self.clear()

    @property
    def num_keys(self) -> int:
        """Number of entries."""
        return int(self._used[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return int(self._table.nbytes)

    def upsert(self, rows: Longs, entries: RowEntries) -> None:
        """Enter rows of a batch in order."""
        keys, done = entries.keys, 0
        bounds = entries.alive_from, entries.deleted_from
        while True:
            table = self._table, self._capacity, self._used
            done = kernels.upsert(
                *(rows, done, keys.high, keys.low, entries.values, entries.places, *bounds, *table),
                *(entries.verdicts, entries.replaced),
            )
            if done == len(rows):
                return
            self._grow()

    def find(self, rows: Longs, keys: Keys, result: FoundKeys) -> None:
        """Look keys up: see the kernel."""
        kernels.find(rows, keys.high, keys.low, self._table, self._capacity, result.is_there, result.values)

    def take_from(self, other: Shard, rows: Longs, keys: Keys) -> None:
        """Move the keys of rows here from another shard, unless they are here already."""
        done = 0
        while other.num_keys:
            old = other._table, other._capacity, other._used
            done = kernels.promote(rows, done, keys.high, keys.low, *old, self._table, self._capacity, self._used)
            if done == len(rows):
                return
            self._grow()

    def renumber(self, rows: Longs, keys: Keys, places: Longs) -> None:
        """Change the places of keys that are in the shard."""
        kernels.renumber(rows, keys.high, keys.low, places, self._table, self._capacity)

    def relocate(self, segments: Longs, starts: Longs, docs: Longs, target: int) -> None:
        """Relocate entries: see the kernel. `prune` has to be called before anything else."""
        kernels.relocate(segments, starts, docs, target, self._table)

    def move_tail(self, segment: int, first_doc: int, target: int) -> None:
        """Renumber docs: see the kernel."""
        kernels.move_tail(segment, first_doc, target, self._table)

    def reserve(self, num_keys: int) -> None:
        """Make room for so many keys at once, rather than step by step."""
        slots = self._slots_for(num_keys)
        if slots > self._capacity:
            self._rebuild(slots, kernels.NULL, kernels.NULL)

    def prune(self, alive_from: int, deleted_from: int) -> None:
        """Remove dead keys and free their memory."""
        if not self.num_keys:
            return
        num_alive = kernels.count_alive(alive_from, deleted_from, self._table)
        if not num_alive:
            self.clear()
        elif num_alive < self.num_keys:
            self._rebuild(self._slots_for(num_alive), alive_from, deleted_from)

    def clear(self) -> None:
        """Remove all keys. An empty shard has no table."""
        self._table, self._capacity = np.zeros((2, self._width), np.int64), 1
        self._used = np.zeros(2, np.int64)

    def arrays(self) -> Longs:
        """Return the entries by key."""
        entries: Longs = self._table[self._table[:, kernels.PLACE] != 0]
        return entries

    def _slots_for(self, num_keys: int) -> int:
        """Return the slots of the smallest table size for so many keys, of the sizes that a shard grows through."""
        slots = self._first_slots
        while num_keys >= _room(slots):
            slots = _next(slots)
        return slots

    def _grow(self) -> None:
        self._rebuild(max(_next(self._capacity), self._first_slots), kernels.NULL, kernels.NULL)

    @property
    def _first_slots(self) -> int:
        """Slots of the first table; they differ between neighbours, so that these grow at different
        times."""
        return _FIRST_SLOTS + self._number % 8

    def _rebuild(self, capacity: int, alive_from: int, deleted_from: int) -> None:
        while True:
            table, capacity = self._empty(capacity)
            num_alive = kernels.rebuild(self._table, alive_from, deleted_from, capacity, table)
            if num_alive >= 0:
                self._set(table, capacity, num_alive)
                return
            capacity = _next(capacity)

    def _empty(self, capacity: int) -> tuple[Longs, int]:
        spare = min(16 + capacity // 16, 1024)
        return _zeros(capacity + spare, self._width), capacity

    def _set(self, table: Longs, capacity: int, num_keys: int) -> None:
        self._table, self._capacity = table, capacity
        self._used = np.array([num_keys, _room(capacity)], np.int64)


class KeyIndex:
    """Shards of a partition. With `rotates` there are two sets: the older set has keys not written since the last
    rotation."""

    def __init__(self, num_values: int, *, rotates: bool = False) -> None:
        self._num_values = num_values
        self._young = self._shards()
        self._old = self._shards() if rotates else None

    def _shards(self) -> list[Shard]:
        return [Shard(number, self._num_values) for number in range(SHARDS)]

    @property
    def shards(self) -> list[Shard]:
        """All tables, the younger set first."""
        return [*self._young, *(self._old or ())]

    @property
    def _filled(self) -> list[Shard]:
        return [shard for shard in self.shards if shard.num_keys]

    @property
    def num_keys(self) -> int:
        """Number of keys in memory, dead keys that were not pruned yet included."""
        return sum([shard.num_keys for shard in self.shards])

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return sum([shard.nbytes for shard in self.shards])

    def upsert(self, entries: RowEntries) -> None:
        """Enter a batch, as if its rows came one after the other."""
        for number, rows in _by_shard(entries.keys):
            if self._old is not None:
                self._young[number].take_from(self._old[number], rows, entries.keys)
            self._young[number].upsert(rows, entries)

    def find(self, keys: Keys) -> FoundKeys:
        """Look keys up."""
        entries = FoundKeys(np.zeros(len(keys.low), np.bool_), np.full(len(keys.low), kernels.NULL))
        for number, rows in _by_shard(keys):
            for shards in (self._young, self._old or ()):
                if shards:
                    shards[number].find(rows, keys, entries)
        return entries

    def reserve(self, num_keys: int) -> None:
        """Make room for keys that are about to come."""
        for shard in self._young:
            shard.reserve(num_keys // SHARDS)

    def renumber(self, keys: Keys, places: Longs, rows: Longs) -> None:
        """Change the places of the keys of `rows`, which were just entered."""
        for number, selected in _by_shard(Keys(keys.high[rows], keys.low[rows])):
            self._young[number].renumber(rows[selected], keys, places)

    def relocate(self, sources: dict[int, Longs], target: int) -> None:
        """Move entries of segments to another segment, by the new numbers of their docs; -1: none."""
        segments = np.array(sorted(sources), np.int64)
        starts = np.cumsum([0, *(len(sources[segment]) for segment in segments.tolist())])
        docs = np.concatenate([np.zeros(0, np.int64), *(sources[segment] for segment in segments.tolist())])
        for shard in self._filled:
            shard.relocate(segments, starts.astype(np.int64), docs, target)
            shard.prune(kernels.NULL, kernels.NULL)

    def move_tail(self, segment: int, first_doc: int, target: int) -> None:
        """Make the docs of a segment from `first_doc` on the docs of another segment from 0 on."""
        for shard in self._filled:
            shard.move_tail(segment, first_doc, target)

    def prune(self, alive_from: int, deleted_from: int, shards: slice = slice(None)) -> None:
        """Remove dead keys, from all tables or from a slice of them."""
        for shard in self.shards[shards]:
            shard.prune(alive_from, deleted_from)

    def rotate(self, alive_from: int, deleted_from: int) -> None:
        """Drop the older tables and make the younger tables older. Keys of the older tables that are alive, because
        their values are ahead of all others, move to the younger tables."""
        assert self._old is not None
        self.prune(alive_from, deleted_from, slice(SHARDS, None))
        self._join()
        self._young, self._old = self._old, self._young

    def set_rotates(self, rotates: bool) -> None:
        """Start or stop to keep a set of older tables."""
        if self._old is not None:
            self._join()
        self._old = self._shards() if rotates else None

    def _join(self) -> None:
        """Move the keys of the older tables to the younger tables."""
        assert self._old is not None
        for young, old in zip(self._young, self._old, strict=True):
            if old.num_keys:
                left = old.arrays()
                keys = Keys(*(np.ascontiguousarray(left[:, word]) for word in (kernels.HIGH, kernels.LOW)))
                young.take_from(old, np.arange(len(left)), keys)
            old.clear()


def _by_shard(keys: Keys) -> list[tuple[int, Longs]]:
    """Return the rows of each shard that has any, in order."""
    numbers = (keys.low & SHARDS - 1).astype(np.uint8)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=SHARDS)).tolist()
    starts = [0, *ends[:-1]]
    return [(number, order[starts[number] : ends[number]]) for number in range(SHARDS) if ends[number] > starts[number]]


def _room(capacity: int) -> int:
    return capacity * _FULL[0] // _FULL[1]


def _next(capacity: int) -> int:
    return 2 * capacity if capacity < _SMALL_SLOTS else capacity + capacity // 8


def _zeros(slots: int, width: int) -> Longs:
    nbytes = 8 * slots * width
    if nbytes < LARGE_BYTES:
        return np.zeros((slots, width), np.int64)
    return np.frombuffer(mmap.mmap(-1, nbytes), np.int64).reshape(slots, width)
