"""Partial answers into one: on a server over its segments, on a broker over its servers. Exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.query.operators.order import order_table
from merlot.query.plan.leaf import LogicalPlan, PlanKind
from merlot.tree.nodes import Column
from merlot.tree.types import SqlType
from merlot.vectors.encoding import group_rows
from merlot.vectors.groups import Groups


def combine(plan: LogicalPlan, partials: Sequence[Partial]) -> Partial:
    """One partial answer from several; with none, the empty one."""
    stats = QueryStats()
    for partial in partials:
        stats = stats + partial.stats
    return Partial(combine_data(plan, [partial.data for partial in partials]), stats)


def combine_data(plan: LogicalPlan, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of partial answers as those of one."""
    with_rows = [_as(plan.partial_schema, table) for table in tables if table.num_rows]
    return merge_tables(plan, with_rows) if with_rows else plan.partial_schema.empty_table()


def _as(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """Equal schemas, the rule between nodes of one version, need no cast: 0.1 us instead of 12."""
    return table if table.schema.equals(schema) else table.cast(schema)


def merge_tables(plan: LogicalPlan, tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of the plan's `partial_schema` as one, equal keys merged and rows cut to what the answer needs."""
    if plan.kind is PlanKind.SELECTION:
        return _merge_rows(plan, tables)
    if len(tables) == 1:
        return tables[0]
    return merge_groups(plan, pa.concat_tables(tables))


def _merge_rows(plan: LogicalPlan, tables: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables)
    if not plan.order_by:
        return rows.slice(0, plan.rows_needed)
    if len(tables) == 1 and rows.num_rows <= plan.rows_needed:
        return rows
    return rows.take(pa.array(order_table(rows, order_columns(plan), plan.rows_needed)))


def order_columns(plan: LogicalPlan) -> list[tuple[str, SqlType, bool, bool]]:
    """ORDER BY of a selection, over slots."""
    columns = []
    for key in plan.order_by:
        assert isinstance(key.expr, Column)
        columns.append((key.expr.name, key.expr.type, key.ascending, key.nulls_last))
    return columns


def merge_groups(plan: LogicalPlan, table: pa.Table) -> pa.Table:
    """One row per distinct key, states merged."""
    columns = [_array(column) for column in table.columns]
    num_keys = len(plan.keys)
    if plan.kind is PlanKind.AGGREGATION:
        groups = Groups(np.zeros(table.num_rows, np.uint32), np.zeros(1, np.uint32))
    else:
        groups = group_rows(columns[:num_keys], table.num_rows)
    merged = [column.take(pa.array(groups.first_rows)) for column in columns[:num_keys]]
    merged += _merge_states(plan, columns[num_keys:], groups.of_rows, len(groups))
    return pa.Table.from_arrays(merged, schema=table.schema)


def _merge_states(
    plan: LogicalPlan, columns: Sequence[pa.Array], groups: NDArray[np.uint32], num_groups: int
) -> list[pa.Array]:
    merged: list[pa.Array] = []
    position = 0
    for one in plan.aggregations:
        end = position + len(one.fields)
        merged += one.function.merge(one.call, columns[position:end], groups, num_groups)
        position = end
    return merged


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
