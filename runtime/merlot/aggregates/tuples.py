"""Aggregates over stored integer-sum tuple sketches: DISTINCTCOUNTTUPLESKETCH, the sums and means of their values, and
DISTINCTCOUNTRAWINTEGERSUMTUPLESKETCH, their union.

A sketch of `nominalEntries` k has the k least hashes of all keys, theta, below which it has every hash, and the sum of
each key's values. Sums are exact in states; only an image has them in 32 bits.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Groups,
    Input,
    State,
    StateField,
    grown,
    nothing,
)
from merlot.aggregates.listed import GroupRuns, offsets_of
from merlot.aggregates.percentiles import whole_of
from merlot.aggregates.settings_text import nominal_entries, nominal_entries_problem
from merlot.aggregates.stored import StoredStates
from merlot.aggregates.theta_images import MAX_THETA
from merlot.aggregates.tuple_images import image, read_images
from merlot.tree.nodes import Value
from merlot.tree.types import LONG, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.errors import QueryArithmeticError
from merlot.vectors.vector import Vector

DEFAULT_ENTRIES: Final = 65_536
MIN_PENDING: Final = 1 << 18
"""Least number of entries that are collected before the values of equal keys are summed."""
_INT: Final = np.iinfo(np.int32)


class TupleState(State):
    """Least hashes by group with their sums, and entries that came later."""

    def __init__(self, num_groups: int, entries: int) -> None:
        self._entries = entries
        self._thetas = np.full(num_groups, MAX_THETA, np.uint64)
        self._seen = np.zeros(num_groups, np.bool_)
        """True for groups that have a sketch."""
        self._parts: list[tuple[Groups, NDArray[np.uint64], NDArray[np.int64]]] = []
        self._num_pending = 0
        self._bound = MIN_PENDING

    def grow(self, num_groups: int) -> None:
        self._thetas = grown(self._thetas, num_groups, MAX_THETA)
        self._seen = grown(self._seen, num_groups, False)

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        raise NotImplementedError("tuple sketches are of stored ones alone")

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        thetas, hashes, values = columns
        present = thetas.is_valid().to_numpy(zero_copy_only=False)
        self._seen[groups[present]] = True
        np.minimum.at(self._thetas, groups, thetas.fill_null(int(MAX_THETA)).to_numpy(zero_copy_only=False))
        owners = np.repeat(groups, np.diff(hashes.offsets.to_numpy()))
        self._parts.append((owners, hashes.flatten().to_numpy(), values.flatten().to_numpy()))
        self._num_pending += len(owners)
        if self._num_pending > self._bound:
            self._num_pending = len(self._least()[0])
            self._bound = max(MIN_PENDING, 2 * self._num_pending)

    def columns(self, groups: Chosen) -> list[pa.Array]:
        owners, hashes, values = self._least()
        lists = GroupRuns.of(owners, groups).lists([pa.array(hashes), pa.array(values)])
        return [pa.array(self._thetas[groups], mask=~self._seen[groups]), *lists]

    def _least(self) -> tuple[Groups, NDArray[np.uint64], NDArray[np.int64]]:
        """Return the least hashes of each group, ascending, each once, with their groups and sums. If a group has more
        hashes than entries, its theta is lowered to the next hash."""
        if not self._parts:
            return np.zeros(0, np.uint32), np.zeros(0, np.uint64), np.zeros(0, np.int64)
        owners, hashes, values = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        is_small = hashes < self._thetas[owners]
        owners, hashes, values = owners[is_small], hashes[is_small], values[is_small]
        order = np.lexsort((hashes, owners))
        owners, hashes, values = owners[order], hashes[order], values[order]
        is_new = np.ones(len(owners), np.bool_)
        is_new[1:] = (owners[1:] != owners[:-1]) | (hashes[1:] != hashes[:-1])
        firsts = np.flatnonzero(is_new)
        values = np.add.reduceat(values, firsts) if len(firsts) else values
        owners, hashes = owners[firsts], hashes[firsts]
        ranks = np.arange(len(owners)) - np.searchsorted(owners, owners)
        is_bound = ranks == self._entries
        self._thetas[owners[is_bound]] = hashes[is_bound]
        is_kept = ranks < self._entries
        self._parts = [(owners[is_kept], hashes[is_kept], values[is_kept])]
        return self._parts[0]


class _TupleAggregate(AggregationFunction):
    """Aggregate over stored sketches, whose state is their union."""

    parameters = (
        AggregateParameter(name="x", takes=frozenset({TypeName.BYTES})),
        AggregateParameter(
            name="settings", takes=frozenset({TypeName.INT, TypeName.STRING}), is_constant=True, is_optional=True
        ),
    )
    has_bytes = True

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        return nominal_entries_problem(constants)

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return LONG

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        hashes, values = StateField("hashes", pa.list_(pa.uint64())), StateField("values", pa.list_(pa.int64()))
        return StateField("theta", pa.uint64()), hashes, values

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return StoredStates(self, TupleState(num_groups, nominal_entries(call.constants, DEFAULT_ENTRIES)))

    def from_bytes(self, stored: pa.Array) -> list[pa.Array]:
        given = read_images(stored)
        bounds = pa.array(given.bounds.astype(np.int32))
        lists = [pa.ListArray.from_arrays(bounds, pa.array(part)) for part in (given.hashes, given.values)]
        return [pa.array(given.thetas), *lists]

    def to_bytes(self, call: AggregateCall, columns: Sequence[pa.Array]) -> pa.Array:
        thetas, bounds = columns[0].to_pylist(), offsets_of(_counts(columns))
        hashes, values = columns[1].flatten().to_numpy(), columns[2].flatten().to_numpy()
        if len(values) and not _INT.min <= values.min() <= values.max() <= _INT.max:
            raise QueryArithmeticError(f"sum of a tuple sketch does not fit 32 bits function={self.name}")
        # Entries of an image have 13 bytes, so images are written one by one.
        cells = [
            b"" if theta is None else image(theta, hashes[start:stop], values[start:stop])
            for theta, start, stop in zip(thetas, bounds[:-1], bounds[1:], strict=True)
        ]
        return pa.array(cells, pa.binary())

    def _shares(self, columns: Sequence[pa.Array]) -> NDArray[np.float64]:
        """Return theta of each state as a fraction: the estimated share of all keys that the state holds."""
        thetas = columns[0].fill_null(int(MAX_THETA)).to_numpy(zero_copy_only=False)
        shares: NDArray[np.float64] = thetas.astype(np.float64) / float(MAX_THETA)
        return shares

    def _sums(self, columns: Sequence[pa.Array]) -> NDArray[np.float64]:
        """Return the sum of each state's values."""
        totals = np.concatenate([[0], np.cumsum(columns[2].flatten().to_numpy())])
        sums: NDArray[np.float64] = np.diff(totals[offsets_of(_counts(columns))]).astype(np.float64)
        return sums


