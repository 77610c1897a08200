"""ANY_VALUE: a value of each group. It is the least one, so that an answer does not depend on how rows are stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merlot.aggregates.extremes import ExtremeState, extreme_type
from merlot.aggregates.function import (
    INTEGERS,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Input,
    State,
    StateField,
)
from merlot.aggregates.text_extremes import TEXTS, TextExtremeState
from merlot.tree.nodes import Value
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import DTYPES, Vector, from_arrow


class AnyValue(AggregationFunction):
    """ANY_VALUE(x): always the least value; NULL if there is none, with and without null handling, as in Pinot."""

    name = "anyvalue"
    parameters = (AggregateParameter(name="x", takes=INTEGERS | TEXTS | {TypeName.FLOAT, TypeName.DOUBLE}),)

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return types[0]

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        is_text = call.types[0].base in TEXTS
        return (StateField("value", pa.string() if is_text else extreme_type(call.types[0])),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        base, first_input = call.types[0].base, (*inputs, UNKNOWN)[0]
        if base in TEXTS:
            return TextExtremeState(num_groups, is_min=True, dictionary=first_input.ranked())
        return ExtremeState(num_groups, is_min=True, is_integer=base in INTEGERS, first_input=first_input)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        base = call.types[0].base
        if base in TEXTS:
            return from_arrow(call.result, columns[0])
        missing = columns[0].is_null().to_numpy(zero_copy_only=False)
        numbers = columns[0].fill_null(0).to_numpy(zero_copy_only=False).astype(DTYPES[base])
        # Segments decide whether 0.0 or -0.0 came first; the sum with 0.0 is 0.0 for both.
        plain = numbers if numbers.dtype.kind != "f" else numbers + np.zeros(1, numbers.dtype)
        return Vector(call.result, plain, missing if missing.any() else None)
