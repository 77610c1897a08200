"""Distinct (group, dict id) pairs, for when groups times ids are too many for a byte each.

Pairs are collected, and made distinct when many have come: they are put in order of groups, then scanned with an array
that holds, for each id, the last group that had it. No pair is hashed: 1,000,000 rows of 5,000 groups and 166,000 ids
take 6 ms, and 13 ms with a hash table of pairs.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import group as kernels
from merlot.kernels.aggregate import count_groups

LEAST_PENDING: Final = 1 << 20
"""Least number of pairs that are collected before they are made distinct; a pair has 8 bytes."""

Ids = NDArray[np.uint32]


class DistinctPairs:
    """Distinct pairs of a group and a dict id below `cardinality`."""

    def __init__(self, cardinality: int) -> None:
        self._cardinality = cardinality
        self._owners: list[Ids] = []
        self._ids: list[Ids] = []
        self._num_pairs = 0
        self._most = LEAST_PENDING

    def add(self, owners: NDArray[Any], ids: NDArray[Any]) -> None:
        """Add pairs; both arrays are copied."""
        self._owners.append(owners.astype(np.uint32))
        self._ids.append(ids.astype(np.uint32))
        self._num_pairs += len(ids)
        if self._num_pairs > self._most:
            # At least half of the room is free afterwards, so each pair is scanned only a few times.
            num_groups = 1 + max([int(part.max(initial=0)) for part in self._owners])
            distinct, bounds = self.by_group(num_groups)
            self._owners = [np.repeat(np.arange(num_groups, dtype=np.uint32), np.diff(bounds))]
            self._ids, self._num_pairs = [distinct], len(distinct)
            self._most = max(LEAST_PENDING, 2 * len(distinct))

    def by_group(self, num_groups: int) -> tuple[Ids, NDArray[np.int64]]:
        """Return the distinct ids, group after group, and where the ids of each group begin and the last ones end,
        (num_groups + 1,)."""
        owners, ids = _joined(self._owners), _joined(self._ids)
        ends = np.zeros(num_groups + 1, np.int64)
        count_groups(owners, ends[1:])
        np.cumsum(ends, out=ends)
        ordered = np.empty(len(ids), np.uint32)
        kernels.order_by_group(owners, ids, ends[:-1], ordered)
        # The kernel has moved each group's start to its end.
        last = np.full(self._cardinality, kernels.EMPTY, np.uint32)
        bounds = np.zeros(num_groups + 1, np.int64)
        kernels.distinct_in_groups(ordered, ends[:-1], last, bounds[1:])
        return ordered[: bounds[-1]], bounds


def _joined(parts: list[Ids]) -> Ids:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.uint32), *parts])
