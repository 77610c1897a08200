"""The …MV aggregates: another aggregate applied to every value of a multi-value column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from merlot.aggregates.function import AggregateCall, AggregationFunction, Input, State, StateField
from merlot.tree.nodes import Value
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector


class MultiValueAggregate(AggregationFunction):
    """Aggregate over the values of lists, such as SUMMV. Its states are those of the aggregate over rows, such as
    SUM."""

    flattens = True

    def __init__(self, of_values: AggregationFunction) -> None:
        self._of_values = of_values
        self.name = f"{of_values.name}mv"
        first, *others = of_values.parameters
        # BYTES in a list would be values, while BYTES in a single-value column are stored states.
        takes = first.takes - {TypeName.BYTES} if of_values.has_bytes else first.takes
        self.parameters = (replace(first, takes=takes), *(parameter for parameter in others if parameter.is_constant))

    def variant(self, types: Sequence[SqlType]) -> str:
        return f"{self._of_values.variant(types)}mv"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return self._of_values.result(types, constants)

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        return self._of_values.problem(types, constants)

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return self._of_values.fields(call)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return self._of_values.start(call, num_groups, inputs)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return self._of_values.finish(call, columns)
