"""MINMAXRANGE: the greatest value minus the least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.aggregates.extremes import ExtremeState, extreme_type
from merlot.aggregates.function import (
    INTEGERS,
    NUMBERS,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Input,
    Several,
    State,
    StateField,
)
from merlot.aggregates.stored import StoredStates, records, stored
from merlot.tree.nodes import Value
from merlot.tree.types import DOUBLE, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector

_PAIR: Final = np.dtype([("min", ">f8"), ("max", ">f8")])


class MinMaxRange(AggregationFunction):
    """MINMAXRANGE: the range of whole numbers is exact and rounded once; -Infinity without values, as in Pinot."""

    name = "minmaxrange"
    parameters = (AggregateParameter(name="x", takes=NUMBERS | {TypeName.BYTES}),)
    is_light = True
    has_bytes = True

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return DOUBLE

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        type_ = extreme_type(call.types[0])
        return StateField("min", type_), StateField("max", type_)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        is_integer = call.types[0].base in INTEGERS
        first_input = (*inputs, UNKNOWN)[0]
        ends = [
            ExtremeState(num_groups, is_min=is_min, is_integer=is_integer, first_input=first_input)
            for is_min in (True, False)
        ]
        state = Several([(end, 1) for end in ends])
        return StoredStates(self, state) if call.types[0].base is TypeName.BYTES else state

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        missing = columns[0].is_null().to_numpy(zero_copy_only=False)
        least, greatest = (column.fill_null(0).to_numpy() for column in columns)
        with np.errstate(invalid="ignore"):
            # Two LONGs may differ by up to 2**64 - 1, which their difference modulo 2**64 can hold.
            span = greatest - least if greatest.dtype.kind == "f" else (greatest - least).view(np.uint64)
        answers = np.where(missing, -np.inf, span.astype(np.float64))
        return Vector(call.result, answers, missing if call.nulls and missing.any() else None)

    def to_bytes(self, call: AggregateCall, columns: Sequence[pa.Array]) -> pa.Array:
        """Return states in the form of Pinot's MinMaxRangePair."""
        missing = columns[0].is_null().to_numpy(zero_copy_only=False)
        pairs = np.zeros(len(missing), _PAIR)
        pairs["min"], pairs["max"] = (column.fill_null(0).to_numpy() for column in columns)
        return stored(pairs, missing)

    def from_bytes(self, stored: pa.Array) -> list[pa.Array]:
        pairs = records(stored, _PAIR, "bytes are no pair of least and greatest")
        return [pa.array(pairs[name].astype(np.float64)) for name in ("min", "max")]
