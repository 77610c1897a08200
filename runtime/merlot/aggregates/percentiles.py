"""PERCENTILE and PERCENTILEEST: the exact value at a position of the sorted rows.

The p-th percentile of n rows is the value at position n · p / 100, counted from 0 and rounded down; for p = 100 it is
the last value. This is Pinot's rule.
Pinot's PERCENTILEEST estimates; here it is the same value as a LONG. An answer takes memory for every distinct value of
a group; PERCENTILETDIGEST does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates import frequencies
from merlot.aggregates.frequencies import Frequencies, FrequencyState
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
from merlot.tree.nodes import Value
from merlot.tree.types import DOUBLE, LONG, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector

_LONG = np.iinfo(np.int64)
PERCENT: Final = AggregateParameter(
    name="percentile", takes=frozenset({TypeName.INT, TypeName.LONG, TypeName.DOUBLE}), is_constant=True
)


def percent_problem(constants: Sequence[Value]) -> str | None:
    """Return what is wrong with a percentile; None if nothing is."""
    wanted = constants[0]
    is_percent = isinstance(wanted, int | float) and 0 <= wanted <= 100
    return None if is_percent else f"percentile must be from 0 to 100 got={wanted!r}"


class Percentile(AggregationFunction):
    """PERCENTILE(x, p) and PERCENTILESMARTTDIGEST(x, p [, settings]) as a DOUBLE, or PERCENTILEEST(x, p) as a LONG.
    Settings say from how many values on Pinot estimates; they have no effect here."""

    def __init__(self, name: str, *, is_long: bool, has_settings: bool = False) -> None:
        self.name = name
        settings = AggregateParameter(
            name="settings", takes=frozenset({TypeName.STRING}), is_constant=True, is_optional=True
        )
        self.parameters = (AggregateParameter(name="x", takes=NUMBERS), PERCENT, *([settings] if has_settings else []))
        self._is_long = is_long

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        return percent_problem(constants)

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return LONG if self._is_long else DOUBLE

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return frequencies.fields(call.types[0])

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return FrequencyState(call.types[0], num_groups, (*inputs, UNKNOWN)[0].dictionary())

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        frequencies = Frequencies.of(columns)
        totals = frequencies.totals()
        percent = call.constants[0]
        assert isinstance(percent, int | float)
        places = np.minimum((totals * percent / 100).astype(np.int64), np.maximum(totals - 1, 0))
        values = frequencies.at(places)
        if self._is_long:
            whole = values if values.dtype == np.int64 else whole_of(values.astype(np.float64))
            answers = np.where(totals == 0, _LONG.min, whole)
        else:
            answers = np.where(totals == 0, -np.inf, values.astype(np.float64))
        return Vector(call.result, answers, nothing(call, totals))


def whole_of(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whole parts of doubles. NaN and numbers outside the range of a LONG become what Java converts them to."""
    inside = (numbers >= -(2.0**63)) & (numbers < 2.0**63)
    whole: NDArray[np.int64] = np.where(inside, numbers, 0).astype(np.int64)
    whole[numbers >= 2.0**63] = _LONG.max
    whole[numbers < -(2.0**63)] = _LONG.min
    return whole
