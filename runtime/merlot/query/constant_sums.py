"""Sum-plus-constant rewrite: for SUM(a), SUM(a + 1), AVG(a - 2), …, one sum of `a` and one count, from which all states
follow exactly.

The rewrite is done only if no `a + k` can overflow: a query fails exactly if it would fail with each sum computed by
itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates import registry
from merlot.aggregates.averages import Average
from merlot.aggregates.function import Chosen, Groups
from merlot.aggregates.sums import LOW_MASK, Sum
from merlot.query.accumulators import Accumulator
from merlot.query.aggregation import Aggregation
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.types import INT, SqlType

MOST_CONSTANT: Final = 1 << 30
"""Bound of the magnitude of constants, exclusive. Times 2**31 rows it fits 64 bits."""


@dataclass(frozen=True, slots=True)
class SumFamily:
    """Argument and filter that sums have in common if they differ in a constant alone."""

    argument: Expr
    filter: Expr | None


class _Shared:
    """Sum and count of a family. The states of the groups requested last are kept."""

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        self._asked: Chosen | None = None
        self._states: tuple[NDArray[np.int64], ...] = ()

    def states(self, groups: Chosen) -> tuple[NDArray[np.int64], ...]:
        """Return the high and the low halves of the sums, and the counts."""
        if groups is not self._asked:
            self._asked = groups
            self._states = tuple(column.to_numpy() for column in self.accumulator.states(groups))
        return self._states


class SumPlusConstant:
    """Accumulator of one member of a family. The first member feeds the sum that all share."""

    def __init__(self, aggregation: Aggregation, shared: _Shared, constant: int, *, feeds: bool) -> None:
        self._shared = shared
        self._constant = constant
        self._feeds = feeds
        self._num_fields = len(aggregation.fields)
        self.rows_by_group: NDArray[np.int64] | None = None

    def grow(self, num_groups: int) -> None:
        """Make room for `num_groups` groups."""
        if self._feeds:
            self._shared.accumulator.grow(num_groups)

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        """Add the rows of a chunk."""
        if self._feeds:
            self._shared.accumulator.add(chunk, groups)

    def states(self, groups: Chosen) -> list[pa.Array]:
        """Return the state columns of the chosen groups: the halves of a sum, and for an average the count."""
        high, low, count = self._shared.states(groups)
        added = count * np.int64(self._constant)
        low = low + (added & LOW_MASK)
        high = high + (added >> 32) + (low >> 32)
        return [pa.array(high), pa.array(low & LOW_MASK), pa.array(count)][: self._num_fields]


@dataclass(frozen=True, slots=True)
class _Member:
    """Aggregate that shares a sum: its family, the family's average, and the constant added to each number."""

    family: SumFamily
    average: Aggregation
    constant: int


def accumulators(work: LeafWork, num_groups: int, columns: Columns) -> list[Accumulator | SumPlusConstant]:
    """Return an accumulator for each of the plan's aggregates, in order."""
    members = work.memo.cached(_members, work.aggregations)
    shared: dict[SumFamily, _Shared] = {}
    states: list[Accumulator | SumPlusConstant] = []
    for aggregation, member in zip(work.aggregations, members, strict=True):
        if member is None:
            states.append(Accumulator(aggregation, num_groups, columns))
            continue
        is_first = member.family not in shared
        if is_first:
            shared[member.family] = _Shared(Accumulator(member.average, num_groups, columns))
        states.append(SumPlusConstant(aggregation, shared[member.family], member.constant, feeds=is_first))
    return states


def _members(aggregations: Sequence[Aggregation]) -> tuple[_Member | None, ...]:
    """Return the member for each aggregate whose family has several; None for the others."""
    split = [family_of(aggregation) for aggregation in aggregations]
    sizes = Counter(pair[0] for pair in split if pair is not None)
    averages = {
        pair[0]: _average(aggregation, pair[0])
        for aggregation, pair in zip(aggregations, split, strict=True)
        if pair is not None
    }
    return tuple(
        None if pair is None or sizes[pair[0]] < 2 else _Member(pair[0], averages[pair[0]], pair[1]) for pair in split
    )


def family_of(aggregation: Aggregation) -> tuple[SumFamily, int] | None:
    """Return the family and the constant of a sum or an average of INT numbers; None for other aggregates.

    Such sums cannot overflow: INT and a constant add up to a LONG."""
    if type(aggregation.function) not in (Sum, Average) or len(aggregation.arguments) != 1:
        return None
    expr = aggregation.arguments[0]
    if expr.type == INT:
        return SumFamily(expr, aggregation.filter), 0
    if not isinstance(expr, Call) or expr.function not in ("plus", "minus"):
        return None
    left, right = expr.args
    if expr.function == "plus" and isinstance(left, Literal):
        left, right = right, left
    if left.type != INT or not isinstance(right, Literal) or right.type.base.name not in ("INT", "LONG"):
        return None
    if not isinstance(right.value, int) or abs(right.value) >= MOST_CONSTANT:
        return None
    return SumFamily(left, aggregation.filter), right.value if expr.function == "plus" else -right.value


def _average(aggregation: Aggregation, family: SumFamily) -> Aggregation:
    """Return the average of a family's argument, whose state holds the sum and the count."""
    function = registry.named(Average.name)
    call = replace(aggregation.call, types=(SqlType(family.argument.type.base),))
    return replace(
        aggregation, function=function, call=call, arguments=(family.argument,), fields=function.fields(call)
    )
