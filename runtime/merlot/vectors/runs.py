"""Runs of rows, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


def ends_of(counts: NDArray[Any] | Sequence[int]) -> Longs:
    """Return (N + 1,): the start of each of N parts, one after another, and the end of the last one."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def rows_of_runs(starts: Longs, offsets: Longs) -> Longs:
    """Return (offsets[-1],): rows of all runs, of which run r has offsets[r + 1] - offsets[r] from starts[r] on."""
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], np.diff(offsets))
