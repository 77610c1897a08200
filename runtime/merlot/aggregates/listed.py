"""States that are lists: the values of each group, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import Chosen
from merlot.vectors.errors import LimitExceededError
from merlot.vectors.runs import ends_of, rows_of_runs

MAX_LISTED: Final = (1 << 31) - 1
"""Most values in one Arrow array of lists, whose offsets have 32 bits and would wrap."""


def offsets_of(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return (n + 1,): where each list begins, and where the last one ends; raise LimitExceededError past
    MAX_LISTED."""
    offsets = ends_of(lengths)
    if offsets[-1] > MAX_LISTED:
        raise LimitExceededError(f"answer lists too many values limit={MAX_LISTED} got={offsets[-1]}")
    return offsets


@dataclass(frozen=True, slots=True)
class GroupRuns:
    """Ranges of the values of chosen groups, among values in order of their groups."""

    starts: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, owners: NDArray[Any], groups: Chosen) -> Self:
        """Find the ranges. owners: group of each value, ascending; raise LimitExceededError."""
        starts = np.searchsorted(owners, groups, "left")
        return cls(starts, offsets_of(np.searchsorted(owners, groups, "right") - starts))

    def lists(self, columns: Sequence[pa.Array], order: NDArray[np.int64] | None = None) -> list[pa.Array]:
        """Return, for each column, lists of the values of each group. order: positions of the values if they are not in
        order of their owners."""
        rows = rows_of_runs(self.starts, self.offsets)
        bounds, rows = pa.array(self.offsets.astype(np.int32)), pa.array(rows if order is None else order[rows])
        return [pa.ListArray.from_arrays(bounds, column.take(rows)) for column in columns]