class DistinctCountTuple(_TupleAggregate):
    """DISTINCTCOUNTTUPLESKETCH: the estimated number of keys in all stored tuple sketches."""

    name = "distinctcounttuplesketch"

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return Vector(call.result, _rounded(_counts(columns) / self._shares(columns)))


class DistinctCountRawTuple(_TupleAggregate):
    """DISTINCTCOUNTRAWINTEGERSUMTUPLESKETCH: the union of stored tuple sketches, in base 64 as Pinot answers it. Each
    key's values are summed."""

    name = "distinctcountrawintegersumtuplesketch"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        empty = image(int(MAX_THETA), np.zeros(0, np.uint64), np.zeros(0, np.int64))
        cells = [base64.b64encode(cell or empty).decode() for cell in self.to_bytes(call, columns).to_pylist()]
        is_met = columns[0].is_valid().to_numpy(zero_copy_only=False)
        return Vector(call.result, pa.array(cells, pa.string()), nothing(call, is_met))


class SumValuesTuple(_TupleAggregate):
    """Estimated sum of the values of all keys of stored tuple sketches."""

    name = "sumvaluesintegersumtuplesketch"

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        is_met = columns[0].is_valid().to_numpy(zero_copy_only=False)
        return Vector(call.result, _rounded(self._sums(columns) / self._shares(columns)), nothing(call, is_met))


class AvgValueTuple(_TupleAggregate):
    """Estimated mean of the values per key of stored tuple sketches; NULL without keys, with and without null
    handling."""

    name = "avgvalueintegersumtuplesketch"

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        counts = _counts(columns)
        means = self._sums(columns) / np.maximum(counts, 1)
        return Vector(call.result, _rounded(means), counts == 0)


def _counts(columns: Sequence[pa.Array]) -> NDArray[np.int64]:
    """Return the number of keys in each state."""
    counts: NDArray[np.int64] = np.diff(columns[1].offsets.to_numpy()).astype(np.int64)
    return counts


def _rounded(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round half up, to the range of a LONG, as Java's Math.round does. From 2**52 on the result may be higher by 1."""
    return whole_of(np.floor(values + 0.5))
