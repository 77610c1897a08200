"""MODE, DISTINCTSUM and DISTINCTAVG, computed from each group's distinct values and their counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merlot.aggregates import frequencies
from merlot.aggregates.frequencies import Frequencies, FrequencyState, number_type
from merlot.aggregates.function import (
    NUMBERS,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Input,
    State,
    StateField,
    nothing,
)
from merlot.aggregates.sums import rounded, sum_state
from merlot.kernels import aggregate as kernels
from merlot.tree.nodes import Value
from merlot.tree.types import DOUBLE, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector

_REDUCERS = ("MIN", "MAX", "AVG")


class _OfFrequencies(AggregationFunction):
    """Aggregate whose state is the number of occurrences of each value."""

    parameters: tuple[AggregateParameter, ...] = (AggregateParameter(name="x", takes=NUMBERS),)

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return DOUBLE

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return frequencies.fields(call.types[0])

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return FrequencyState(call.types[0], num_groups, (*inputs, UNKNOWN)[0].dictionary())


class ModeFunction(_OfFrequencies):
    """MODE(x [, 'MIN'|'MAX'|'AVG']): the most frequent value; if there are several, the least, the greatest or their
    mean."""

    name = "mode"
    parameters = (
        AggregateParameter(name="x", takes=NUMBERS),
        AggregateParameter(name="reducer", takes=frozenset({TypeName.STRING}), is_constant=True, is_optional=True),
    )

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        is_known = not constants or str(constants[0]).upper() in _REDUCERS
        return None if is_known else f"reducer must be one of {', '.join(_REDUCERS)} got={constants[0]!r}"

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        frequencies = Frequencies.of(columns)
        num_groups = len(columns[0])
        owners, values = frequencies.of_values(), frequencies.values.astype(np.float64)
        most = np.zeros(num_groups, np.int64)
        kernels.max_groups(owners, frequencies.counts, most)
        wins = frequencies.counts == most[owners]
        owners, values = owners[wins], values[wins]
        # Values ascend within a group.
        firsts = np.searchsorted(owners, np.arange(num_groups), "left")
        lasts = np.searchsorted(owners, np.arange(num_groups), "right") - 1
        reducer = str(call.constants[0]).upper() if call.constants else "MIN"
        padded = np.append(values, 0.0)
        if reducer == "AVG":
            sums = np.bincount(owners, values, num_groups)
            answers = sums / np.maximum(lasts - firsts + 1, 1)
        else:
            answers = padded[firsts if reducer == "MIN" else lasts]
        return Vector(call.result, np.where(most == 0, -np.inf, answers), nothing(call, most))


class DistinctSum(_OfFrequencies):
    """DISTINCTSUM and DISTINCTAVG: each value once, as a LONG or a DOUBLE, in a sum that is rounded once. Without
    values they are 0 and -Infinity, or NULL with null handling."""

    def __init__(self, name: str, *, is_average: bool) -> None:
        self.name = name
        self._is_average = is_average

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        frequencies = Frequencies.of(columns)
        num_groups, type_ = len(columns[0]), number_type(call.types[0])
        state = sum_state(type_, num_groups)
        state.add([frequencies.values], frequencies.of_values(), len(frequencies.values))
        sums = rounded(type_, state.columns(np.arange(num_groups)))
        counts = np.diff(frequencies.starts)
        if self._is_average:
            with np.errstate(all="ignore"):
                sums = np.where(counts == 0, -np.inf, sums / counts)
        return Vector(call.result, sums, nothing(call, counts))
