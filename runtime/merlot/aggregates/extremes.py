"""MIN, MAX, MINLONG and MAXLONG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
    INTEGERS,
    NUMBERS,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Groups,
    Input,
    State,
    StateField,
    all_in_one,
    grown,
)
from merlot.aggregates.scalar_forms import ScalarExtreme
from merlot.aggregates.text_extremes import TEXTS
from merlot.kernels import aggregate as kernels
from merlot.kernels.group import mark
from merlot.tree.nodes import Value
from merlot.tree.types import DOUBLE, LONG, SqlType
from merlot.values.types import TypeName
from merlot.vectors.scaled import Scaled, doubles_of
from merlot.vectors.vector import Vector


def extreme_type(type_: SqlType) -> pa.DataType:
    """Return the Arrow type of a state's least or greatest value."""
    return pa.int64() if type_.base in INTEGERS else pa.float64()


class ExtremeState(State):
    """Least or greatest number; null if a group has no value. NaN is the largest number."""

    def __init__(self, num_groups: int, *, is_min: bool, is_integer: bool, first_input: Input = UNKNOWN) -> None:
        self._is_min = is_min
        self._dtype: Any = np.int64 if is_integer else np.float64
        bounds = (np.iinfo(np.int64).max, np.iinfo(np.int64).min) if is_integer else (np.nan, -np.inf)
        self._worst = bounds[0] if is_min else bounds[1]
        self._best = np.full(num_groups, self._worst, self._dtype)
        self._seen = np.zeros(num_groups, np.uint8)
        dictionary = first_input.ranked()
        self._ascending = None if dictionary is None else dictionary.numeric

    def grow(self, num_groups: int) -> None:
        self._best = grown(self._best, num_groups, self._worst)
        self._seen = grown(self._seen, num_groups)

    def wants_ids(self, *, is_grouped: bool) -> bool:
        """Return True for a single group with ranked ids. Their extreme and one look-up take a tenth of the time of
        looking up every value."""
        return not is_grouped and self._ascending is not None

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        if len(ids):
            assert self._ascending is not None
            place = int(ids.min() if self._is_min else ids.max())
            self.add([self._ascending[place : place + 1]], groups, 1)

    def takes_scaled(self) -> bool:
        return True

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        numbers = values[0]
        if isinstance(numbers, Scaled) or numbers.dtype == object:
            numbers = doubles_of(numbers)
        groups = all_in_one(groups, len(numbers))
        kernel = kernels.min_groups if self._is_min else kernels.max_groups
        kernel(groups, numbers.astype(self._dtype, copy=False), self._best)
        mark(groups, self._seen)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        states = columns[0]
        if states.null_count:
            groups = groups[states.is_valid().to_numpy(zero_copy_only=False)]
            states = states.drop_null()
        self.add([states.to_numpy()], groups, len(states))

    def columns(self, groups: Chosen) -> list[pa.Array]:
        return [pa.array(self._best[groups], mask=self._seen[groups] == 0)]

    def best(self) -> NDArray[Any]:
        """Return the number of each group; it has no meaning if the group has no value."""
        return self._best


def finished(call: AggregateCall, state: pa.Array, *, is_min: bool) -> Vector:
    """Return the answers. Without values they are Pinot's defaults, or NULL with null handling."""
    missing = state.is_null().to_numpy(zero_copy_only=False) if state.null_count else None
    filled = state if missing is None else state.fill_null(0)
    numbers: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    is_long = call.result.base is TypeName.LONG
    # Segments decide whether 0.0 or -0.0 came first; the sum with 0.0 is 0.0 for both.
    result = numbers.astype(np.int64) if is_long else numbers.astype(np.float64) + 0.0
    if missing is None:
        return Vector(call.result, result)
    if is_long:
        result[missing] = np.iinfo(np.int64).max if is_min else np.iinfo(np.int64).min
    else:
        result[missing] = np.inf if is_min else -np.inf
    return Vector(call.result, result, missing if call.nulls else None)


class Extreme(AggregationFunction):
    """MIN or MAX, as a DOUBLE; MINLONG or MAXLONG, of whole numbers only, as a LONG. `variant` hands texts to MINSTRING
    or MAXSTRING."""

    def __init__(self, name: str, *, is_min: bool, is_long: bool = False) -> None:
        self.name = name
        self.parameters = (AggregateParameter(name="x", takes=INTEGERS if is_long else NUMBERS | TEXTS),)
        self.is_light = not is_long
        self.scalar_form = ScalarExtreme(is_min=is_min, is_long=is_long)
        self._is_min = is_min
        self._is_long = is_long

    def variant(self, types: Sequence[SqlType]) -> str:
        return f"{self.name}string" if types[0].base in TEXTS else self.name

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return LONG if self._is_long else DOUBLE

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (StateField("value", extreme_type(call.types[0])),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        is_integer = call.types[0].base in INTEGERS
        return ExtremeState(num_groups, is_min=self._is_min, is_integer=is_integer, first_input=(*inputs, UNKNOWN)[0])

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return finished(call, columns[0], is_min=self._is_min)
