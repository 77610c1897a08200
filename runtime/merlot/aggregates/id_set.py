"""ID_SET: distinct whole numbers as a text, which IN_ID_SET reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.aggregates.distinct import DistinctState, value_type
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
from merlot.tree.types import STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors import id_sets
from merlot.vectors.vector import Vector

_SETTINGS: Final = AggregateParameter(
    name="settings", takes=frozenset({TypeName.STRING}), is_constant=True, is_optional=True
)


class IdSetFunction(AggregationFunction):
    """ID_SET(x [, settings]): the distinct values in Pinot's text form, always exact, whatever the settings."""

    name = "idset"
    parameters = (
        AggregateParameter(name="x", takes=frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP})),
        _SETTINGS,
    )

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (StateField("values", pa.list_(value_type(call.types[0]))),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return DistinctState(SqlType(call.types[0].base), num_groups, (*inputs, UNKNOWN)[0].dictionary())

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        """Return the texts; without values, a set without ids, with and without null handling."""
        places = np.cumsum(np.diff(columns[0].offsets.to_numpy()))
        parts = np.split(columns[0].flatten().to_numpy(), places)[:-1]
        return Vector(STRING, pa.array([id_sets.write(call.types[0].base, part) for part in parts], pa.string()))
