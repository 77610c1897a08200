"""Partial answers into one: on a server over its segments, on a broker over its servers. Exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.operators.order import order_table
from merlot.query.plan.nodes import LeafKind, LeafWork
from merlot.tree.nodes import Column
from merlot.tree.types import SqlType
from merlot.vectors.encoding import group_rows
from merlot.vectors.groups import Groups


def combine_data(work: LeafWork, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of partial answers as those of one."""
    with_rows = [_as(work.partial_schema, table) for table in tables if table.num_rows]
    return merge_tables(work, with_rows) if with_rows else work.partial_schema.empty_table()


def _as(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """Equal schemas, the rule between nodes of one version, need no cast: 0.1 us instead of 12."""
    return table if table.schema.equals(schema) else table.cast(schema)


def merge_tables(work: LeafWork, tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of the plan's `partial_schema` as one, equal keys merged and rows cut to what the answer needs."""
    if work.kind is LeafKind.SELECTION:
        return _merge_rows(work, tables)
    if len(tables) == 1:
        return tables[0]
    return merge_groups(work, pa.concat_tables(tables))


def _merge_rows(work: LeafWork, tables: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables)
    if not work.order_by:
        return rows.slice(0, work.rows_needed)
    if len(tables) == 1 and rows.num_rows <= work.rows_needed:
        return rows
    return rows.take(pa.array(order_table(rows, order_columns(work), work.rows_needed)))


def order_columns(work: LeafWork) -> list[tuple[str, SqlType, bool, bool]]:
    """ORDER BY of a selection, over slots."""
    columns = []
    for key in work.order_by:
        assert isinstance(key.expr, Column)
        columns.append((key.expr.name, key.expr.type, key.ascending, key.nulls_last))
    return columns


def merge_groups(work: LeafWork, table: pa.Table) -> pa.Table:
    """One row per distinct key, states merged."""
    columns = [_array(column) for column in table.columns]
    num_keys = len(work.keys)
    if work.kind is LeafKind.AGGREGATION:
        groups = Groups(np.zeros(table.num_rows, np.uint32), np.zeros(1, np.uint32))
    else:
        groups = group_rows(columns[:num_keys], table.num_rows)
    merged = [column.take(pa.array(groups.first_rows)) for column in columns[:num_keys]]
    merged += _merge_states(work, columns[num_keys:], groups.of_rows, len(groups))
    return pa.Table.from_arrays(merged, schema=table.schema)


def _merge_states(
    work: LeafWork, columns: Sequence[pa.Array], groups: NDArray[np.uint32], num_groups: int
) -> list[pa.Array]:
    merged: list[pa.Array] = []
    position = 0
    for one in work.aggregations:
        end = position + len(one.fields)
        merged += one.function.merge(one.call, columns[position:end], groups, num_groups)
        position = end
    return merged


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
