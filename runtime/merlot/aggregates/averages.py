"""AVG: a sum and a count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merlot.aggregates import counts
from merlot.aggregates.function import (
    NUMBERS,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Input,
    Several,
    State,
    StateField,
    nothing,
)
from merlot.aggregates.scalar_forms import ScalarAverage
from merlot.aggregates.sketches import NO_PAIR, PAIR, SketchError
from merlot.aggregates.stored import StoredStates, records, stored
from merlot.aggregates.sums import rounded, sum_fields, sum_state
from merlot.tree.nodes import Value
from merlot.tree.types import DOUBLE, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector


class Average(AggregationFunction):
    """AVG: the sum, rounded once, divided by the count. Without values it is -Infinity, as in Pinot, or NULL with null
    handling."""

    name = "avg"
    parameters = (AggregateParameter(name="x", takes=NUMBERS | {TypeName.BYTES}),)
    is_light = True
    scalar_form = ScalarAverage()
    has_bytes = True

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return DOUBLE

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (*sum_fields(call.types[0]), counts.FIELD)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        total = sum_state(call.types[0], num_groups, *inputs)
        state = Several([(total, len(sum_fields(call.types[0]))), (counts.CountState(num_groups), 1)])
        return StoredStates(self, state) if call.types[0].base is TypeName.BYTES else state

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        count = columns[-1].to_numpy()
        with np.errstate(all="ignore"):
            average = np.where(count == 0, -np.inf, rounded(call.types[0], columns[:-1]) / count)
        return Vector(call.result, average, nothing(call, count))

    def to_bytes(self, call: AggregateCall, columns: Sequence[pa.Array]) -> pa.Array:
        """Return states in the form of Pinot's AvgPair."""
        pairs = np.zeros(len(columns[0]), PAIR)
        pairs["sum"], pairs["count"] = rounded(call.types[0], columns[:-1]), columns[-1].to_numpy()
        return stored(pairs, pairs["count"] == 0)

    def from_bytes(self, stored: pa.Array) -> list[pa.Array]:
        pairs = records(stored, PAIR, NO_PAIR)
        if (pairs["count"] < 0).any():
            raise SketchError(NO_PAIR, int(np.flatnonzero(pairs["count"] < 0)[0]))
        sums, value_counts = pairs["sum"].astype(np.float64), pairs["count"].astype(np.int64)
        return [pa.array(sums), pa.array(np.zeros(len(sums))), pa.array(value_counts)]
