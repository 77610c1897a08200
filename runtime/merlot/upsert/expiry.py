"""Decide which keys are dead, by the largest comparison value before a row in the stream, never by a clock.

A key is dead to a row if its value is below the largest value seen so far minus the time to live. It makes no
difference whether it is still in the index, so pruning may come at any time. Bounds never fall: a key that was dead
under one time to live stays dead under a longer time to live (`frozen`), since the index may have forgotten it.
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
    """Values below which keys, and deleted keys, are dead."""

    alive_from: int
    deleted_from: int


NO_BOUNDS: Final = Bounds(NOTHING, NOTHING)


@dataclass(frozen=True, slots=True)
class Watermark:
    """Progress of a partition, in values of `ComparisonColumn.values`."""

    largest: int = NOTHING
    """Largest value seen."""
    frozen: Bounds = NO_BOUNDS
    """Bounds at the last change of a time to live."""

    def bounds(self, rules: Rules) -> Bounds:
        """Return the present bounds."""
        largest = np.array([self.largest])
        alive, deleted = _below(rules, largest)
        return Bounds(max(int(alive[0]), self.frozen.alive_from), max(int(deleted[0]), self.frozen.deleted_from))

    def changed(self, rules: Rules) -> Watermark:
        """Return the watermark with which to follow other rules from now on."""
        return replace(self, frozen=self.bounds(rules))


def advance(
    mark: Watermark, rules: Rules, values: Longs, sent_ms: Longs | None
) -> tuple[Watermark, tuple[Longs, Longs], Longs]:
    """Return the watermark after rows of these values, the bounds that each row sees, and the largest value before it.

    sent_ms (N,): times of their messages, as of `Rules.sent_ms`. A value that is further ahead of its message's time
    than the rules allow does not raise the watermark; nor do infinity and NaN."""
    before = np.empty_like(values)
    largest = largest_before(values, limits(rules, sent_ms, len(values)), mark.largest, before)
    alive, deleted = _below(rules, before)
    bounds = np.maximum(alive, mark.frozen.alive_from), np.maximum(deleted, mark.frozen.deleted_from)
    return replace(mark, largest=int(largest)), bounds, before


def _below(rules: Rules, largest: Longs) -> tuple[Longs, Longs]:
    column = rules.comparisons[0]
    return column.below(largest, rules.time_to_live), column.below(largest, rules.deleted_time_to_live)


def limits(rules: Rules, sent_ms: Longs | None, count: int) -> Longs:
    """Return, for each row, the greatest value that the largest value may become by it, (count,)."""
    column = rules.comparisons[0]
    if rules.max_future_skew_ms is None or sent_ms is None:
        return np.full(count, column.largest, np.int64)
    return column.limits(sent_ms, rules.max_future_skew_ms)
