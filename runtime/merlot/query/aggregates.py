"""What each aggregate's state is between tasks and nodes, how states merge, and how they become answers.

State columns of slot `a0` are `a0.high`, `a0.low`, … Whole-number sums travel as two 64-bit halves (high * 2**32 + low,
0 <= low < 2**32), float sums with the error of their roundings: both are rounded once, at the end. Null handling adds
the count of values to sums, since the sum of nothing is then NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import aggregate as kernels
from merlot.query.accumulators import LOW_MASK, Extreme
from merlot.query.distinct import count_lists, merge_lists, value_type
from merlot.spec.types import TypeName
from merlot.tree.nodes import Aggregate
from merlot.tree.types import SqlType
from merlot.vectors.decimals import exactly
from merlot.vectors.errors import QueryArithmeticError, UnsupportedQueryError
from merlot.vectors.vector import INTEGERS, Vector

Groups = NDArray[np.uint32]

FEW_SUMS = 16
"""Up to this many sums are added as Python's integers: the array operations have a price of their own."""
SUPPORTED = frozenset({"count", "sum", "sumlong", "min", "minlong", "max", "maxlong", "avg", "distinctcount"})


@dataclass(frozen=True, slots=True)
class StateField:
    """One state column of an aggregate."""

    suffix: str
    type: pa.DataType
    empty: Any = 0
    """What it is of no rows: merged with any state it leaves that as it is."""

    def identity(self) -> pa.Array:
        """The column of one row, over no rows."""
        return pa.array([self.empty], self.type)


def state_fields(aggregate: Aggregate, *, nulls: bool) -> list[StateField]:
    """The state columns; raises UnsupportedQueryError."""
    function = aggregate.function
    if function not in SUPPORTED:
        raise UnsupportedQueryError(f"aggregate is not supported function={function}")
    if function == "count":
        return [StateField("count", pa.int64())]
    argument = aggregate.args[0].type
    if argument.is_array and function != "distinctcount":
        raise UnsupportedQueryError(f"aggregate of a multi-value column function={function}")
    if function == "distinctcount":
        return [StateField("values", pa.list_(value_type(argument)), [])]
    if function in ("min", "minlong", "max", "maxlong"):
        return [StateField("value", pa.int64() if argument.base in INTEGERS else pa.float64(), None)]
    count = [StateField("count", pa.int64())] if nulls or function == "avg" else []
    return [*_sum_fields(argument), *count]


def _sum_fields(argument: SqlType) -> list[StateField]:
    if argument.base in INTEGERS:
        return [StateField("high", pa.int64()), StateField("low", pa.int64())]
    if argument.base is TypeName.BIG_DECIMAL:
        return [StateField("decimal", pa.string(), "0")]
    return [StateField("sum", pa.float64()), StateField("error", pa.float64())]


def merge(aggregate: Aggregate, states: Sequence[pa.Array], groups: Groups, num_groups: int) -> list[pa.Array]:
    """States of num_groups groups from the states of rows; groups says which group a row belongs to."""
    function = aggregate.function
    if function == "count":
        return [_merge_counts(states[0], groups, num_groups)]
    argument = aggregate.args[0]
    if function == "distinctcount":
        return [merge_lists(states[0], groups, num_groups, argument.type)]
    if function in ("min", "minlong", "max", "maxlong"):
        return [_merge_extremes(aggregate, states[0], groups, num_groups)]
    width = len(_sum_fields(argument.type))
    merged = _merge_sums(argument.type, states[:width], groups, num_groups)
    return merged + [_merge_counts(state, groups, num_groups) for state in states[width:]]


def _merge_counts(state: pa.Array, groups: Groups, num_groups: int) -> pa.Array:
    counts = np.zeros(num_groups, np.int64)
    kernels.sum_int_groups(groups, state.to_numpy(), counts)
    return pa.array(counts)


def _merge_extremes(aggregate: Aggregate, state: pa.Array, groups: Groups, num_groups: int) -> pa.Array:
    extreme = Extreme(aggregate.args[0], num_groups, is_min=aggregate.function.startswith("min"))
    extreme.add_values(Vector(aggregate.args[0].type, _numbers(state), _nulls(state)), groups, len(state))
    return extreme.states(np.arange(num_groups))[0]


