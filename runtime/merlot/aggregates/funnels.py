"""FUNNEL_COUNT: for each step, the number of values for which it and all earlier steps hold, in any rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.distinct import MAX_ARGUMENTS, combined, value_type
from merlot.aggregates.function import (
    ANYTHING,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Groups,
    Input,
    State,
    StateField,
    all_in_one,
)
from merlot.aggregates.listed import GroupRuns, offsets_of
from merlot.tree.nodes import Value
from merlot.tree.types import BYTES, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.encoding import group_rows, with_one_zero
from merlot.vectors.vector import Vector

MAX_STEPS: Final = 62
"""Most steps: each is a bit of a LONG."""
_PENDING: Final = 1 << 16
"""Rows that are collected before equal values are combined."""
Masks = NDArray[np.int64]


class FunnelState(State):
    """Values of each group, with a bit for each step that holds; a value may occur several times."""

    def __init__(self, types: Sequence[SqlType]) -> None:
        self._types = types
        self._parts: list[tuple[Groups, pa.Array, Masks]] = []
        self._pending = 0

    def grow(self, num_groups: int) -> None:
        """Do nothing: groups without values have empty lists."""

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        masks = values[0].astype(np.int64, copy=False)
        rows = np.flatnonzero(masks)
        if len(rows):
            taken = [Vector(type_, data).take(rows).data for type_, data in zip(self._types, values[1:], strict=True)]
            self._keep(all_in_one(groups, num_rows)[rows], self._value(taken, len(rows)), masks[rows])

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        owners = np.repeat(groups, np.diff(columns[0].offsets.to_numpy()))
        if len(owners):
            self._keep(owners, columns[0].flatten(), columns[1].flatten().to_numpy())

    def columns(self, groups: Chosen) -> list[pa.Array]:
        self._settle()
        if self._parts:
            owners, values, masks = self._parts[0]
        else:
            owners, values, masks = np.zeros(0, np.uint32), pa.array([], _listed(self._types)), np.zeros(0, np.int64)
        return GroupRuns.of(owners, groups).lists([values, pa.array(masks, pa.int64())])

    def _value(self, values: Sequence[Any], num_rows: int) -> pa.Array:
        if len(values) > 1:
            return combined(self._types, values, num_rows)
        return with_one_zero(Vector(self._types[0], values[0]).to_arrow(num_rows))

    def _keep(self, groups: Groups, values: pa.Array, masks: Masks) -> None:
        self._parts.append((groups, values, masks))
        self._pending += len(groups)
        if self._pending > _PENDING:
            self._settle()
            self._pending = -len(self._parts[0][0])

    def _settle(self) -> None:
        """Combine all parts into one, each value once, by group."""
        if not self._parts:
            return
        owners = np.concatenate([groups for groups, _, _ in self._parts])
        values = pa.concat_arrays([part for _, part, _ in self._parts])
        distinct = group_rows([pa.array(owners), values], len(owners))
        masks = np.zeros(len(distinct), np.int64)
        np.bitwise_or.at(masks, distinct.of_rows, np.concatenate([part for _, _, part in self._parts]))
        order = np.argsort(owners[distinct.first_rows], kind="stable")
        rows = distinct.first_rows[order]
        self._parts = [(owners[rows], values.take(pa.array(rows)), masks[order])]


def _listed(types: Sequence[SqlType]) -> pa.DataType:
    return value_type(types[0] if len(types) == 1 else BYTES)


class FunnelCount(AggregationFunction):
    """FUNNEL_COUNT(STEPS(condition, …), CORRELATE_BY(x, …) [, SETTINGS(…)]): always exact, whatever the settings.

    It is called with the steps that hold for a row, a bit each."""

    name = "funnelcount"
    written = "STEPS(condition, …), CORRELATEBY(x, …)[, SETTINGS('setting', …)]"
    parameters = (
        AggregateParameter(name="steps that hold", takes=frozenset({TypeName.LONG})),
        AggregateParameter(name="steps", takes=frozenset({TypeName.INT}), is_constant=True),
        AggregateParameter(name="x", takes=ANYTHING),
        *(
            AggregateParameter(name=f"x{number}", takes=ANYTHING, is_optional=True)
            for number in range(2, MAX_ARGUMENTS + 1)
        ),
    )

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return SqlType(TypeName.LONG, is_array=True)

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return StateField("values", pa.list_(_listed(call.types[1:]))), StateField("steps", pa.list_(pa.int64()))

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return FunnelState(call.types[1:])

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        num_steps, lists = call.constants[0], columns[1]
        assert isinstance(num_steps, int)
        masks = lists.flatten().to_numpy()
        account.current().expect(self.name.upper(), 8 * (len(lists) * num_steps + 2 * len(masks)))
        owners = np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy()))
        counts = np.zeros((len(lists), num_steps), np.int64)
        for step in range(num_steps):
            wanted = np.int64((1 << (step + 1)) - 1)
            counts[:, step] = np.bincount(owners[masks & wanted == wanted], minlength=len(lists))
        offsets = offsets_of(np.full(len(lists), num_steps)).astype(np.int32)
        return Vector(call.result, pa.ListArray.from_arrays(pa.array(offsets), pa.array(counts.reshape(-1))))
