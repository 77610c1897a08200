"""Rounds of a random test: a fixed number, or as many as fit into the time of a fuzz run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from tests.budget import SECONDS, count


def rounds(variable: str, *, quick: int, every: int, share: float = 1.0) -> Iterator[int]:
    """Number the rounds from 0: as many as `count` says; in a fuzz run as many as fit into a share of its
    seconds, at least one."""
    if not SECONDS:
        yield from range(count(variable, quick=quick, every=every))
        return
    stop = time.monotonic() + SECONDS * share
    for number in itertools.count():
        if number and time.monotonic() >= stop:
            return
        yield number
