"""Three-valued verdicts about segments, one int8 each, and their algebra.

A verdict is about all rows of a segment: NONE says that the predicate is TRUE for no row, ALL that it is FALSE for no
row. Rows for which it is NULL contradict neither verdict. So NOT exchanges the two, AND is the minimum and OR the
maximum, with null handling and without.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Verdicts = NDArray[np.int8]
"""Verdicts of all segments, one each."""

NONE: Final = 0
SOME: Final = 1
"""Nothing is known."""
ALL: Final = 2


def constant(num_segments: int, verdict: int) -> Verdicts:
    """Return the same verdict for every segment."""
    return np.full(num_segments, verdict, np.int8)


def verdicts_of(is_none: NDArray[np.bool_], is_all: NDArray[np.bool_]) -> Verdicts:
    """Return verdicts from two masks that exclude each other."""
    verdicts: Verdicts = is_all.view(np.int8) - is_none.view(np.int8)
    verdicts += 1
    return verdicts


def complement(verdicts: Verdicts) -> Verdicts:
    """Return the verdicts of NOT."""
    flipped: Verdicts = np.subtract(ALL, verdicts, dtype=np.int8)
    return flipped


def weaken(verdicts: Verdicts) -> Verdicts:
    """Return the verdicts with SOME for ALL: what holds for all values of a column may fail for a row without
    values."""
    weakened: Verdicts = np.minimum(verdicts, np.int8(SOME))
    return weakened
