"""DISTINCTCOUNT: lists of distinct values, or of distinct combinations of values, by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.aggregates.function import (
    ANYTHING,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Dictionary,
    Groups,
    Input,
    State,
    StateField,
    all_in_one,
    grown,
)
from merlot.aggregates.listed import offsets_of
from merlot.aggregates.pairs import DistinctPairs
from merlot.kernels import group as kernels
from merlot.kernels.group import mark
from merlot.kernels.sketch import rows_by_group
from merlot.tree.nodes import Value
from merlot.tree.types import BYTES, INT, SqlType
from merlot.values.types import TypeName
from merlot.vectors.encoding import encode, with_one_zero
from merlot.vectors.runs import ends_of, rows_of_runs
from merlot.vectors.vector import Vector, arrow_type

MAX_ARGUMENTS: Final = 8
MAX_MARKED: Final = 1 << 20
"""Groups times dict ids up to which a byte for each is cheaper than lists of the pairs that occur."""
_BITS: Final[dict[int, Any]] = {1: np.uint8, 4: np.uint32, 8: np.uint64}


def value_type(argument: SqlType) -> pa.DataType:
    """Return the type of a listed value."""
    return arrow_type(SqlType(argument.base))


def _as_listed(values: pa.Array, argument: SqlType) -> pa.Array:
    """Return the values as they are listed: a stored BOOLEAN is a number."""
    element = value_type(argument)
    if values.type == element:
        return values
    return values.cast(pa.bool_() if argument.base is TypeName.BOOLEAN else element)


def lists_of(
    values: pa.Array, of_rows: NDArray[np.int64], groups: NDArray[np.int64], argument: SqlType
) -> pa.ListArray:
    """Return lists of the distinct values of each of `groups`. of_rows: the group of each value."""
    if len(values) == 0:
        empty = pa.array([], value_type(argument))
        return pa.ListArray.from_arrays(pa.array(np.zeros(len(groups) + 1, np.int32)), empty)
    values = with_one_zero(_as_listed(values, argument))
    owners = of_rows.astype(np.uint32)
    slots = np.full(1 << (2 * len(values) - 1).bit_length(), kernels.EMPTY, np.uint32)
    rows = np.empty(len(values), np.uint32)
    rows = rows[: kernels.distinct_pairs(owners, _words(values), slots, rows)]
    order, bounds = _by_owner(owners[rows], int(owners.max()) + 1)
    return _cut(values.take(pa.array(rows[order])), bounds, groups)


def _words(values: pa.Array) -> NDArray[np.uint64]:
    """Return a word for each value; equal values have equal words. Words are the bits of numbers, or codes of other
    values."""
    if values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return encode(values).codes.view(np.uint64)
    numbers = values.to_numpy()
    bits: NDArray[np.uint64] = numbers.view(_BITS[numbers.dtype.itemsize]).astype(np.uint64, copy=False)
    return bits


def _by_owner(owners: NDArray[np.uint32], num_owners: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of values in ascending order of their owners, and where those of each owner begin."""
    bounds = ends_of(np.bincount(owners, minlength=num_owners))
    order = np.empty(len(owners), np.int64)
    rows_by_group(owners, bounds[:-1].copy(), order)
    return order, bounds


def lists_of_distinct(
    values: pa.Array, owners: NDArray[np.int64], groups: NDArray[np.int64], argument: SqlType
) -> pa.ListArray:
    """Do the same as `lists_of` for values that are distinct in each group, in ascending order of their groups."""
    last = max(int(owners[-1]) if len(owners) else 0, int(groups[-1]) if len(groups) else 0)
    return _cut(_as_listed(values, argument), np.searchsorted(owners, np.arange(last + 2)), groups)


def _cut(values: pa.Array, bounds: NDArray[np.int64], groups: NDArray[np.int64]) -> pa.ListArray:
    """Return lists of the chosen groups. Group g has values [bounds[g], bounds[g + 1]); groups past the end have
    none."""
    starts = bounds[np.minimum(groups, len(bounds) - 1)]
    lengths = bounds[np.minimum(groups + 1, len(bounds) - 1)] - starts
    offsets = offsets_of(lengths)
    if not np.array_equal(starts, offsets[:-1]):
        values = values.take(pa.array(rows_of_runs(starts, offsets)))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values[: offsets[-1]])


def count_lists(lists: pa.ListArray) -> NDArray[np.int32]:
    """Return the length of each list."""
    counts: NDArray[np.int32] = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int32)
    return counts


