"""The last step, on the broker: finish aggregates, HAVING, ORDER BY, OFFSET and LIMIT, and the output expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.answer.combine import combine_data, order_columns
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import ResultTable
from merlot.query.context import ExecutionLimits, check_groups
from merlot.query.evaluate import evaluate, matches
from merlot.query.operators.order import Keys, first_rows, order_table, sort_keys
from merlot.query.plan.leaf import LogicalPlan, PlanKind
from merlot.spec.schema import TableSchema
from merlot.tree.nodes import Output
from merlot.tree.types import SqlType
from merlot.vectors.encoding import group_rows
from merlot.vectors.vector import Vector, from_arrow


class SlotSource:
    """Slots as columns that expressions read."""

    def __init__(self, slots: dict[str, Vector], num_rows: int) -> None:
        self._slots = slots
        self.num_rows = num_rows

    def column(self, name: str, type_: SqlType) -> Vector:
        return self._slots[name]

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        return self._slots[name].nulls

    def at(self, rows: NDArray[Any]) -> SlotSource:
        """Chosen rows."""
        taken = {name: vector.spread(self.num_rows).take(rows) for name, vector in self._slots.items()}
        return SlotSource(taken, len(rows))


def reduce(
    plan: LogicalPlan, partials: Sequence[Partial], schema: TableSchema, *, max_groups: int | None = None
) -> ResultTable:
    """The answer; of no partials, Pinot's empty one: no rows, or one row of an aggregation over nothing.

    LimitExceededError if servers, none of which has more, have more groups than allowed together."""
    data = combine_data(plan, [partial.data for partial in partials])
    if plan.kind is PlanKind.GROUP_BY and max_groups is not None:
        check_groups(ExecutionLimits(max_groups=max_groups), data.num_rows)
    if plan.kind is PlanKind.SELECTION:
        return _reduce_rows(plan, data)
    source = _finished(plan, data)
    if plan.having is not None:
        source = source.at(np.flatnonzero(matches(plan.having, source)))
    return _outputs(plan.outputs, _ordered(plan, source))


def _reduce_rows(plan: LogicalPlan, data: pa.Table) -> ResultTable:
    if plan.order_by:
        rows = order_table(data, order_columns(plan), plan.rows_needed)[plan.offset :]
        data = data.take(pa.array(rows))
    else:
        data = data.slice(plan.offset, max(0, plan.rows_needed - plan.offset))
    slots = {f"c{number}": from_arrow(expr.type, data.column(number)) for number, expr in enumerate(plan.columns)}
    return _outputs(plan.outputs, SlotSource(slots, data.num_rows))


def _finished(plan: LogicalPlan, data: pa.Table) -> SlotSource:
    if plan.kind is PlanKind.AGGREGATION and data.num_rows == 0:
        data = plan.empty_states
    slots: dict[str, Vector] = {}
    for number, key in enumerate(plan.keys):
        slots[f"k{number}"] = from_arrow(SqlType(key.type.base), data.column(number))
    position = len(plan.keys)
    for number, one in enumerate(plan.aggregations):
        end = position + len(one.fields)
        states = [_array(column) for column in data.columns[position:end]]
        slots[f"a{number}"] = one.function.finish(one.call, states)
        position = end
    return SlotSource(slots, data.num_rows)


def _ordered(plan: LogicalPlan, source: SlotSource) -> SlotSource:
    is_unordered = not (plan.is_distinct_after or plan.order_by)
    if is_unordered and plan.offset == 0 and source.num_rows <= plan.rows_needed:
        return source
    if plan.is_distinct_after:
        columns = [evaluate(output.expr, source).to_arrow(source.num_rows) for output in plan.outputs]
        source = source.at(group_rows(columns, source.num_rows).first_rows)
    keys: list[Keys] = []
    for key in plan.order_by:
        vector = evaluate(key.expr, source).spread(source.num_rows)
        keys += sort_keys(vector, ascending=key.ascending, nulls_last=key.nulls_last)
    rows = first_rows(keys, source.num_rows, plan.rows_needed)[plan.offset :]
    return source.at(rows)


def _outputs(outputs: Sequence[Output], source: SlotSource) -> ResultTable:
    columns = tuple([evaluate(output.expr, source).to_arrow(source.num_rows) for output in outputs])
    types = tuple(output.expr.type for output in outputs)
    slot_types = tuple(
        SqlType(type_.base) if not pa.types.is_list(column.type) else type_
        for type_, column in zip(types, columns, strict=True)
    )
    return ResultTable(tuple(output.label for output in outputs), slot_types, columns)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
