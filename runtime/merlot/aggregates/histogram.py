"""HISTOGRAM(x, lower, upper, bins): the number of values in each of several bins of equal width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merlot.aggregates.function import (
    NUMBERS,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Groups,
    Input,
    State,
    StateField,
    all_in_one,
    grown,
)
from merlot.aggregates.listed import offsets_of
from merlot.aggregates.moments import doubles
from merlot.tree.nodes import Value
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import Vector

MOST_BINS: Final = 10_000
_EDGE: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.DOUBLE})


class HistogramState(State):
    """Counts by group and bin."""

    def __init__(self, num_groups: int, lower: float, upper: float, num_bins: int) -> None:
        self._edges = np.linspace(lower, upper, num_bins + 1)
        self._num_bins = num_bins
        account.current().expect("HISTOGRAM", 2 * 8 * num_groups * num_bins)
        self._counts = np.zeros(num_groups * num_bins, np.int64)

    def grow(self, num_groups: int) -> None:
        self._counts = grown(self._counts, num_groups * self._num_bins)

    def takes_scaled(self) -> bool:
        return True

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        numbers = doubles(values[0])
        inside = (numbers >= self._edges[0]) & (numbers <= self._edges[-1])
        # Only the last bin includes its upper edge.
        bins = np.searchsorted(self._edges[1:-1], numbers[inside], "right")
        places = all_in_one(groups, num_rows)[inside].astype(np.int64) * self._num_bins + bins
        self._counts += np.bincount(places, minlength=len(self._counts))

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        counts = columns[0].flatten().to_numpy().reshape(len(groups), self._num_bins)
        np.add.at(self._counts[: len(self._counts)].reshape(-1, self._num_bins), groups, counts)

    def columns(self, groups: Chosen) -> list[pa.Array]:
        chosen = self._counts.reshape(-1, self._num_bins)[groups].reshape(-1)
        offsets = offsets_of(np.full(len(groups), self._num_bins)).astype(np.int32)
        return [pa.ListArray.from_arrays(pa.array(offsets), pa.array(chosen))]


class Histogram(AggregationFunction):
    """Counts of [lower, …), …, […, upper]; values outside do not count."""

    name = "histogram"
    parameters = (
        AggregateParameter(name="x", takes=NUMBERS),
        AggregateParameter(name="lower", takes=_EDGE, is_constant=True),
        AggregateParameter(name="upper", takes=_EDGE, is_constant=True),
        AggregateParameter(name="bins", takes=frozenset({TypeName.INT}), is_constant=True),
    )

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        lower, upper, bins = constants
        if not isinstance(bins, int) or not 1 <= bins <= MOST_BINS:
            return f"bins must be from 1 to {MOST_BINS} got={bins!r}"
        edges = [float(edge) for edge in (lower, upper) if isinstance(edge, int | float)]
        if len(edges) < 2 or not np.isfinite(edges).all() or edges[0] >= edges[1]:
            return f"lower must be less than upper got={lower!r}, {upper!r}"
        return None

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return SqlType(TypeName.DOUBLE, is_array=True)

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (StateField("counts", pa.list_(pa.int64())),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        lower, upper, bins = call.constants
        return HistogramState(num_groups, float(lower), float(upper), int(bins))  # type: ignore[arg-type]

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return Vector(call.result, columns[0].cast(pa.list_(pa.float64())))
