"""BOOL_AND and BOOL_OR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from merlot.aggregates.extremes import ExtremeState
from merlot.aggregates.function import (
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Input,
    State,
    StateField,
)
from merlot.tree.nodes import Value
from merlot.tree.types import BOOLEAN, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector


class Boolean(AggregationFunction):
    """BOOL_AND or BOOL_OR: the least or greatest truth value. Without values, BOOL_AND is true and BOOL_OR false, as in
    Pinot; with null handling both are NULL."""

    def __init__(self, name: str, *, is_and: bool) -> None:
        self.name = name
        self.parameters = (AggregateParameter(name="x", takes=frozenset({TypeName.BOOLEAN})),)
        self._is_and = is_and

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return BOOLEAN

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (StateField("value", pa.int64()),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return ExtremeState(num_groups, is_min=self._is_and, is_integer=True, first_input=(*inputs, UNKNOWN)[0])

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        missing: Any = columns[0].is_null().to_numpy(zero_copy_only=False)
        truths = columns[0].fill_null(int(self._is_and)).to_numpy().astype(np.bool_)
        return Vector(call.result, truths, missing if call.nulls and missing.any() else None)
