"""How often a random test tries: a fixed number of times, or for as long as it is given."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from tests.budget import SECONDS, count


def rounds(variable: str, *, quick: int, every: int, share: float = 1.0) -> Iterator[int]:
    """Numbers from 0: as many as `count` says, or with MERLOT_FUZZ_SECONDS those for which that share of them is time,
    the first one always."""
    if not SECONDS:
        yield from range(count(variable, quick=quick, every=every))
        return
    stop = time.monotonic() + SECONDS * share
    for number in itertools.count():
        if number and time.monotonic() >= stop:
            return
        yield number
