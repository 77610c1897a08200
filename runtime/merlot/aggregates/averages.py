"""AVG: a sum and a count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merlot.aggregates import counts
from merlot.aggregates.function import (
    AggregateCall,
    AggregationFunction,
    Input,
    Parameter,
    Several,
    State,
    StateField,
    nothing,
)
from merlot.aggregates.sums import rounded, sum_fields, sum_state
from merlot.tree.nodes import Value
from merlot.tree.types import DOUBLE, SqlType
from merlot.vectors.vector import Vector


class Average(AggregationFunction):
    """AVG: the sum, rounded once, by the count; -Infinity of nothing, as in Pinot."""

    name = "avg"
    parameters = (Parameter(name="x"),)
    is_light = True

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return DOUBLE

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (*sum_fields(call.types[0]), counts.FIELD)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        total = sum_state(call.types[0], num_groups, *inputs)
        return Several([(total, len(sum_fields(call.types[0]))), (counts.CountState(num_groups), 1)])

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        count = columns[-1].to_numpy()
        with np.errstate(all="ignore"):
            average = np.where(count == 0, -np.inf, rounded(call.types[0], columns[:-1]) / count)
        return Vector(call.result, average, nothing(call, count))
