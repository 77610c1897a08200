"""The plan of a query as a typed tree: what servers do with their segments (`Leaf`), and what the broker makes of that.

Partial answers have slots: `k0`, `k1`, … group keys, `a0`, … aggregates (each with one column per part of its state),
`c0`, … selected expressions. What stands above a leaf is written over its slots, as columns of those names.

A stage above others (a set operation, a window, a join) is one more member of `PlanNode`, over `PlanNode`s of its own;
servers are only ever asked for leaves. Nodes are immutable, and plans that differ in WHERE alone share the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from merlot.query.aggregation import Aggregation, aggregation
from merlot.query.plan.expressions import columns_of, shared_by
from merlot.tree.nodes import Aggregate, Column, Expr, OrderKey, Output
from merlot.tree.types import SqlType
from merlot.vectors.vector import arrow_type

SKIP_OPTION: Final = "skipSegmentPruning"
STAR_TREE_OPTION: Final = "useStarTree"
SIZE_OPTIONS: Final = ("maxServerResponseSizeBytes", "maxQueryResponseSizeBytes")


class LeafKind(Enum):
    """Three shapes of a partial answer."""

    SELECTION = "SELECTION"
    """Rows."""
    AGGREGATION = "AGGREGATION"
    """One row of states."""
    GROUP_BY = "GROUP_BY"
    """Keys and states; also DISTINCT, which has no aggregates."""


class Rows(Enum):
    """Which rows of an upsert table a query is about; of other tables it is all."""

    NEWEST = "NEWEST"
    """One of each key, none of a deleted one."""
    WITH_DELETED = "WITH_DELETED"
    """`skipUpsertDelete=true`: one of each key, be it the row that says that the key is deleted."""
    EVERY = "EVERY"
    """`skipUpsert=true`: all that are stored, replaced ones too."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LeafWork:
    """What servers do with the docs that a filter keeps. Kept and used again: what follows is worked out once."""

    kind: LeafKind
    keys: tuple[Expr, ...] = ()
    """Group keys over the table's columns; slots k0, k1, …"""
    aggregates: tuple[Aggregate, ...] = ()
    """Distinct aggregates over the table's columns; slots a0, a1, …"""
    columns: tuple[Expr, ...] = ()
    """Selected expressions over the table's columns, order keys included; slots c0, c1, …"""
    order_by: tuple[OrderKey, ...] = ()
    """Of a selection, over its slots: which rows come first."""
    rows_needed: int
    """How many of the first rows decide the answer."""
    null_handling: bool = False
    skips_pruning: bool = False
    """`skipSegmentPruning=true`: every segment is to be looked at, to compare, or to suspect pruning of an answer."""
    rows: Rows = Rows.NEWEST
    skips_star_trees: bool = False
    """`useStarTree=false`: rows are to be read."""
    max_bytes: int | None = None
    """Most bytes that a server may answer, if the query itself has said so: the table's limit holds too."""
    memo: dict[str, Any] = field(default_factory=dict)
    """What shortcuts remember of it, each under its own name."""

    @cached_property
    def slots(self) -> tuple[Expr, ...]:
        """What order keys and outputs call the selected expressions."""
        return tuple(Column(f"c{number}", expr.type) for number, expr in enumerate(self.columns))

    @cached_property
    def columns_after_filter(self) -> frozenset[str]:
        """Columns of the table that are read for docs that the filter kept."""
        exprs = [*self.keys, *self.columns, *(arg for one in self.aggregates for arg in one.args)]
        exprs += [one.filter for one in self.aggregates if one.filter is not None]
        return frozenset().union(*(columns_of(expr) for expr in exprs))

    @cached_property
    def columns_of_keys(self) -> frozenset[str]:
        """Columns of the table that group keys are made of."""
        return frozenset().union(*(columns_of(expr) for expr in self.keys))

    @cached_property
    def columns_of_called_keys(self) -> frozenset[str]:
        """Columns of the table that group keys apply functions to."""
        return frozenset().union(*(columns_of(expr) for expr in self.keys if not isinstance(expr, Column)))

    @cached_property
    def shared(self) -> frozenset[Expr]:
        """What several keys and aggregates read or compute: once for each chunk of rows."""
        arguments = [arg for one in self.aggregates for arg in one.args]
        filters = [one.filter for one in self.aggregates if one.filter is not None]
        return shared_by([*self.keys, *arguments, *filters])

    @cached_property
    def aggregations(self) -> tuple[Aggregation, ...]:
        """The aggregates, found in the registry. Raises UnsupportedQueryError."""
        return tuple(aggregation(one, nulls=self.null_handling) for one in self.aggregates)

    @cached_property
    def empty_states(self) -> pa.Table:
        """States of an aggregation over no rows, in one row."""
        states = [column for one in self.aggregations for column in one.function.identity(one.call)]
        return pa.Table.from_arrays(states, schema=self.partial_schema)

    @cached_property
    def partial_schema(self) -> pa.Schema:
        """Columns of a partial answer. Raises UnsupportedQueryError."""
        if self.kind is LeafKind.SELECTION:
            return pa.schema([(f"c{number}", arrow_type(expr.type)) for number, expr in enumerate(self.columns)])
        fields = [(f"k{number}", arrow_type(SqlType(key.type.base))) for number, key in enumerate(self.keys)]
        for number, one in enumerate(self.aggregations):
            fields += [(f"a{number}.{state.suffix}", state.type) for state in one.fields]
        return pa.schema(fields)


@dataclass(frozen=True)
class Leaf:
    """What servers run over segments."""

    work: LeafWork
    filter: Expr | None

    @cached_property
    def columns_read(self) -> frozenset[str]:
        """Columns of the table."""
        names = self.work.columns_after_filter
        return names if self.filter is None else names | columns_of(self.filter)


@dataclass(frozen=True, kw_only=True, eq=False)
class Finish:
    """What is left to do with the merged partial answers, over slots; shared as `LeafWork` is."""

    outputs: tuple[Output, ...]
    having: Expr | None = None
    order_by: tuple[OrderKey, ...] = ()
    limit: int
    offset: int
    is_distinct: bool = False
    """SELECT DISTINCT over the groups of a GROUP BY: equal answers are one."""
    memo: dict[str, Any] = field(default_factory=dict)
    """What shortcuts remember of it, each under its own name."""

    @property
    def rows_needed(self) -> int:
        """How many of the first rows decide the answer."""
        return self.limit + self.offset


@dataclass(frozen=True, slots=True)
class Reduce:
    """Merges the partial answers of a leaf and finishes them, on the broker."""

    leaf: Leaf
    finish: Finish


PlanNode = Leaf | Reduce


def refilter(template: Reduce, where: Expr | None) -> Reduce:
    """The plan of a query that differs from the template's in WHERE alone; the rest is shared."""
    return Reduce(Leaf(template.leaf.work, where), template.finish)
