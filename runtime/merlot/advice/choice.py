"""Which of the changes that were tried pay: pure, of measured times and bytes.

Greedy: what saves most of the time that is left comes first, or, where bytes are bounded, what saves most for its
bytes, if that comes to more in the end. Two changes that help one query do not add up: it takes the faster one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from merlot.advice.candidates import SORTED, Candidate

LEAST_GAIN: Final = 0.03
"""Of all time: what saves less is not worth its bytes, and may be chance."""
ORDER_GAIN: Final = 0.25
"""That another order of rows must save beyond what goes without it: it holds for segments that are built afterwards
only, and for queries that nobody has asked yet as well."""
NEARLY: Final = 0.02
"""Of all time: of what differs by less, the smallest is taken."""
LEAST_SPEEDUP: Final = 1.25
"""Of a query that a change is said to help."""
LEAST_MS: Final = 0.02
"""Of a query, too: less is the clock's."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate on the sample."""

    candidate: Candidate
    times_ms: tuple[float, ...]
    """Of each question, with it."""
    num_bytes: int
    """On the sample."""
    build_s: float
    left_out: tuple[str, ...] = ()
    """What could not be made, and why."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What pays."""

    tried: Tried
    gain: float
    """The share of all time that it saves beside those that were chosen before it."""
    helps: tuple[int, ...]
    """Numbers of the questions that are faster by it, beside those."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A sample as it is: the time of each question, and what an hour of each is worth."""

    times_ms: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def total(self) -> float:
        """Weighted time of all."""
        return sum(weight * time for weight, time in zip(self.weights, self.times_ms, strict=True))

    def saved_by(self, after_ms: Sequence[float], now_ms: Sequence[float] | None = None) -> float:
        """The share of all time that is saved if the questions take so long, where they take `now_ms` before."""
        pairs = zip(self.weights, now_ms or self.times_ms, after_ms, strict=True)
        less = sum(weight * (now - after) for weight, now, after in pairs)
        return less / self.total if self.total else 0.0


def choose(base: Measured, tried: Sequence[Tried], max_bytes: int | None = None) -> list[Choice]:
    """The changes to make, the best one first."""
    orders = [one for one in tried if one.candidate.kind == SORTED]
    others = [one for one in tried if one.candidate.kind != SORTED]
    best = _chosen(base, base.times_ms, others, max_bytes)
    least = saved(best) + ORDER_GAIN
    for order in orders:
        gain = base.saved_by(order.times_ms)
        found = helped(base.times_ms, order.times_ms)
        room = None if max_bytes is None else max_bytes - order.num_bytes
        if not found or (room is not None and room < 0):
            continue
        chosen = [Choice(order, gain, found), *_chosen(base, order.times_ms, others, room)]
        if saved(chosen) > least:
            best, least = chosen, saved(chosen)
    return best


def saved(chosen: Sequence[Choice]) -> float:
    """The share of all time that several changes save."""
    return sum(one.gain for one in chosen)


def helped(before_ms: Sequence[float], after_ms: Sequence[float]) -> tuple[int, ...]:
    """Numbers of the questions that are faster for certain."""
    pairs = enumerate(zip(before_ms, after_ms, strict=True))
    return tuple(
        number for number, (before, after) in pairs if before >= LEAST_SPEEDUP * after and before - after >= LEAST_MS
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
        steps = [(one, tuple(map(min, now, one.times_ms))) for one in left if room is None or one.num_bytes <= room]
        rated = [(base.saved_by(after, now), one, after) for one, after in steps if helped(now, after)]
        rated = [step for step in rated if step[0] >= LEAST_GAIN]
        if not rated:
            break
        if per_byte:
            gain, best, after = max(rated, key=lambda step: step[0] / max(1, step[1].num_bytes))
        else:
            most = max(step[0] for step in rated)
            near = [step for step in rated if step[0] >= most - NEARLY]
            gain, best, after = min(near, key=lambda step: step[1].num_bytes)
        chosen.append(Choice(best, gain, helped(now, after)))
        now = after
        room = None if room is None else room - max(0, best.num_bytes)
        left = [one for one in left if one is not best]
    return chosen
