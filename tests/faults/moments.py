"""Choose the moments at which faults strike a piece of work: a fixed few at the quick level, else drawn by the seed."""

import random
from collections.abc import Sequence

from tests.budget import IS_QUICK, seed


def some_of(number: int, most: int, turn: int = 0, turns: int = 1) -> list[int]:
    """Choose at most `most` of `number` moments. At the quick level they are spread evenly, and `turns` cases that each
    pass their own `turn` get different ones."""
    most = min(number, most)
    if not IS_QUICK:
        print(f"seed={seed()} (MERLOT_SEED), {most} of {number} moments")
        return sorted(random.Random(seed()).sample(range(number), most))
    return sorted({(place * turns + turn) * number // (most * turns) for place in range(most)})


def kinds_of(steps: Sequence[str]) -> list[int]:
    """Choose every step; at the quick level only the last one of each name."""
    return sorted({step: number for number, step in enumerate(steps)}.values()) if IS_QUICK else [*range(len(steps))]
