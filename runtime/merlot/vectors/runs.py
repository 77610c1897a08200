"""Runs of rows, one after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


def rows_of_runs(starts: Longs, offsets: Longs) -> Longs:
    """(offsets[-1],): rows of all runs, of which run r has offsets[r + 1] - offsets[r] from starts[r] on."""
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], np.diff(offsets))