def _merge_sums(argument: SqlType, states: Sequence[pa.Array], groups: Groups, num_groups: int) -> list[pa.Array]:
    if argument.base is TypeName.BIG_DECIMAL:
        sums: NDArray[Any] = np.full(num_groups, 0, dtype=object)
        with exactly():
            np.add.at(sums, groups, np.array([Decimal(text) for text in states[0].to_pylist()], dtype=object))
        return [pa.array([str(value) for value in sums], pa.string())]
    first, second = (state.to_numpy() for state in states)
    if argument.base in INTEGERS:
        highs, lows = np.zeros(num_groups, np.int64), np.zeros(num_groups, np.int64)
        kernels.sum_int_groups(groups, first, highs)
        kernels.sum_int_groups(groups, second, lows)
        return [pa.array(highs + (lows >> 32)), pa.array(lows & LOW_MASK)]
    totals, errors = np.zeros(num_groups, np.float64), np.zeros(num_groups, np.float64)
    kernels.sum_float_groups(groups, first, totals, errors)
    # The error of an infinite sum is NaN and means nothing.
    kernels.sum_float_groups(groups, np.where(np.isfinite(second), second, 0.0), totals, errors)
    return [pa.array(totals), pa.array(errors)]


def finish(aggregate: Aggregate, states: Sequence[pa.Array], *, nulls: bool) -> Vector:
    """Answers of an aggregate's declared type."""
    function, type_ = aggregate.function, aggregate.type
    if function == "count":
        return Vector(type_, states[0].to_numpy())
    if function == "distinctcount":
        return Vector(type_, count_lists(states[0]))
    if function in ("min", "minlong", "max", "maxlong"):
        return _finish_extreme(aggregate, states[0], nulls=nulls)
    argument = aggregate.args[0].type
    width = len(_sum_fields(argument))
    count = states[width].to_numpy() if len(states) > width else None
    empty = None if count is None or not nulls else count == 0
    if function == "sumlong":
        return Vector(type_, _exact_sum(states), _any(empty))
    total = _rounded_sum(argument, states)
    if function == "sum":
        return Vector(type_, total, _any(empty))
    assert count is not None
    with np.errstate(all="ignore"):
        average = np.where(count == 0, -np.inf, total / count)
    return Vector(type_, average, _any(empty))


def _any(mask: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    return mask if mask is not None and mask.any() else None


def _finish_extreme(aggregate: Aggregate, state: pa.Array, *, nulls: bool) -> Vector:
    is_long = aggregate.type.base is TypeName.LONG
    is_min = aggregate.function.startswith("min")
    values, missing = _numbers(state), _nulls(state)
    # Which zero came first depends on the segments.
    result = values.astype(np.int64) if is_long else values.astype(np.float64) + 0.0
    if missing is None:
        return Vector(aggregate.type, result)
    if is_long:
        result[missing] = np.iinfo(np.int64).max if is_min else np.iinfo(np.int64).min
    else:
        result[missing] = np.inf if is_min else -np.inf
    return Vector(aggregate.type, result, missing if nulls else None)


def _exact_sum(states: Sequence[pa.Array]) -> NDArray[np.int64]:
    high, low = states[0].to_numpy(), states[1].to_numpy()
    if np.any((high >= 1 << 31) | (high < -(1 << 31))):
        raise QueryArithmeticError("LONG overflow function=sumlong")
    return np.asarray((high << 32) + low)


def _rounded_sum(argument: SqlType, states: Sequence[pa.Array]) -> NDArray[np.float64]:
    if argument.base is TypeName.BIG_DECIMAL:
        return np.array([float(Decimal(text)) for text in states[0].to_pylist()], np.float64)
    first, second = states[0].to_numpy(), states[1].to_numpy()
    if argument.base not in INTEGERS:
        with np.errstate(all="ignore"):
            return np.asarray(np.where(np.isfinite(first), first + second, first))
    if len(first) > FEW_SUMS and np.all((first < 1 << 31) & (first >= -(1 << 31))):
        return np.asarray((first << 32) + second).astype(np.float64)
    exact = [(high << 32) + low for high, low in zip(first.tolist(), second.tolist(), strict=True)]
    return np.array([float(value) for value in exact], np.float64)


def _numbers(state: pa.Array) -> NDArray[Any]:
    filled = state.fill_null(0) if state.null_count else state
    numbers: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return numbers


def _nulls(state: pa.Array) -> NDArray[np.bool_] | None:
    return state.is_null().to_numpy(zero_copy_only=False) if state.null_count else None