class DistinctState(State):
    """Distinct values of each group.

    Dict ids are recorded as they come: in a byte for every pair of group and dict id if these are few, else as pairs
    (`aggregates.pairs`). Values are collected, and made distinct at the end."""

    def __init__(self, type_: SqlType, num_groups: int, dictionary: Dictionary | None = None) -> None:
        self._type = type_
        self._num_groups = num_groups
        self._dictionary = dictionary
        self._cardinality = 0 if dictionary is None else len(dictionary)
        self._met = np.zeros(0, np.uint8)
        self._pairs: DistinctPairs | None = None
        self._values: list[tuple[pa.Array, NDArray[np.int64]]] = []

    def grow(self, num_groups: int) -> None:
        self._num_groups = num_groups

    def wants_ids(self, *, is_grouped: bool) -> bool:
        return self._dictionary is not None

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        if groups is None:
            self._met = grown(self._met, self._cardinality)
            mark(ids, self._met)
            return
        space = self._num_groups * self._cardinality
        if self._pairs is None and space <= MAX_MARKED:
            self._met = grown(self._met, space)
            mark(groups.astype(np.int64) * self._cardinality + ids, self._met)
            return
        if self._pairs is None:
            self._pairs = DistinctPairs(self._cardinality)
            self._pairs.add(*np.divmod(np.flatnonzero(self._met), max(1, self._cardinality)))
            self._met = self._met[:0]
        self._pairs.add(groups, ids)

    def takes_scaled(self) -> bool:
        return True

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        listed = Vector(self._type, values[0]).to_arrow(num_rows)
        self._values.append((listed, all_in_one(groups, num_rows).astype(np.int64)))

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        lists = columns[0]
        lengths = np.diff(lists.offsets.to_numpy())
        self._values.append((lists.flatten(), np.repeat(groups.astype(np.int64), lengths)))

    def columns(self, groups: Chosen) -> list[pa.Array]:
        values, owners, bounds = self._met_values()
        if not self._values:
            return [_cut(values, bounds, groups)]
        parts = [*self._values, (values, owners)] if len(values) else self._values
        every = pa.concat_arrays([part for part, _ in parts])
        return [lists_of(every, np.concatenate([rows for _, rows in parts]), groups, self._type)]

    def _met_values(self) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
        """Return the values that came as ids, their groups, ascending, and where the values of each group begin."""
        if self._dictionary is None:
            return pa.array([], value_type(self._type)), np.zeros(0, np.int64), np.zeros(1, np.int64)
        if self._pairs is None:
            owners, ids = np.divmod(np.flatnonzero(self._met), max(1, self._cardinality))
            bounds = np.searchsorted(owners, np.arange(self._num_groups + 1))
        else:
            ids, bounds = self._pairs.by_group(self._num_groups)
            owners = np.repeat(np.arange(self._num_groups), np.diff(bounds)) if self._values else bounds[:0]
        return _as_listed(self._dictionary.arrow().take(pa.array(ids)), self._type), owners, bounds


class DistinctRows(DistinctState):
    """Distinct combinations of several values, each combination as bytes."""

    def __init__(self, types: Sequence[SqlType], num_groups: int) -> None:
        super().__init__(BYTES, num_groups)
        self._types = types

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        super().add([combined(self._types, values, num_rows)], groups, num_rows)


def combined(types: Sequence[SqlType], values: Sequence[Any], num_rows: int) -> pa.Array:
    """Return the texts of each row's values, each after its length, so that different rows have different bytes."""
    parts: list[pa.Array] = []
    for type_, data in zip(types, values, strict=True):
        text = with_one_zero(Vector(type_, data).to_arrow(num_rows))
        text = text if pa.types.is_binary(text.type) else text.cast(pa.string()).cast(pa.binary())
        parts += [pc.binary_length(text).cast(pa.string()).cast(pa.binary()), text]
    return pc.binary_join_element_wise(*parts, pa.scalar(b":", pa.binary()))


class DistinctCount(AggregationFunction):
    """DISTINCTCOUNT and COUNT(DISTINCT x): the exact number of distinct values, or of combinations of several
    arguments."""

    name = "distinctcount"
    parameters = (
        AggregateParameter(name="x", takes=ANYTHING),
        *(
            AggregateParameter(name=f"x{number}", takes=ANYTHING, is_optional=True)
            for number in range(2, MAX_ARGUMENTS + 1)
        ),
    )

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return INT

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        listed = call.types[0] if len(call.types) == 1 else BYTES
        return (StateField("values", pa.list_(value_type(listed))),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        if len(call.types) > 1:
            return DistinctRows(call.types, num_groups)
        return DistinctState(SqlType(call.types[0].base), num_groups, (*inputs, UNKNOWN)[0].dictionary())

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return Vector(call.result, count_lists(columns[0]))
