"""Merge of partial answers: on a server those of its segments, on a broker those of its servers. Exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.query.aggregation import Aggregation
from merlot.query.operators.order import order_table
from merlot.query.plan.nodes import LeafKind, LeafWork
from merlot.query.workers import Workers
from merlot.tree.nodes import Column
from merlot.tree.types import SqlType
from merlot.vectors import account
from merlot.vectors.encoding import group_rows
from merlot.vectors.groups import Groups
from merlot.vectors.partitioned import group_many

ALONE: Final = Workers()
"""Workers that consist of the calling thread alone."""


def combine_data(work: LeafWork, tables: Sequence[pa.Table]) -> pa.Table:
    """Return the merged rows of partial answers."""
    with_rows = [_as(work.partial_schema, table) for table in tables if table.num_rows]
    return merge_tables(work, with_rows) if with_rows else work.partial_schema.empty_table()


def _as(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """Return the table with this schema. Equal schemas, the rule between nodes of one version, need no cast: 0.1 us
    instead of 12."""
    return table if table.schema.equals(schema) else table.cast(schema)


def merge_tables(
    work: LeafWork, tables: Sequence[pa.Table], workers: Workers = ALONE, *, is_merged: bool | None = None
) -> pa.Table:
    """Merge tables of the plan's `partial_schema`: equal keys become one row, and rows that the answer does not need
    are dropped.

    `is_merged` is true if no key occurs twice. By default that is assumed of a single table."""
    if work.kind is LeafKind.SELECTION:
        return _merge_rows(work, tables)
    if len(tables) == 1 if is_merged is None else is_merged:
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    return merge_groups(work, pa.concat_tables(tables), workers)


def _merge_rows(work: LeafWork, tables: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables)
    if not work.order_by:
        return rows.slice(0, work.rows_needed)
    if len(tables) == 1 and rows.num_rows <= work.rows_needed:
        return rows
    return rows.take(pa.array(order_table(rows, order_columns(work), work.rows_needed)))


def order_columns(work: LeafWork) -> list[tuple[str, SqlType, bool, bool]]:
    """Return the ORDER BY of a selection, over its slots."""
    columns = []
    for key in work.order_by:
        assert isinstance(key.expr, Column)
        columns.append((key.expr.name, key.expr.type, key.ascending, key.nulls_last))
    return columns


def merge_groups(work: LeafWork, table: pa.Table, workers: Workers = ALONE) -> pa.Table:
    """Return one row per distinct key, with merged states."""
    account.current().hold("partial answers", table.nbytes)
    columns = workers.run(_array, table.columns)
    num_keys = len(work.keys)
    keys, states = columns[:num_keys], columns[num_keys:]
    if work.kind is LeafKind.AGGREGATION:
        groups = Groups(np.zeros(table.num_rows, np.uint32), np.zeros(1, np.uint32))
    else:
        groups = group_many(keys, table.num_rows, workers.run) or group_rows(keys, table.num_rows)
    if len(groups) == table.num_rows:
        return pa.Table.from_arrays(columns, schema=table.schema)
    first_rows = pa.array(groups.first_rows)
    parts: list[Callable[[], list[pa.Array]]] = [partial(_taken, column, first_rows) for column in keys]
    parts += [partial(_merged, aggregation, columns_, groups) for aggregation, columns_ in _states(work, states)]
    merged = workers.run(lambda part: part(), parts)
    return pa.Table.from_arrays([column for some in merged for column in some], schema=table.schema)


def _taken(column: pa.Array, rows: pa.Array) -> list[pa.Array]:
    return [column.take(rows)]


def _merged(aggregation: Aggregation, columns: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
    return list(aggregation.function.merge(aggregation.call, columns, groups.of_rows, len(groups)))


def _states(work: LeafWork, columns: Sequence[pa.Array]) -> Iterator[tuple[Aggregation, Sequence[pa.Array]]]:
    """Yield each aggregate with the columns of its states."""
    position = 0
    for aggregation in work.aggregations:
        yield aggregation, columns[position : position + len(aggregation.fields)]
        position += len(aggregation.fields)


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
