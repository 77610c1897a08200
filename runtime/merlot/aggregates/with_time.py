"""FIRSTWITHTIME and LASTWITHTIME: the value of the row with the least or greatest time.

Among rows with the same time the least value is first and the greatest last, so that an answer does not depend on how
rows are stored (in Pinot it does). For the same reason -0.0 is answered as 0.0, which equals it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
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
from merlot.kernels import aggregate as kernels
from merlot.tree.nodes import Value
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.encoding import with_one_zero
from merlot.vectors.vector import DTYPES, TEXT, Vector, arrow_type, from_arrow

_TIMES: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP})
_VALUES: Final = frozenset(DTYPES) | {TypeName.STRING}
_NOTHING: Final[dict[TypeName, Any]] = {
    TypeName.INT: -(1 << 31),
    TypeName.LONG: -(1 << 63),
    TypeName.TIMESTAMP: -(1 << 63),
    TypeName.FLOAT: np.nan,
    TypeName.DOUBLE: np.nan,
    TypeName.BOOLEAN: False,
    TypeName.STRING: "",
}
"""Answers of Pinot over no rows, by type."""


class TimedState(State):
    """Winning value and its time, by group."""

    def __init__(self, type_: SqlType, num_groups: int, *, is_first: bool) -> None:
        self._type = type_
        self._is_first = is_first
        bounds = np.iinfo(np.int64)
        self._worst = bounds.max if is_first else bounds.min
        self._best = np.full(num_groups, self._worst, np.int64)
        self._times = np.zeros(num_groups, np.int64)
        self._values = self._nothing(num_groups)
        self._seen = np.zeros(num_groups, np.bool_)

    def grow(self, num_groups: int) -> None:
        self._best = grown(self._best, num_groups, self._worst)
        self._times = grown(self._times, num_groups)
        self._values = grown(self._values, num_groups, "" if self._type.base in TEXT else 0)
        self._seen = grown(self._seen, num_groups, False)

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        if not num_rows:
            return
        of_rows, times = all_in_one(groups, num_rows), values[1].astype(np.int64, copy=False)
        (kernels.min_groups if self._is_first else kernels.max_groups)(of_rows, times, self._best)
        # Few rows remain to be sorted, unless times repeat.
        rows = np.flatnonzero(times == self._best[of_rows])
        if not len(rows):
            return
        candidates = self._plain(values[0], rows)
        order = np.lexsort((_ranks(candidates), of_rows[rows]))
        ends = np.flatnonzero(np.diff(of_rows[rows[order]]))
        chosen = order[np.concatenate([[0], ends + 1]) if self._is_first else np.append(ends, len(rows) - 1)]
        self._take(of_rows[rows[chosen]], times[rows[chosen]], candidates[chosen])

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        has_value = columns[1].is_valid()
        vector = from_arrow(self._type, columns[0].filter(has_value))
        times = columns[1].filter(has_value).to_numpy()
        self.add([vector.with_objects().data, times], groups[has_value.to_numpy(zero_copy_only=False)], len(times))

    def columns(self, groups: Chosen) -> list[pa.Array]:
        missing = ~self._seen[groups]
        values = pa.array(self._values[groups], arrow_type(self._type), mask=missing)
        return [values, pa.array(self._times[groups], mask=missing)]

    def _take(self, groups: Groups, times: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Take in one row per group; NaN is the largest number."""
        ours, our_times = self._values[groups], self._times[groups]
        if self._is_first:
            earlier, lesser = times < our_times, _less(values, ours)
        else:
            earlier, lesser = times > our_times, _less(ours, values)
        wins = ~self._seen[groups] | earlier | ((times == our_times) & lesser)
        winners = groups[wins]
        self._times[winners], self._values[winners], self._seen[winners] = times[wins], values[wins], True

    def _plain(self, values: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
        if isinstance(values, np.ndarray):
            return values[rows]
        texts = np.empty(len(rows), object)
        texts[:] = values.take(pa.array(rows)).to_pylist()
        return texts

    def _nothing(self, num_groups: int) -> NDArray[Any]:
        if self._type.base in TEXT:
            return np.full(num_groups, "", object)
        return np.zeros(num_groups, DTYPES[self._type.base])


def _ranks(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers that are ordered as the values."""
    return values if values.dtype != object else np.unique(values, return_inverse=True)[1]


def _less(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    less: NDArray[np.bool_] = np.asarray(left < right, np.bool_)
    return less | ((left == left) & (right != right)) if left.dtype.kind == "f" else less


class WithTime(AggregationFunction):
    """FIRSTWITHTIME(x, time, 'TYPE') or LASTWITHTIME; the type is that of the answer, and must be that of the
    values."""

    def __init__(self, name: str, *, is_first: bool) -> None:
        self.name = name
        self.parameters = (
            AggregateParameter(name="x", takes=_VALUES),
            AggregateParameter(name="time", takes=_TIMES),
            AggregateParameter(name="type", takes=frozenset({TypeName.STRING}), is_constant=True),
        )
        self._is_first = is_first

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        wanted = str(constants[0]).upper()
        return None if wanted == str(types[0]) else f"type is {wanted}, and of its values {types[0]}"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return types[0]

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return StateField("value", arrow_type(call.types[0])), StateField("time", pa.int64())

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return TimedState(call.types[0], num_groups, is_first=self._is_first)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        missing = columns[1].is_null().to_numpy(zero_copy_only=False)
        values = with_one_zero(columns[0])
        if call.nulls or not missing.any():
            return from_arrow(call.result, values)
        return from_arrow(call.result, values.fill_null(_NOTHING[call.types[0].base]))
