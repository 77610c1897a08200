"""Last step of a query, on the broker: finish aggregates, HAVING, ORDER BY, OFFSET and LIMIT, and the output
expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.aggregates.function import AggregateCall
from merlot.functions.evaluate import evaluate, matches
from merlot.query.aggregation import Aggregation
from merlot.query.answer.combine import combine_data, order_columns
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import ResultTable
from merlot.query.context import ExecutionLimits, check_groups
from merlot.query.operators.order import Keys, Rows, first_rows, order_table, sort_keys
from merlot.query.plan.nodes import Finish, LeafKind, LeafWork, Reduce
from merlot.query.slots import Slot, SlotSource
from merlot.spec.schema import TableSchema
from merlot.tree.nodes import OrderKey, Output
from merlot.tree.types import SqlType
from merlot.vectors import account
from merlot.vectors.encoding import group_rows
from merlot.vectors.vector import Vector, from_arrow


def reduce(
    plan: Reduce,
    partials: Sequence[Partial],
    schema: TableSchema,
    *,
    max_groups: int | None = None,
    nothing_is_null: bool = False,
) -> ResultTable:
    """Return the answer. Without partial answers it is Pinot's empty answer: no rows, or one row of an aggregation over
    nothing.

    With `nothing_is_null`, aggregates over no values, or over too few, are NULL without null handling too, except for
    those whose states do not show it (`Aggregation.tells_nothing`).

    Raises LimitExceededError if servers, each within the limit, have more groups together than allowed, or if computing
    the answer takes more memory than a query may have."""
    with account.Working():
        return _reduce(plan, partials, max_groups=max_groups, nothing_is_null=nothing_is_null)


def _reduce(
    plan: Reduce,
    partials: Sequence[Partial],
    *,
    max_groups: int | None,
    nothing_is_null: bool,
) -> ResultTable:
    work, finish = plan.leaf.work, plan.finish
    data = combine_data(work, [partial.data for partial in partials])
    if work.kind is LeafKind.GROUP_BY and max_groups is not None:
        check_groups(ExecutionLimits(max_groups=max_groups), data.num_rows)
    if work.kind is LeafKind.SELECTION:
        return _reduce_rows(work, finish, data)
    source = _finished(work, data, nothing_is_null=nothing_is_null)
    if finish.having is not None:
        source = source.at(np.flatnonzero(matches(finish.having, source)))
    table = _outputs(finish.outputs, _ordered(finish, source))
    rows_of = {f"a{number}" for number, item in enumerate(work.aggregations) if item.function.gives_rows}
    return _spread(table, [getattr(output.expr, "name", "") in rows_of for output in finish.outputs])


def _reduce_rows(work: LeafWork, finish: Finish, data: pa.Table) -> ResultTable:
    if work.order_by:
        rows = order_table(data, order_columns(work), work.rows_needed)[finish.offset :]
        data = data.take(pa.array(rows))
    else:
        data = _rows_between(data, finish.offset, work.rows_needed)
    slots = {f"c{number}": partial(_column, expr.type, data[number]) for number, expr in enumerate(work.columns)}
    return _outputs(finish.outputs, SlotSource(slots, data.num_rows))


def _rows_between(data: pa.Table, start: int, stop: int) -> pa.Table:
    """Return these rows. They are copied if they are the smaller part: a cursor may hold an answer for an hour, and a
    slice would keep all of `data` in memory."""
    rows = data.slice(start, max(0, stop - start))
    return rows if 2 * rows.num_rows >= data.num_rows else rows.take(pa.array(np.arange(rows.num_rows)))


def _finished(work: LeafWork, data: pa.Table, *, nothing_is_null: bool) -> SlotSource:
    if work.kind is LeafKind.AGGREGATION and data.num_rows == 0:
        data = work.empty_states
    slots: dict[str, Slot] = {}
    # A table makes all of its columns anew whenever it is asked for them.
    columns = data.columns
    for number, key in enumerate(work.keys):
        slots[f"k{number}"] = partial(_column, SqlType(key.type.base), columns[number])
    position = len(work.keys)
    for number, aggregation in enumerate(work.aggregations):
        end = position + len(aggregation.fields)
        call = (
            replace(aggregation.call, nulls=True) if nothing_is_null and aggregation.tells_nothing else aggregation.call
        )
        slots[f"a{number}"] = partial(_result, aggregation, call, columns[position:end])
        position = end
    return SlotSource(slots, data.num_rows)


def _column(type_: SqlType, column: pa.ChunkedArray, rows: Rows | None) -> Vector:
    return from_arrow(type_, column if rows is None else column.take(pa.array(rows)))


def _result(
    aggregation: Aggregation, call: AggregateCall, columns: Sequence[pa.ChunkedArray], rows: Rows | None
) -> Vector:
    """Return the final values of the states of some groups."""
    states = [_array(column if rows is None else column.take(pa.array(rows))) for column in columns]
    account.current().function = aggregation.function.name.upper()
    return aggregation.function.finish(call, states)


def _ordered(finish: Finish, source: SlotSource) -> SlotSource:
    is_unordered = not (finish.is_distinct or finish.order_by)
    if is_unordered and finish.offset == 0 and source.num_rows <= finish.rows_needed:
        return source
    if finish.is_distinct:
        columns = [evaluate(output.expr, source).to_arrow(source.num_rows) for output in finish.outputs]
        source = source.at(group_rows(columns, source.num_rows).first_rows)
    keys = [partial(_sort_keys, key, source) for key in finish.order_by]
    return source.at(first_rows(keys, source.num_rows, finish.rows_needed)[finish.offset :])


def _sort_keys(key: OrderKey, every: SlotSource, rows: Rows | None) -> list[Keys]:
    source = every if rows is None else every.at(rows)
    vector = evaluate(key.expr, source).spread(source.num_rows)
    return sort_keys(vector, ascending=key.ascending, nulls_last=key.nulls_last)


def _outputs(outputs: Sequence[Output], source: SlotSource) -> ResultTable:
    spending, made = account.current(), []
    for output in outputs:
        made.append(evaluate(output.expr, source).to_arrow(source.num_rows))
        spending.hold("an answer", made[-1].nbytes)
    columns = tuple(made)
    types = tuple(output.expr.type for output in outputs)
    slot_types = tuple(
        SqlType(type_.base) if not pa.types.is_list(column.type) else type_
        for type_, column in zip(types, columns, strict=True)
    )
    return ResultTable(tuple(output.label for output in outputs), slot_types, columns)


def _spread(table: ResultTable, gives_rows: Sequence[bool]) -> ResultTable:
    """Return a row for each value of the columns that return several values. Columns with fewer values are null in the
    remaining rows; there is at least one row."""
    if not any(gives_rows):
        return table
    lengths = [pc.list_value_length(column).to_numpy(zero_copy_only=False) for column in _chosen(table, gives_rows)]
    counts = np.maximum(1, np.max(lengths, axis=0)).astype(np.int64)
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = [
        _values_at(column, rows, places) if gives else column.take(pa.array(rows))
        for column, gives in zip(table.columns, gives_rows, strict=True)
    ]
    return ResultTable(table.column_names, table.column_types, tuple(columns))


def _chosen(table: ResultTable, gives_rows: Sequence[bool]) -> list[pa.Array]:
    return [column for column, gives in zip(table.columns, gives_rows, strict=True) if gives]


def _values_at(lists: pa.ListArray, rows: NDArray[np.int64], places: NDArray[np.int64]) -> pa.Array:
    """Return the value of a list at each position; null past its end."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    taken = offsets[rows] + places
    return lists.values.take(pa.array(taken, mask=taken >= offsets[rows + 1]))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
