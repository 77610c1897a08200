"""States in BYTES columns, as Pinot stores them: how they are read as values, and records of a fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.aggregates.function import (
    AggregateCall,
    AggregationFunction,
    Chosen,
    Groups,
    State,
    StateField,
    all_in_one,
)
from merlot.aggregates.sketches import SketchError, bytes_of


class StoredStates(State):
    """State whose values are stored states, in bytes; empty ones do not count."""

    def __init__(self, function: AggregationFunction, inner: State) -> None:
        self._function = function
        self._inner = inner

    def grow(self, num_groups: int) -> None:
        self._inner.grow(num_groups)

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        has_state = pc.greater(pc.binary_length(values[0]), 0)
        of_rows = all_in_one(groups, num_rows)[has_state.to_numpy(zero_copy_only=False)]
        self._inner.merge(self._function.from_bytes(values[0].filter(has_state)), of_rows)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        self._inner.merge(columns, groups)

    def columns(self, groups: Chosen) -> list[pa.Array]:
        return self._inner.columns(groups)


class SketchFunction(AggregationFunction):
    """Aggregate whose state is one sketch, empty bytes without values. BYTES hold the sketch in the same form by
    default."""

    has_bytes = True

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (StateField("sketch", pa.binary()),)

    def to_bytes(self, call: AggregateCall, columns: Sequence[pa.Array]) -> pa.Array:
        return columns[0]

    def from_bytes(self, stored: pa.Array) -> list[pa.Array]:
        return [stored]


def records(stored: pa.Array, layout: np.dtype[Any], problem: str) -> NDArray[Any]:
    """Return records of one layout; raise SketchError if bytes are of another length."""
    starts, content = bytes_of(stored)
    unfit = np.flatnonzero(np.diff(starts) != layout.itemsize)
    if len(unfit):
        raise SketchError(problem, int(unfit[0]))
    return content[starts[0] : starts[-1]].view(layout)


def stored(cells: NDArray[Any], is_empty: NDArray[np.bool_]) -> pa.Array:
    """Return records as bytes, empty where there are no values."""
    return pa.array(
        [b"" if empty else record.tobytes() for record, empty in zip(cells, is_empty, strict=True)], pa.binary()
    )
