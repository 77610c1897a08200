"""Choose the changes that pay. Pure: reads the times and bytes that a trial measured.

The choice is greedy: each step takes the change that saves most of the remaining time. If bytes are bounded, a second
pass takes the change that saves most per byte, and the better of both passes wins. If two changes speed up the same
query, the query uses the faster one: their gains do not add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from merlot.advice.candidates import SORTED, Candidate

MIN_GAIN: Final = 0.03
"""Share of the total time that a change has to save: less is not worth its bytes and may be chance."""
ORDER_GAIN: Final = 0.25
"""Share of the total time that another sort order has to save beyond the best choice without it: it affects only
segments that are built afterwards, but every query."""
TIE: Final = 0.02
"""Gains that differ by less than this share of the total time count as equal: the smallest change is taken."""
MIN_SPEEDUP: Final = 1.25
"""Speed-up from which on a query counts as helped."""
MIN_SAVED_MS: Final = 0.02
"""Milliseconds that a helped query has to save: less is within the resolution of the clock."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate and its times on the sample."""

    candidate: Candidate
    times_ms: tuple[float, ...]
    """Time of each question with the candidate."""
    num_bytes: int
    """Bytes that it adds to the sample."""
    build_s: float
    left_out: tuple[str, ...] = ()
    """Reasons why parts of it could not be built."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A change that pays."""

    tried: Tried
    gain: float
    """Share of the total time that it saves beyond the changes chosen before it."""
    helps: tuple[int, ...]
    """Numbers of the questions that it makes faster than the changes chosen before it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Times of the questions on an unchanged sample, and the weight of each time."""

    times_ms: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def total(self) -> float:
        """Weighted sum of the times."""
        return sum(weight * time for weight, time in zip(self.weights, self.times_ms, strict=True))

    def saved_by(self, after_ms: Sequence[float], now_ms: Sequence[float] | None = None) -> float:
        """Return the share of the total time saved by going from `now_ms` (default: `times_ms`) to `after_ms`."""
        pairs = zip(self.weights, now_ms or self.times_ms, after_ms, strict=True)
        less = sum(weight * (now - after) for weight, now, after in pairs)
        return less / self.total if self.total else 0.0


def choose(base: Measured, tried: Sequence[Tried], max_bytes: int | None = None) -> list[Choice]:
    """Return the changes to make, the best first."""
    orders = [change for change in tried if change.candidate.kind == SORTED]
    others = [change for change in tried if change.candidate.kind != SORTED]
    best = _chosen(base, base.times_ms, others, max_bytes)
    least = saved(best) + ORDER_GAIN
    for order in orders:
        gain = base.saved_by(order.times_ms)
        helps = helped(base.times_ms, order.times_ms)
        room = None if max_bytes is None else max_bytes - order.num_bytes
        if not helps or (room is not None and room < 0):
            continue
        chosen = [Choice(order, gain, helps), *_chosen(base, order.times_ms, others, room)]
        if saved(chosen) > least:
            best, least = chosen, saved(chosen)
    return best


def saved(chosen: Sequence[Choice]) -> float:
    """Return the share of the total time that several changes save together."""
    return sum(choice.gain for choice in chosen)


def helped(before_ms: Sequence[float], after_ms: Sequence[float]) -> tuple[int, ...]:
    """Return the numbers of the questions that are faster by more than chance."""
    pairs = enumerate(zip(before_ms, after_ms, strict=True))
    return tuple(
        number for number, (before, after) in pairs if before >= MIN_SPEEDUP * after and before - after >= MIN_SAVED_MS
    )


def _chosen(base: Measured, now: tuple[float, ...], tried: Sequence[Tried], max_bytes: int | None) -> list[Choice]:
    by_gain = _greedy(base, now, tried, max_bytes, per_byte=False)
    if max_bytes is None:
        return by_gain
    return max(by_gain, _greedy(base, now, tried, max_bytes, per_byte=True), key=saved)


def _greedy(
    base: Measured, now: tuple[float, ...], tried: Sequence[Tried], room: int | None, *, per_byte: bool
) -> list[Choice]:
    chosen: list[Choice] = []
    left = list(tried)
    while left:
        # An index is used or not, whichever is faster.
        fitting = [change for change in left if room is None or change.num_bytes <= room]
        steps = [(change, tuple(map(min, now, change.times_ms))) for change in fitting]
        rated = [(base.saved_by(after, now), change, after) for change, after in steps if helped(now, after)]
        rated = [step for step in rated if step[0] >= MIN_GAIN]
        if not rated:
            break
        if per_byte:
            gain, best, after = max(rated, key=lambda step: step[0] / max(1, step[1].num_bytes))
        else:
            most = max(step[0] for step in rated)
            near = [step for step in rated if step[0] >= most - TIE]
            gain, best, after = min(near, key=lambda step: step[1].num_bytes)
        chosen.append(Choice(best, gain, helped(now, after)))
        now = after
        room = None if room is None else room - max(0, best.num_bytes)
        left = [change for change in left if change is not best]
    return chosen
