"""Group many rows, by parts of the hashes of their keys (`kernels.partition`), on all threads.

Numbers are packed into words as `vectors.groups` packs codes. A text is a word of its own, its hash, and every text is
compared with the first text of its group. Groups are numbered by part, then by order of arrival: the same for any
number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.kernels import group as group_kernels
from merlot.kernels import hashing
from merlot.kernels import partition as kernels
from merlot.kernels.jit import read_only
from merlot.vectors import account
from merlot.vectors.encoding import one_zero
from merlot.vectors.groups import Groups, Packing, is_dense
from merlot.vectors.runs import ends_of
from merlot.vectors.texts import text_buffers

T = TypeVar("T")
R = TypeVar("R")

LEAST_ROWS: Final = 1 << 15
"""Rows below which one table is as fast."""
ROWS_PER_PIECE: Final = 1 << 16
ROWS_PER_PART: Final = 1 << 13
"""Rows of a part: its table fits into the innermost caches."""
PARTS_PER_PIECE: Final = 8
BYTES_PER_ROW: Final = 32
"""Bytes of a row: two hashes, its number, its part's row, and its group twice."""


class Run(Protocol):
    """Function that calls `work` for each of some items, perhaps in parallel."""

    def __call__(self, work: Callable[[T], R], items: Sequence[T], /) -> list[R]: ...


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Whole numbers, as distances from the smallest; flags are 0 and 1."""

    values: NDArray[Any]
    low: int
    cardinality: int

    def append(self, start: int, stop: int, radix: int, out: NDArray[np.uint64]) -> None:
        last = np.uint64(self.cardinality - 1)
        group_kernels.append_whole(self.values[start:stop], np.int64(self.low), last, radix, out)


@dataclass(frozen=True, slots=True)
class _Floats:
    """Floats by their bits; one zero, one NaN."""

    values: NDArray[Any]
    cardinality: int

    def append(self, start: int, stop: int, radix: int, out: NDArray[np.uint64]) -> None:
        bits = one_zero(self.values[start:stop])
        group_kernels.append_key(read_only(bits.view(np.uint32 if bits.itemsize == 4 else np.uint64)), radix, out)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts by their hashes, which two texts may share."""

    offsets: NDArray[Any]
    data: NDArray[np.uint8]
    cardinality: int = 1 << 64

    def append(self, start: int, stop: int, radix: int, out: NDArray[np.uint64]) -> None:
        hashing.hash_spans(self.data, self.offsets[start : stop + 1], out)

    def are_equal(self, groups: Groups, start: int, stop: int) -> bool:
        """Return True if rows [start, stop) have the texts of the first rows of their groups."""
        return kernels.equal_texts(self.offsets, self.data, groups.of_rows, groups.first_rows, start, stop)


_Column = _Numbers | _Floats | _Texts


def group_many(columns: Sequence[pa.Array], num_rows: int, run: Run) -> Groups | None:
    """Group rows with equal values in all columns, null being a value.

    Return None if another way is as good (few rows, or few possible keys), for types that have no key columns, or if
    two keys have one hash."""
    if num_rows < LEAST_ROWS:
        return None
    every = run(_columns_of, columns)
    keys = [key for parts in every if parts is not None for key in parts if key.cardinality > 1]
    packing = Packing([key.cardinality for key in keys])
    if None in every or (packing.width == 1 and is_dense(packing.space, num_rows)):
        return None
    partitioned = _Partitioned(keys, packing, num_rows, run)
    groups = partitioned.groups()
    return groups if partitioned.are_equal(groups) else None


def _columns_of(column: pa.Array) -> list[_Column] | None:
    """Return key columns that distinguish the values; None for a type that has none."""
    type_ = column.type
    nulls: list[_Column] = []
    if column.null_count:
        nulls = [_Numbers(read_only(column.is_null().to_numpy(zero_copy_only=False).view(np.uint8)), 0, 2)]
    if pa.types.is_boolean(type_):
        flags = (column.fill_null(False) if nulls else column).to_numpy(zero_copy_only=False)
        return [*nulls, _Numbers(read_only(flags.view(np.uint8)), 0, 2)]
    if pa.types.is_int32(type_) or pa.types.is_int64(type_):
        bounds = pc.min_max(column)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is None:
            return nulls
        values = (column.fill_null(low) if nulls else column).to_numpy()
        return [*nulls, _Numbers(read_only(values), low, high - low + 1)]
    if pa.types.is_floating(type_) and type_ != pa.float16():
        values = (column.fill_null(0.0) if nulls else column).to_numpy()
        return [*nulls, _Floats(values, 1 << 8 * values.itemsize)]
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return [*nulls, _Texts(*text_buffers(column.fill_null(b"" if pa.types.is_binary(type_) else "")))]
    return None


