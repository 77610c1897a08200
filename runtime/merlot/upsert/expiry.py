"""Which keys are dead: decided by the largest comparison value before a row in the stream, never by a clock.

A key is dead to a row if its value is below the largest one seen so far less the time to live. Whether it is still in
the index makes no difference, so pruning may come at any time. Bounds never fall: what was dead under one time to live
stays dead under a longer one (`frozen`), since nobody may know its key any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.upsert import largest_before
from merlot.upsert.comparison import NOTHING
from merlot.upsert.rules import Rules

Longs = NDArray[np.int64]


class Bounds(NamedTuple):
    """Below which value keys, and deleted keys, are dead."""

    alive_from: int
    deleted_from: int


NO_BOUNDS: Final = Bounds(NOTHING, NOTHING)


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far a partition has come; values as `ComparisonColumn.values` gives them."""

    largest: int = NOTHING
    """The largest value seen."""
    frozen: Bounds = NO_BOUNDS
    """What bounds had come to when a time to live last changed."""

    def bounds(self, rules: Rules) -> Bounds:
        """What is dead now."""
        largest = np.array([self.largest])
        alive, deleted = _below(rules, largest)
        return Bounds(max(int(alive[0]), self.frozen.alive_from), max(int(deleted[0]), self.frozen.deleted_from))

    def changed(self, rules: Rules) -> Watermark:
        """The watermark for those who follow other rules from here on."""
        return replace(self, frozen=self.bounds(rules))


def advance(
    mark: Watermark, rules: Rules, values: Longs, sent_ms: Longs | None
) -> tuple[Watermark, tuple[Longs, Longs], Longs]:
    """The watermark after rows of these values, the bounds that each of them sees, and the largest value before it.

    sent_ms (N,): when their messages were made, as `Rules.sent_ms` has it.
    A value further in the future of its message than the rules allow raises nothing, nor do infinity and NaN."""
    before = np.empty_like(values)
    largest = largest_before(values, limits(rules, sent_ms, len(values)), mark.largest, before)
    alive, deleted = _below(rules, before)
    bounds = np.maximum(alive, mark.frozen.alive_from), np.maximum(deleted, mark.frozen.deleted_from)
    return replace(mark, largest=int(largest)), bounds, before


def _below(rules: Rules, largest: Longs) -> tuple[Longs, Longs]:
    column = rules.comparisons[0]
    return column.below(largest, rules.time_to_live), column.below(largest, rules.deleted_time_to_live)


def limits(rules: Rules, sent_ms: Longs | None, count: int) -> Longs:
    """Up to which value each row raises the largest seen."""
    column = rules.comparisons[0]
    if rules.max_future_skew_ms is None or sent_ms is None:
        return np.full(count, column.largest, np.int64)
    return column.limits(sent_ms, rules.max_future_skew_ms)
