"""Running states of one aggregate in one task: fed chunk by chunk, read once at the end as Arrow columns.

`groups` is u32, one group per row of the chunk, or None when there is a single group; accumulators start with
`num_groups` groups and grow. The columns they give are those that `aggregates` names and merges.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import CorruptionError
from merlot.kernels import aggregate as kernels
from merlot.kernels.group import mark
from merlot.query.bounds import bounds_of
from merlot.query.chunk import Chunk
from merlot.query.columns import Columns, Reader, has_both_zeros
from merlot.query.distinct import lists_of, lists_of_distinct
from merlot.query.evaluate import evaluate, matches
from merlot.spec.types import TypeName
from merlot.tree.nodes import Aggregate, Column, Expr
from merlot.vectors.decimals import exactly
from merlot.vectors.encoding import MAX_DENSE_SPACE
from merlot.vectors.vector import INTEGERS, TEXT, Vector

Groups = NDArray[np.uint32]
LOW_MASK = np.int64(0xFFFFFFFF)


class Accumulator(Protocol):
    """States of an aggregate by group."""

    def grow(self, num_groups: int) -> None: ...
    def add(self, chunk: Chunk, groups: Groups | None) -> None: ...
    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        """State columns of the chosen groups."""
        ...


def grown(array: NDArray[Any], num_groups: int, fill: Any = 0) -> NDArray[Any]:
    """The array with room for num_groups, new elements filled."""
    if len(array) >= num_groups:
        return array
    larger = np.full(max(num_groups, 2 * len(array)), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def _valid(vector: Vector, groups: Groups | None, num_rows: int) -> tuple[Any, Groups | None]:
    """Values that are not null, and their groups."""
    full = vector.spread(num_rows)
    if full.nulls is None:
        return full.data, groups
    keep = np.flatnonzero(~full.nulls)
    return full.take(keep).data, None if groups is None else groups[keep]


class Count:
    """COUNT(*), or COUNT(x) of values that are not null."""

    def __init__(self, argument: Expr | None, num_groups: int) -> None:
        self._argument = argument
        self.counts = np.zeros(num_groups, np.int64)

    @property
    def counts_rows(self) -> bool:
        """Whether every row counts, so that a group exists where the count is not 0."""
        return self._argument is None

    def grow(self, num_groups: int) -> None:
        self.counts = grown(self.counts, num_groups)

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        num_rows = chunk.num_rows
        if self._argument is not None:
            vector = evaluate(self._argument, chunk).spread(num_rows)
            if vector.nulls is not None:
                keep = np.flatnonzero(~vector.nulls)
                num_rows, groups = len(keep), None if groups is None else groups[keep]
        if groups is None:
            self.counts[0] += num_rows
        else:
            kernels.count_groups(groups, self.counts)

    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        return [pa.array(self.counts[groups])]


def exact_sum(values: NDArray[Any]) -> int:
    """Sum of the whole numbers of a chunk, i32 or i64."""
    if values.dtype.itemsize < 8:
        return int(kernels.sum_int(values))
    halves = np.zeros(2, np.int64)
    kernels.sum_halves(values, halves)
    high, low = halves.tolist()
    return int((high << 32) + low)


class IntegerSum:
    """Exact sum of whole numbers; one i64 per group while bounds rule overflow out, two halves from then on."""

    def __init__(self, argument: Expr, num_groups: int, columns: Columns) -> None:
        self._argument = argument
        low, high = bounds_of(argument, columns)
        self._magnitude = 1 << max(low, ~low, high, ~high).bit_length()
        self._num_left = (1 << 62) // self._magnitude
        """Values that fit for certain, counted as they come: where lists are keys, a doc comes several times."""
        self._sums = np.zeros(num_groups, np.int64)
        self._lows: NDArray[np.int64] | None = None

    def grow(self, num_groups: int) -> None:
        self._sums = grown(self._sums, num_groups)
        if self._lows is not None:
            self._lows = grown(self._lows, num_groups)

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        values, groups = _valid(evaluate(self._argument, chunk), groups, chunk.num_rows)
        if values.dtype == np.bool_:
            values = values.astype(np.int64)
        if groups is None:
            lows = self._widened()
            total = exact_sum(values)
            self._sums[0] += total >> 32
            lows[0] += total & int(LOW_MASK)
        elif self._lows is None and len(values) <= self._num_left:
            self._num_left -= len(values)
            if kernels.sum_int_groups(groups, values, self._sums) >= self._magnitude:
                raise CorruptionError(f"value out of its bounds summed={self._argument} limit={self._magnitude}")
        else:
            wide = values.astype(np.int64, copy=False)
            kernels.sum_halves_groups(groups, wide, self._sums, self._widened())

    def _widened(self) -> NDArray[np.int64]:
        """Low halves, beside high ones in `_sums`."""
        if self._lows is None:
            self._lows = self._sums & LOW_MASK
            self._sums >>= 32
        return self._lows

    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        lows = self._widened()[groups]
        return [pa.array(self._sums[groups] + (lows >> 32)), pa.array(lows & LOW_MASK)]


class FloatSum:
    """Compensated sum of floats."""

    def __init__(self, argument: Expr, num_groups: int) -> None:
        self._argument = argument
        self._sums = np.zeros(num_groups, np.float64)
        self._errors = np.zeros(num_groups, np.float64)

    def grow(self, num_groups: int) -> None:
        self._sums = grown(self._sums, num_groups)
        self._errors = grown(self._errors, num_groups)

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        values, groups = _valid(evaluate(self._argument, chunk), groups, chunk.num_rows)
        wide = values.astype(np.float64, copy=False)
        if groups is None:
            state = np.array([self._sums[0], self._errors[0]])
            kernels.sum_float(wide, state)
            self._sums[0], self._errors[0] = state
        else:
            kernels.sum_float_groups(groups, wide, self._sums, self._errors)

    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        return [pa.array(self._sums[groups]), pa.array(self._errors[groups])]


class DecimalSum:
    """Exact sum of BIG_DECIMAL; a Python addition per row."""

    def __init__(self, argument: Expr, num_groups: int) -> None:
        self._argument = argument
        self._sums: NDArray[Any] = np.full(num_groups, 0, dtype=object)

    def grow(self, num_groups: int) -> None:
        self._sums = grown(self._sums, num_groups)

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        values, groups = _valid(evaluate(self._argument, chunk), groups, chunk.num_rows)
        if groups is None:
            groups = np.zeros(len(values), np.uint32)
        with exactly():
            np.add.at(self._sums, groups, values)

    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        return [pa.array([str(value) for value in self._sums[groups]], pa.string())]


class Extreme:
    """MIN or MAX of numbers; null where a group has no value."""

    def __init__(self, argument: Expr, num_groups: int, *, is_min: bool) -> None:
        self._argument = argument
        self._is_min = is_min
        is_integer = argument.type.base in INTEGERS
        self._dtype: Any = np.int64 if is_integer else np.float64
        bounds = (np.iinfo(np.int64).max, np.iinfo(np.int64).min) if is_integer else (np.nan, -np.inf)
        self._worst = bounds[0] if is_min else bounds[1]
        self._best = np.full(num_groups, self._worst, self._dtype)
        self._seen = np.zeros(num_groups, np.int64)

    def grow(self, num_groups: int) -> None:
        self._best = grown(self._best, num_groups, self._worst)
        self._seen = grown(self._seen, num_groups)

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        found = None if groups is not None else self._by_dictionary(chunk)
        if found is not None:
            self.add_values(found, None, 1)
        else:
            self.add_values(evaluate(self._argument, chunk), groups, chunk.num_rows)

    def _by_dictionary(self, chunk: Chunk) -> Vector | None:
        """The one value that counts, by the least or greatest dict id: a tenth of looking every value up."""
        if not isinstance(self._argument, Column) or not chunk.num_rows:
            return None
        reader = chunk.columns.reader(self._argument.name)
        numeric = None if reader.dictionary is None or reader.multi_value else reader.dictionary.numeric
        if numeric is None or chunk.visible_nulls(self._argument.name) is not None:
            return None
        ids = chunk.dict_ids(reader)
        place = int(ids.min() if self._is_min else ids.max())
        return Vector(self._argument.type, numeric[place : place + 1].astype(self._dtype))

    def add_values(self, vector: Vector, groups: Groups | None, num_rows: int) -> None:
        """As add, for values at hand; those under nulls do not count."""
        values, groups = _valid(vector, groups, num_rows)
        if values.dtype == object:
            values = np.array([float(value) for value in values], np.float64)
        wide = values.astype(self._dtype, copy=False)
        if groups is None:
            groups = np.zeros(len(wide), np.uint32)
        (kernels.min_groups if self._is_min else kernels.max_groups)(groups, wide, self._best)
        kernels.count_groups(groups, self._seen)

    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        return [pa.array(self._best[groups], mask=self._seen[groups] == 0)]


class DistinctIds:
    """Distinct values of a dictionary column by group: dict ids while in the segment, lists of values at the end.

    A byte for every group and dict id says whether they met, as long as those are few; else pairs are collected."""

    def __init__(self, argument: Column, reader: Reader, num_groups: int) -> None:
        assert reader.dictionary is not None
        self._argument = argument
        self._reader = reader
        self._dictionary = reader.dictionary
        self._cardinality = len(reader.dictionary)
        self._num_groups = num_groups
        self._met = np.zeros(0, np.uint8)
        self._pairs: list[NDArray[np.int64]] = []

    def grow(self, num_groups: int) -> None:
        self._num_groups = num_groups

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        rows, ids = self._ids(chunk)
        if groups is None:
            self._met = grown(self._met, self._cardinality)
            mark(ids, self._met)
            return
        of_rows = (groups if rows is None else groups[rows]).astype(np.int64)
        pairs = of_rows * self._cardinality + ids
        space = self._num_groups * self._cardinality
        if space <= MAX_DENSE_SPACE:
            self._met = grown(self._met, space)
            mark(pairs, self._met)
            return
        self._pairs.append(np.unique(pairs))
        if len(self._pairs) > 64:
            self._pairs = [np.unique(np.concatenate(self._pairs))]

    def _ids(self, chunk: Chunk) -> tuple[NDArray[np.int64] | None, NDArray[Any]]:
        """Rows and their dict ids without nulls; rows is None if each has one."""
        if self._reader.multi_value:
            offsets, positions = chunk.multi_values(self._reader)
            return np.repeat(np.arange(chunk.num_rows), np.diff(offsets)), self._reader.dict_ids()[positions]
        ids = chunk.dict_ids(self._reader)
        nulls = chunk.visible_nulls(self._argument.name)
        if nulls is None:
            return None, ids
        keep = np.flatnonzero(~nulls)
        return keep, ids[keep]

    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        pairs = np.flatnonzero(self._met)
        if self._pairs:
            pairs = np.unique(np.concatenate([pairs, *self._pairs]))
        owners, ids = np.divmod(pairs, max(1, self._cardinality))
        values = self._dictionary.arrow().take(pa.array(ids))
        return [lists_of_distinct(values, owners, groups, self._argument.type)]


class DistinctValues:
    """Distinct values of any expression by group, collected and made distinct at the end."""

    def __init__(self, argument: Expr) -> None:
        self._argument = argument
        self._values: list[tuple[pa.Array, NDArray[np.int64]]] = []

    def grow(self, num_groups: int) -> None:
        """Groups are kept beside the values: nothing to do."""

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        vector = evaluate(self._argument, chunk).spread(chunk.num_rows)
        of_rows = np.zeros(chunk.num_rows, np.int64) if groups is None else groups.astype(np.int64)
        values = vector.to_arrow(chunk.num_rows)
        if self._argument.type.is_array:
            of_rows = np.repeat(of_rows, np.diff(values.offsets.to_numpy()))
            values = values.flatten()
        elif vector.nulls is not None:
            keep = ~vector.nulls
            of_rows, values = of_rows[keep], values.filter(pa.array(keep))
        self._values.append((values, of_rows))

    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        values = pa.concat_arrays([part for part, _ in self._values]) if self._values else None
        of_rows = np.concatenate([part for _, part in self._values]) if self._values else np.zeros(0, np.int64)
        return [lists_of(values, of_rows, groups, self._argument.type)]


def distinct_of(argument: Expr, num_groups: int, columns: Columns) -> Accumulator:
    """The set that fits the argument."""
    if isinstance(argument, Column):
        reader = columns.reader(argument.name)
        if reader.dictionary is not None and not has_both_zeros(reader.dictionary):
            return DistinctIds(argument, reader, num_groups)
    return DistinctValues(argument)


class Several:
    """Accumulators whose state columns follow one another."""

    def __init__(self, parts: list[Accumulator]) -> None:
        self._parts = parts

    def grow(self, num_groups: int) -> None:
        for part in self._parts:
            part.grow(num_groups)

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        for part in self._parts:
            part.add(chunk, groups)

    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        return [column for part in self._parts for column in part.states(groups)]


def sum_of(argument: Expr, num_groups: int, columns: Columns) -> Accumulator:
    """The sum that fits the argument's type."""
    if argument.type.base in INTEGERS:
        return IntegerSum(argument, num_groups, columns)
    if argument.type.base is TypeName.BIG_DECIMAL:
        return DecimalSum(argument, num_groups)
    return FloatSum(argument, num_groups)