def _pieces(length: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, length)) for start in range(0, length, size)]


class _Partitioned:
    """Rows on their way from columns to groups."""

    def __init__(self, columns: Sequence[_Column], packing: Packing, num_rows: int, run: Run) -> None:
        self._columns = columns
        self._packing = packing
        self._num_rows = num_rows
        self._run = run
        bits = max(1, (num_rows // ROWS_PER_PART).bit_length())
        self._num_parts = 1 << bits
        self._shift = 64 - bits
        account.current().expect("groups", num_rows * (8 * packing.width + BYTES_PER_ROW))
        # Hashes of one word are as good as the word.
        self._words = np.empty((packing.width, num_rows if packing.width > 1 else 0), np.uint64)
        self._hashes = np.empty(num_rows, np.uint64)

    def groups(self) -> Groups:
        pieces = _pieces(self._num_rows, ROWS_PER_PIECE)
        counts = np.stack(self._run(self._hash, pieces))
        bounds = ends_of(counts.sum(axis=0))
        starts = bounds[:-1] + np.cumsum(counts, axis=0) - counts
        hashes, rows = np.empty_like(self._hashes), np.empty(self._num_rows, np.uint32)

        def scatter(number: int) -> None:
            start, stop = pieces[number]
            kernels.scatter(self._hashes[start:stop], start, self._shift, starts[number], hashes, rows)

        self._run(scatter, range(len(pieces)))
        return self._assigned(hashes, rows, bounds)

    def _hash(self, piece: tuple[int, int]) -> NDArray[np.int64]:
        """Compute words and hashes of some rows; return the number of rows in each part."""
        start, stop = piece
        words = np.empty((self._packing.width, stop - start), np.uint64)
        for column, (word, radix) in zip(self._columns, self._packing.places, strict=True):
            column.append(start, stop, radix, words[word])
        if self._packing.width > 1:
            self._words[:, start:stop] = words
        kernels.hash_words(words, self._hashes[start:stop])
        counts = np.zeros(self._num_parts, np.int64)
        kernels.count_parts(self._hashes[start:stop], self._shift, counts)
        return counts

    def _assigned(self, hashes: NDArray[np.uint64], rows: NDArray[np.uint32], bounds: NDArray[np.int64]) -> Groups:
        largest = int(np.diff(bounds).max())
        num_slots = 1 << max(1, (2 * largest - 1).bit_length())
        groups, part_rows = np.empty_like(rows), np.empty_like(rows)
        # Hashes in the order of rows are not needed any more: their memory is used again.
        group_hashes, num_groups = self._hashes, np.zeros(self._num_parts, np.int64)
        pieces = _pieces(self._num_parts, PARTS_PER_PIECE)

        def assign(piece: tuple[int, int]) -> None:
            first, last = piece
            slots, parts = np.empty(num_slots, np.uint32), bounds[first : last + 1]
            counts = num_groups[first:last]
            kernels.assign_parts(hashes, rows, parts, slots, groups, group_hashes, part_rows, counts)

        self._run(assign, pieces)
        bases = ends_of(num_groups)
        of_rows, first_rows = np.empty_like(rows), np.empty(int(bases[-1]), np.uint32)

        def number(piece: tuple[int, int]) -> None:
            first, last = piece
            parts = slice(first, last + 1)
            kernels.number_groups(rows, bounds[parts], groups, part_rows, bases[parts], of_rows, first_rows)

        self._run(number, pieces)
        return Groups(of_rows, first_rows)

    def are_equal(self, groups: Groups) -> bool:
        """Return True if no group has two keys."""
        of_rows, first_rows = groups.of_rows, groups.first_rows
        checks: list[Callable[[int, int], bool]] = []
        if self._packing.width > 1:
            checks.append(lambda start, stop: kernels.equal_words(self._words, of_rows, first_rows, start, stop))
        checks += [partial(column.are_equal, groups) for column in self._columns if isinstance(column, _Texts)]
        pieces = [(check, piece) for check in checks for piece in _pieces(self._num_rows, ROWS_PER_PIECE)]
        return all(self._run(lambda item: item[0](*item[1]), pieces))
