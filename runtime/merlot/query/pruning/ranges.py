"""Least and greatest values of one column, of all segments: predicates become comparisons of ranks.

All bounds of a column, sorted, are its scale; a segment holds the positions of its own two. A constant is looked up in
the scale once, and its position is compared with those of the segments: numbers, texts and decimals alike, exactly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.functions.comparisons import beginning_of_like
from merlot.query.pruning.verdicts import SOME, Verdicts, complement, constant, verdicts_of

Bound = int | float | str | bytes | Decimal
Bounds = tuple[Bound, Bound]
KnownBounds = tuple[Bound | None, Bound | None]
"""Least and greatest value. None: that bound is unknown."""
FEW_VALUES = 8
"""Most values of an IN that are compared one by one; more are counted along the scale."""


@dataclass(frozen=True, slots=True)
class ColumnRanges:
    """Bounds by segment: all values that queries see lie between them. Unknown bounds are wider than the scale."""

    scale: Sequence[Any] = field(repr=False)
    """Distinct bounds, ascending, of one kind: numbers, or texts, or bytes."""
    low: NDArray[np.int32]
    high: NDArray[np.int32]

    @classmethod
    def of(cls, bounds: Sequence[KnownBounds | None]) -> ColumnRanges:
        """Return the bounds of a column, given a pair for each segment; None for a segment with unknown bounds. All
        bounds are of one kind, none is NaN, no pair is reversed."""
        pairs = [(None, None) if pair is None else pair for pair in bounds]
        scale: list[Any] = sorted({bound for pair in pairs for bound in pair if bound is not None})
        ranks = {bound: rank for rank, bound in enumerate(scale)}
        ranked = [
            (-1 if low is None else ranks[low], len(scale) if high is None else ranks[high]) for low, high in pairs
        ]
        both = np.array(ranked, np.int32).reshape(len(bounds), 2)
        return cls(scale, np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1]))

    @property
    def num_known(self) -> int:
        """Number of segments whose lower bound is known."""
        return int(np.count_nonzero(self.low >= 0))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without the scale."""
        return self.low.nbytes + self.high.nbytes

    def evaluate(self, function: str, values: Sequence[Any]) -> Verdicts:
        """Return the verdicts of comparing each stored value with constants; SOME if they cannot be compared."""
        if any(value is None or value != value for value in values):
            return constant(len(self.low), SOME)
        try:
            return self._evaluate(function, values)
        except TypeError:
            # Numbers do not compare with texts: the schema has changed since the query was planned.
            return constant(len(self.low), SOME)

    def _evaluate(self, function: str, values: Sequence[Any]) -> Verdicts:
        match function:
            case "equals":
                return self._between(values[0], values[0])
            case "not_equals":
                return complement(self._between(values[0], values[0]))
            case "between":
                return self._between(values[0], values[1])
            case "in":
                return self._in(values)
            case "not_in":
                return complement(self._in(values))
            case "less_than":
                return self._below(bisect_left(self.scale, values[0]))
            case "less_than_or_equal":
                return self._below(bisect_right(self.scale, values[0]))
            case "greater_than":
                return complement(self._below(bisect_right(self.scale, values[0])))
            case "greater_than_or_equal":
                return complement(self._below(bisect_left(self.scale, values[0])))
            case "like":
                return self._like(values[0])
        return constant(len(self.low), SOME)

    def _below(self, rank: int) -> Verdicts:
        """Return the verdicts of values whose rank is less."""
        return verdicts_of(self.low >= rank, self.high < rank)

    def _between(self, least: Any, greatest: Any) -> Verdicts:
        first, after = bisect_left(self.scale, least), bisect_right(self.scale, greatest)
        is_none = self.high < first
        is_none |= self.low >= after
        is_all = self.low >= first
        is_all &= self.high < after
        # An empty range (greatest < least) may leave both true of a segment in between.
        return verdicts_of(is_none, is_all & ~is_none if after < first else is_all)

    def _in(self, values: Sequence[Any]) -> Verdicts:
        if len(values) <= FEW_VALUES:
            verdicts = self._between(values[0], values[0])
            for value in values[1:]:
                np.maximum(verdicts, self._between(value, value), out=verdicts)
            return verdicts
        firsts = np.fromiter(map(partial(bisect_left, self.scale), values), np.int64, len(values))
        is_bound = np.fromiter(map(frozenset(self.scale).__contains__, values), np.bool_, len(values))
        return self._by_counting(firsts, firsts + is_bound)

    def _by_counting(self, firsts: NDArray[np.int64], afters: NDArray[np.int64]) -> Verdicts:
        """Count the values up to each segment's greatest bound, less those below its least: if that is zero, none is
        inside."""
        size = len(self.scale) + 2
        at_most = np.cumsum(np.bincount(firsts, minlength=size))
        below = np.cumsum(np.bincount(afters, minlength=size))
        is_none = at_most[self.high] == np.where(self.low >= 0, below[self.low], 0)
        is_single = (self.low == self.high) & ~is_none
        return verdicts_of(is_none, is_single)

    def _like(self, pattern: str) -> Verdicts:
        """Return the verdicts of a pattern by its literal beginning; never ALL."""
        prefix = beginning_of_like(pattern)
        if not prefix:
            return constant(len(self.low), SOME)
        first = bisect_left(self.scale, prefix)
        after = bisect_left(self.scale, True, key=lambda text: text > prefix and not text.startswith(prefix))
        is_none = (self.high < first) | (self.low >= after)
        return verdicts_of(is_none, np.zeros(len(is_none), np.bool_))