class Filtered:
    """An aggregate of the rows that its FILTER keeps."""

    def __init__(self, inner: Accumulator, condition: Expr) -> None:
        self._inner = inner
        self._condition = condition

    def grow(self, num_groups: int) -> None:
        self._inner.grow(num_groups)

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        kept = np.flatnonzero(matches(self._condition, chunk))
        if len(kept):
            self._inner.add(chunk.at(kept), None if groups is None else groups[kept])

    def states(self, groups: NDArray[np.int64]) -> list[pa.Array]:
        return self._inner.states(groups)


def accumulator(aggregate: Aggregate, num_groups: int, columns: Columns, *, nulls: bool) -> Accumulator:
    """What computes an aggregate; its state columns are `aggregates.state_fields`."""
    if aggregate.filter is not None:
        unfiltered = dataclasses.replace(aggregate, filter=None)
        return Filtered(accumulator(unfiltered, num_groups, columns, nulls=nulls), aggregate.filter)
    function = aggregate.function
    if function == "count":
        return Count(aggregate.args[0] if aggregate.args and nulls else None, num_groups)
    argument = aggregate.args[0]
    if function in ("sum", "sumlong"):
        total = sum_of(argument, num_groups, columns)
        return Several([total, Count(argument, num_groups)]) if nulls else total
    if function == "avg":
        return Several([sum_of(argument, num_groups, columns), Count(argument if nulls else None, num_groups)])
    if function in ("min", "max", "minlong", "maxlong"):
        assert argument.type.base not in TEXT
        return Extreme(argument, num_groups, is_min=function.startswith("min"))
    assert function == "distinctcount", function
    return distinct_of(argument, num_groups, columns)
