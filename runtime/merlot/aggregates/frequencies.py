"""Number of occurrences of each value, by group: the state of exact percentiles, modes and sums of distinct values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.distinct import lists_of_distinct
from merlot.aggregates.function import INTEGERS, Chosen, Dictionary, Groups, State, StateField, all_in_one, grown
from merlot.errors import CorruptionError
from merlot.kernels.aggregate import count_groups
from merlot.tree.types import DOUBLE, LONG, SqlType
from merlot.vectors.encoding import MAX_DENSE_SPACE
from merlot.vectors.scaled import Scaled, doubles_of

MIN_PENDING: Final = 1 << 20
"""Least number of pairs of group and value that are collected before equal pairs of several chunks are counted
together."""
Numbers = NDArray[Any]


def number_type(type_: SqlType) -> SqlType:
    """Return the type that values have in a state."""
    return LONG if type_.base in INTEGERS else DOUBLE


def fields(type_: SqlType) -> tuple[StateField, ...]:
    """Return two list columns: ascending values, and the count of each."""
    values = pa.int64() if number_type(type_) == LONG else pa.float64()
    return StateField("values", pa.list_(values)), StateField("counts", pa.list_(pa.int64()))


@dataclass(frozen=True, slots=True)
class _Counted:
    """Distinct pairs of group and value, ascending by both, with the count of each."""

    owners: NDArray[np.int64]
    values: Numbers
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, owners: NDArray[np.int64], values: Numbers, counts: NDArray[np.int64] | None) -> _Counted:
        """Count pairs in any order. NaN equals itself and is the largest number; both zeros are equal."""
        if values.dtype.kind == "f":
            values = values + 0.0
            values[np.isnan(values)] = np.nan
        order = np.lexsort((values, owners))
        owners, values = owners[order], values[order]
        bits = values.view(np.int64)
        is_first = np.ones(len(owners), np.bool_)
        is_first[1:] = (owners[1:] != owners[:-1]) | (bits[1:] != bits[:-1])
        firsts = np.flatnonzero(is_first)
        each = np.ones(len(owners), np.int64) if counts is None else counts[order]
        return cls(owners[firsts], values[firsts], np.add.reduceat(each, firsts) if len(firsts) else each)


class FrequencyState(State):
    """Counts by dict id if values come as ids and there is room for all pairs, else counts of values."""

    def __init__(
        self, type_: SqlType, num_groups: int, dictionary: Dictionary | None = None, *, min_pending: int = MIN_PENDING
    ) -> None:
        self._type = number_type(type_)
        self._dtype: Any = np.int64 if self._type == LONG else np.float64
        self._num_groups = num_groups
        self._known = None if dictionary is None else dictionary.numeric
        self._by_id = np.zeros(0, np.int64)
        self._parts: list[_Counted] = []
        self._num_pending = 0
        self._min_pending = self._bound = min_pending

    def grow(self, num_groups: int) -> None:
        self._num_groups = num_groups

    def wants_ids(self, *, is_grouped: bool) -> bool:
        return self._known is not None

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        assert self._known is not None
        space = self._num_groups * len(self._known)
        if space > MAX_DENSE_SPACE:
            self.add([self._known[ids]], groups, len(ids))
            return
        self._by_id = grown(self._by_id, space)
        count_groups(all_in_one(groups, len(ids)) * np.uint32(len(self._known)) + ids.astype(np.uint32), self._by_id)

    def takes_scaled(self) -> bool:
        return True

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        numbers = values[0]
        if isinstance(numbers, Scaled) or numbers.dtype == object:
            numbers = doubles_of(numbers)
        owners = all_in_one(groups, num_rows).astype(np.int64)
        self._take(_Counted.of(owners, numbers.astype(self._dtype), None))

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        owners = np.repeat(groups.astype(np.int64), np.diff(columns[0].offsets.to_numpy()))
        values, counts = (column.flatten().to_numpy(zero_copy_only=False) for column in columns)
        if not len(owners) == len(values) == len(counts):
            raise CorruptionError(f"a state counts {len(counts)} values and has {len(values)}")
        self._take(_Counted.of(owners, values, counts))

    def columns(self, groups: Chosen) -> list[pa.Array]:
        counted = self._all()
        return [
            lists_of_distinct(pa.array(counted.values), counted.owners, groups, self._type),
            lists_of_distinct(pa.array(counted.counts), counted.owners, groups, LONG),
        ]

    def _take(self, part: _Counted) -> None:
        self._parts.append(part)
        self._num_pending += len(part.owners)
        if self._num_pending > self._bound and len(self._parts) > 1:
            self._parts = [_joined(self._parts)]
            self._num_pending = len(self._parts[0].owners)
            self._bound = max(self._min_pending, 2 * self._num_pending)

    def _all(self) -> _Counted:
        parts = list(self._parts)
        met = np.flatnonzero(self._by_id)
        if len(met):
            assert self._known is not None
            owners, ids = np.divmod(met, len(self._known))
            parts.append(_Counted(owners, self._known[ids].astype(self._dtype), self._by_id[met]))
        return _joined(parts)


def _joined(parts: Sequence[_Counted]) -> _Counted:
    if not parts:
        return _Counted(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    return _Counted.of(
        np.concatenate([part.owners for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


@dataclass(frozen=True, slots=True)
class Frequencies:
    """Values and counts of several states, one group after the other."""

    values: Numbers
    counts: NDArray[np.int64]
    starts: NDArray[np.int64]
    """Where each group begins, and where the last one ends."""

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> Frequencies:
        """Read state columns."""
        values, counts = (column.flatten().to_numpy(zero_copy_only=False) for column in columns)
        lengths = np.diff(columns[0].offsets.to_numpy())
        return cls(values, counts, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def of_values(self) -> Groups:
        """Return the group of each value."""
        lengths = np.diff(self.starts)
        return np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)

    def totals(self) -> NDArray[np.int64]:
        """Return the number of rows of each group."""
        before = np.concatenate([[0], np.cumsum(self.counts)])
        totals: NDArray[np.int64] = before[self.starts[1:]] - before[self.starts[:-1]]
        return totals

    def at(self, places: NDArray[np.int64]) -> Numbers:
        """Return the value at a position of each group's sorted rows; 0 for an empty group."""
        if not len(self.values):
            return np.zeros(len(places), self.values.dtype)
        reached = np.cumsum(self.counts)
        before = np.concatenate([[0], reached])[self.starts[:-1]]
        indexes = np.minimum(np.searchsorted(reached, before + places, side="right"), len(self.values) - 1)
        return np.where(np.diff(self.starts) > 0, self.values[indexes], 0)
