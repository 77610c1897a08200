"""Which of the moments of a piece of work a fault meets: the same few at the quick level, else drawn by the seed."""

import random
from collections.abc import Sequence

from tests.budget import IS_QUICK, seed


def some_of(number: int, most: int, turn: int = 0, turns: int = 1) -> list[int]:
    """At most so many of `number` moments. At the quick level they are spread evenly, and those of `turns` cases that
    take their `turn` each are spread evenly among each other."""
    most = min(number, most)
    if not IS_QUICK:
        print(f"seed={seed()} (MERLOT_SEED), {most} of {number} moments")
        return sorted(random.Random(seed()).sample(range(number), most))
    return sorted({(place * turns + turn) * number // (most * turns) for place in range(most)})


def kinds_of(steps: Sequence[str]) -> list[int]:
    """Each step; at the quick level of those of one name the last."""
    return sorted({step: number for number, step in enumerate(steps)}.values()) if IS_QUICK else [*range(len(steps))]
