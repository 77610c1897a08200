"""EXPR_MIN and EXPR_MAX: a value of each row whose measures are least or greatest; each such row is a row of the
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.aggregates.function import (
    ANYTHING,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Groups,
    Input,
    State,
    StateField,
    all_in_one,
    grown,
)
from merlot.aggregates.listed import GroupRuns
from merlot.kernels import aggregate as kernels
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Aggregate, Expr, Literal, Value
from merlot.tree.types import INT, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import DTYPES, Vector, arrow_type, decimals

MOST: Final = 16
"""Most measures and values together."""
_WORST: Final = np.iinfo(np.int64).max
_PENDING: Final = 1 << 16
"""Rows that are collected before those that cannot win are removed."""
Ordinals = NDArray[np.int64]


def ordinals(type_: SqlType, values: pa.Array) -> Ordinals:
    """Return numbers that are ordered as the values, equal for equal values. NaN is larger than other numbers. Null is
    the largest int64, which is also the ordinal of the greatest LONG."""
    present = values.drop_null() if values.null_count else values
    numbers = _ordinals(type_.base, present)
    if not values.null_count:
        return numbers
    every = np.full(len(values), _WORST, np.int64)
    every[values.is_valid().to_numpy(zero_copy_only=False)] = numbers
    return every


def _ordinals(base: TypeName, values: pa.Array) -> Ordinals:
    if base in (TypeName.FLOAT, TypeName.DOUBLE):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        bits[bits < 0] ^= _WORST
        return bits
    if base in DTYPES:
        whole: Ordinals = values.to_numpy(zero_copy_only=False).astype(np.int64)
        return whole
    if base is TypeName.BIG_DECIMAL:
        return np.unique(decimals(values), return_inverse=True)[1].astype(np.int64)
    encoded = values.dictionary_encode()
    ranks: Ordinals = pc.rank(encoded.dictionary, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks[encoded.indices.to_numpy()] if len(ranks) else np.zeros(0, np.int64)


class ProjectedState(State):
    """Rows by group that win so far, and some that can no longer win."""

    def __init__(self, types: Sequence[SqlType], num_measures: int, num_groups: int, *, is_min: bool) -> None:
        self._types = types
        self._num_measures = num_measures
        self._is_min = is_min
        self._best = np.full(num_groups, _WORST, np.int64)
        """Best ordinal of the first measure, by group; unused if ordinals depend on which values occur."""
        self._parts: list[tuple[Groups, list[pa.Array]]] = []
        self._pending = 0

    def grow(self, num_groups: int) -> None:
        self._best = grown(self._best, num_groups, _WORST)

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        columns = [
            data if isinstance(data, pa.Array) else Vector(type_, data).to_arrow(num_rows)
            for type_, data in zip(self._types, values, strict=True)
        ]
        self._take(all_in_one(groups, num_rows), columns)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        lists = columns[self._num_measures]
        rows = np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy()))
        measures = [column.take(pa.array(rows)) for column in columns[: self._num_measures]]
        self._take(groups[rows], [*measures, *(column.flatten() for column in columns[self._num_measures :])])

    def columns(self, groups: Chosen) -> list[pa.Array]:
        self._settle()
        owners, columns = self._parts[0] if self._parts else (np.zeros(0, np.uint32), self._no_rows())
        runs = GroupRuns.of(owners, groups)
        firsts = pa.array(runs.starts, mask=np.diff(runs.offsets) == 0)
        measures = [column.take(firsts) for column in columns[: self._num_measures]]
        return [*measures, *runs.lists(columns[self._num_measures :])]

    def _take(self, groups: Groups, columns: list[pa.Array]) -> None:
        """Store the rows that may win."""
        first = self._ranks(0, columns)
        may_win = np.ones(len(groups), np.bool_)
        for column in columns[: self._num_measures]:
            if column.null_count:
                may_win &= column.is_valid().to_numpy(zero_copy_only=False)
        if self._types[0].base in DTYPES:
            first = np.where(may_win, first, _WORST)
            kernels.min_groups(groups, first, self._best)
            may_win &= first == self._best[groups]
        rows = np.flatnonzero(may_win)
        if len(rows):
            self._parts.append((groups[rows], [column.take(pa.array(rows)) for column in columns]))
            self._pending += len(rows)
        if self._pending > _PENDING:
            self._settle()
            self._pending = -len(self._parts[0][0]) if self._parts else 0

    def _settle(self) -> None:
        """Combine all parts into one with the winning rows, by group."""
        if not self._parts:
            return
        groups = np.concatenate([owners for owners, _ in self._parts])
        columns = [pa.concat_arrays(several) for several in zip(*(part for _, part in self._parts), strict=True)]
        ranks = [self._ranks(number, columns) for number in range(self._num_measures)]
        order = np.lexsort((*reversed(ranks), groups))
        owners = groups[order]
        begins = np.concatenate([[True], owners[1:] != owners[:-1]])
        first = order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
        wins = np.ones(len(order), np.bool_)
        for rank in ranks:
            wins &= rank[order] == rank[first]
        winners = pa.array(order[wins])
        self._parts = [(owners[wins], [column.take(winners) for column in columns])]

    def _ranks(self, number: int, columns: Sequence[pa.Array]) -> Ordinals:
        """Return ordinals of a measure; the least one wins."""
        numbers = ordinals(self._types[number], columns[number])
        return numbers if self._is_min else ~numbers

    def _no_rows(self) -> list[pa.Array]:
        return [pa.array([], arrow_type(type_)) for type_ in self._types]


class Projection(AggregationFunction):
    """EXPR_MIN(x, measure, …) and EXPR_MAX: x of the row with the least or greatest measures. If several rows have
    them, each gives a row of the answer.

    It is called with its measures first, and then with the values of all calls that have these measures. It answers one
    of these values. So the values of a row stay together."""

    gives_rows = True
    takes_nulls = True
    parameters = (
        AggregateParameter(name="measures", takes=frozenset({TypeName.INT}), is_constant=True),
        AggregateParameter(name="place", takes=frozenset({TypeName.INT}), is_constant=True),
        AggregateParameter(name="measure", takes=ANYTHING),
        *(AggregateParameter(name=f"x{number}", takes=ANYTHING, is_optional=number > 1) for number in range(1, MOST)),
    )
    written = "x, measure[, measure2, …]"

    def __init__(self, name: str, *, is_min: bool) -> None:
        self.name = name
        self._is_min = is_min

    @property
    def arity(self) -> tuple[int, int]:
        return 2, MOST

    def complete(self, args: Sequence[Expr]) -> Sequence[Expr]:
        """Add the numbers that say how many arguments are measures, and which value is answered."""
        return _arguments(args[1:], args[:1], 0)

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return SqlType(types[_whole(constants[0]) + _whole(constants[1])].base)

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        num_measures = _measures(call)
        types = [arrow_type(type_) for type_ in call.types]
        return (
            *(StateField(f"measure{n}", type_) for n, type_ in enumerate(types[:num_measures])),
            *(StateField(f"value{n}", pa.list_(type_)) for n, type_ in enumerate(types[num_measures:])),
        )

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return ProjectedState(call.types, _measures(call), num_groups, is_min=self._is_min)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        """Return the rows of each state in ascending order of all values; -0.0 before 0.0 where rows are equal."""
        num_measures, place = _measures(call), _whole(call.constants[1])
        lists = columns[num_measures:]
        owners = np.repeat(np.arange(len(lists[0])), np.diff(lists[0].offsets.to_numpy()))
        values = [column.flatten() for column in lists]
        ranks = [ordinals(type_, column) for type_, column in zip(call.types[num_measures:], values, strict=True)]
        signs = [_signs(column) for column in values if pa.types.is_floating(column.type)]
        order = pa.array(np.lexsort((*signs, *reversed(ranks), owners)))
        chosen = lists[place]
        offsets = pa.array(chosen.offsets.to_numpy() - chosen.offsets[0].as_py())
        ordered = pa.ListArray.from_arrays(offsets, chosen.flatten().take(order))
        return Vector(SqlType(call.result.base, is_array=True), ordered)


def _signs(values: pa.Array) -> NDArray[np.bool_]:
    signs: NDArray[np.bool_] = ~np.signbit(values.to_numpy(zero_copy_only=False))
    return signs


def _measures(call: AggregateCall) -> int:
    return _whole(call.constants[0])


def _whole(constant: Value) -> int:
    assert isinstance(constant, int)
    return constant


def _arguments(measures: Sequence[Expr], values: Sequence[Expr], place: int) -> tuple[Expr, ...]:
    return (Literal(len(measures), INT), Literal(place, INT), *measures, *values)


def _split(aggregate: Aggregate) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Return the measures and values of a call."""
    assert isinstance(aggregate.args[0], Literal)
    end = 2 + _whole(aggregate.args[0].value)
    return aggregate.args[2:end], aggregate.args[end:]


def together(calls: Sequence[Aggregate]) -> list[Aggregate]:
    """Give each call the values of all calls of the same function, measures and filter. Raise SqlValidationError if
    measures and values are more than MOST."""
    values: dict[tuple[Any, ...], dict[Expr, None]] = {}
    for call in calls:
        measures, several = _split(call)
        values.setdefault((call.function, measures, call.filter), {}).update(dict.fromkeys(several))
    completed = []
    for call in calls:
        measures, (own,) = _split(call)
        every = tuple(values[call.function, measures, call.filter])
        if len(measures) + len(every) > MOST:
            raise SqlValidationError(f"{call.function} takes up to {MOST} measures and values, got {len(every)} values")
        completed.append(
            Aggregate(call.function, _arguments(measures, every, every.index(own)), call.type, call.filter)
        )
    return completed
