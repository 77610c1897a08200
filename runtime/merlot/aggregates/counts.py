"""COUNT: the number of rows, or of values with null handling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
    ANYTHING,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Groups,
    Input,
    State,
    StateField,
    chosen,
    grown,
)
from merlot.aggregates.scalar_forms import ScalarCount
from merlot.kernels import aggregate as kernels
from merlot.tree.nodes import Value
from merlot.tree.types import LONG, SqlType
from merlot.vectors.vector import Vector

FIELD = StateField("count", pa.int64())


class CountState(State):
    """Number of rows by group."""

    def __init__(self, num_groups: int) -> None:
        self._counts = np.zeros(num_groups, np.int64)

    def grow(self, num_groups: int) -> None:
        self._counts = grown(self._counts, num_groups)

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        if groups is None:
            self._counts[0] += num_rows
        else:
            kernels.count_groups(groups, self._counts)

    def takes_scaled(self) -> bool:
        return True

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        kernels.sum_int_groups(groups, columns[0].to_numpy(), self._counts)

    def columns(self, groups: Chosen) -> list[pa.Array]:
        return [pa.array(chosen(self._counts, groups))]

    def rows_by_group(self) -> NDArray[np.int64] | None:
        return self._counts


class Count(AggregationFunction):
    """COUNT(*) and COUNT(x)."""

    name = "count"
    parameters = (AggregateParameter(name="x", takes=ANYTHING),)
    is_light = True
    counts_rows = True
    scalar_form = ScalarCount()

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return LONG

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (FIELD,)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return CountState(num_groups)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return Vector(call.result, columns[0].to_numpy())
