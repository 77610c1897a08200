"""ARRAYAGG and LISTAGG: the values of each group, ascending, so that an answer does not depend on how rows are
stored. For the same reason -0.0 is collected as 0.0, which equals it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.aggregates.distinct import DistinctState, value_type
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
    nothing,
)
from merlot.aggregates.listed import GroupRuns
from merlot.tree.nodes import Value
from merlot.tree.types import STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.encoding import with_one_zero
from merlot.vectors.vector import Vector

_TYPES: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.STRING})
_DISTINCT: Final = AggregateParameter(
    name="distinct", takes=frozenset({TypeName.BOOLEAN}), is_constant=True, is_optional=True
)


class CollectedState(State):
    """All values, with the group of each."""

    def __init__(self, type_: SqlType) -> None:
        self._type = type_
        self._parts: list[tuple[pa.Array, NDArray[np.int64]]] = []

    def grow(self, num_groups: int) -> None:
        """Do nothing: groups without values have empty lists."""

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        listed = with_one_zero(Vector(self._type, values[0]).to_arrow(num_rows))
        self._parts.append((listed.cast(value_type(self._type)), all_in_one(groups, num_rows).astype(np.int64)))

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        lengths = np.diff(columns[0].offsets.to_numpy())
        self._parts.append((columns[0].flatten(), np.repeat(groups.astype(np.int64), lengths)))

    def columns(self, groups: Chosen) -> list[pa.Array]:
        num_bytes = sum([part.nbytes + rows.nbytes for part, rows in self._parts])
        account.current().expect("", 3 * num_bytes)
        values = pa.concat_arrays([part for part, _ in self._parts] or [pa.array([], value_type(self._type))])
        owners = np.concatenate([np.zeros(0, np.int64), *(rows for _, rows in self._parts)])
        order = np.argsort(owners, kind="stable")
        owners = owners[order]
        return GroupRuns.of(owners, groups).lists([values], order)


def in_order(lists: pa.ListArray) -> pa.ListArray:
    """Return the lists with the values of each in ascending order."""
    lengths = np.diff(lists.offsets.to_numpy())
    values = lists.flatten()
    rows = pa.table({"owner": np.repeat(np.arange(len(lists)), lengths), "value": values})
    order = pc.sort_indices(rows, sort_keys=[("owner", "ascending"), ("value", "ascending")])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(order))


class _Collected(AggregationFunction):
    """Aggregate whose states are lists; states of distinct values are those of DISTINCTCOUNT."""

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (StateField("values", pa.list_(value_type(call.types[0]))),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        type_ = SqlType(call.types[0].base)
        is_distinct = len(call.constants) > 1 and call.constants[1] is True
        return DistinctState(type_, num_groups) if is_distinct else CollectedState(type_)


class ArrayAgg(_Collected):
    """ARRAYAGG(x, 'TYPE' [, distinct]): the values as a list, ascending; the type must be that of x."""

    name = "arrayagg"
    parameters = (
        AggregateParameter(name="x", takes=_TYPES),
        AggregateParameter(name="type", takes=frozenset({TypeName.STRING}), is_constant=True),
        _DISTINCT,
    )

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        own = str(types[0])
        return None if str(constants[0]).upper() == own else f"type must be {own}, that of x; CAST gives it another"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return SqlType(types[0].base, is_array=True)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        account.current().expect("ARRAYAGG", 3 * columns[0].nbytes)
        lists = in_order(columns[0])
        return Vector(call.result, lists, nothing(call, np.diff(lists.offsets.to_numpy())))


class ListAgg(_Collected):
    """LISTAGG(x, separator [, distinct]): the texts, ascending, joined into one text."""

    name = "listagg"
    parameters = (
        AggregateParameter(name="x", takes=frozenset({TypeName.STRING})),
        AggregateParameter(name="separator", takes=frozenset({TypeName.STRING}), is_constant=True),
        _DISTINCT,
    )

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        separators = len(columns[0].values) * len(str(call.constants[0]).encode())
        account.current().expect("LISTAGG", 3 * columns[0].nbytes + 2 * separators)
        lists = in_order(columns[0])
        joined = pc.binary_join(lists.cast(pa.list_(pa.string())), str(call.constants[0])).cast(pa.string())
        return Vector(call.result, joined, nothing(call, np.diff(lists.offsets.to_numpy())))
