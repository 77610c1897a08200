"""Evaluation of a filter over the statistics of all segments: a walk down its tree, one or two array operations at each
node.

It is sound under NOT, since a predicate that is not decided exactly is SOME at the leaf. Columns compared with columns
are SOME, and so are functions except those that rise with a column (`monotone`). Multi-value columns: a positive
predicate needs any value to match, so its ALL is weakened; `not_equals` and `not_in` are the complements of their
positive twins.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

import numpy as np

from merlot.query.plan.expressions import literal_values
from merlot.query.pruning.statistics import SegmentStatistics
from merlot.query.pruning.verdicts import ALL, NONE, SOME, Verdicts, complement, constant, weaken
from merlot.tree.nodes import Call, Column, Expr, Literal

_POSITIVE: Final = {"not_equals": "equals", "not_in": "in"}


def evaluate(where: Expr | None, statistics: SegmentStatistics, *, null_handling: bool = False) -> Verdicts:
    """Return the verdict of each segment: NONE if no row passes the filter, ALL if every row does, else SOME.

    With null handling a row may neither pass nor fail, so the verdict of a filter is never ALL."""
    if where is None:
        verdicts = constant(statistics.num_segments, ALL)
    else:
        verdicts = _Evaluation(statistics).of(where)
        if null_handling:
            verdicts = weaken(verdicts)
    if statistics.is_empty is not None:
        verdicts[statistics.is_empty] = NONE
    return verdicts


class _Evaluation:
    """One evaluation. The arrays that it returns belong to its caller."""

    __slots__ = ("_statistics",)

    def __init__(self, statistics: SegmentStatistics) -> None:
        self._statistics = statistics

    def of(self, expr: Expr) -> Verdicts:
        if isinstance(expr, Literal):
            return self._constant(SOME if expr.value is None else ALL if expr.value else NONE)
        if not isinstance(expr, Call):
            return self._constant(SOME)
        match expr.function:
            case "and":
                return reduce(_least, map(self.of, expr.args))
            case "or":
                return reduce(_greatest, map(self.of, expr.args))
            case "not":
                return complement(self.of(expr.args[0]))
            case "is_null":
                return self._nulls(expr.args[0])
            case "is_not_null":
                return complement(self._nulls(expr.args[0]))
        return self._predicate(expr)

    def _constant(self, verdict: int) -> Verdicts:
        return constant(self._statistics.num_segments, verdict)

    def _predicate(self, call: Call) -> Verdicts:
        """Return the verdicts of a column, or of a function that rises with one, compared with constants; SOME for
        other predicates."""
        if call.function in _POSITIVE:
            return complement(self._predicate(Call(_POSITIVE[call.function], call.args, call.type)))
        subject, constants = call.args[0], call.args[1:]
        if not all(isinstance(arg, Literal) for arg in constants):
            return self._constant(SOME)
        values = literal_values(constants)
        ranges = self._statistics.ranges_of(subject)
        verdicts = self._constant(SOME) if ranges is None else ranges.evaluate(call.function, values)
        if not isinstance(subject, Column):
            return verdicts
        if subject.type.is_array:
            verdicts = weaken(verdicts)
        if call.function in ("equals", "in"):
            for by_column in (self._statistics.partitions, self._statistics.blooms):
                if subject.name in by_column:
                    # These can only tell NONE; their SOME leaves the verdict of the bounds.
                    np.minimum(verdicts, by_column[subject.name].holding(values) * np.int8(ALL), out=verdicts)
        return verdicts

    def _nulls(self, expr: Expr) -> Verdicts:
        """Return the verdicts of `is_null`, from stored null counts, with null handling and without."""
        counts = self._statistics.null_counts.get(expr.name) if isinstance(expr, Column) else None
        if counts is None or self._statistics.num_docs is None:
            return self._constant(SOME)
        verdicts = self._constant(SOME)
        verdicts[counts == 0] = NONE
        verdicts[counts == self._statistics.num_docs] = ALL
        return verdicts


def _least(first: Verdicts, second: Verdicts) -> Verdicts:
    result: Verdicts = np.minimum(first, second)
    return result


def _greatest(first: Verdicts, second: Verdicts) -> Verdicts:
    result: Verdicts = np.maximum(first, second)
    return result
