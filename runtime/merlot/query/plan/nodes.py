"""Plan of a query as a typed tree: the work of servers over their segments (`Leaf`), and what the broker does with
their answers.

Partial answers have slots: `k0`, `k1`, … group keys, `a0`, … aggregates (each with one column per part of its state),
`c0`, … selected expressions. Expressions above a leaf refer to its slots as columns of those names.

Stages above leaves (a join, a window, a set operation) are not part of this tree: `query.stages` cuts a statement into
queries with plans of their own. Nodes are immutable, and plans that differ in WHERE alone share the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

import pyarrow as pa

from merlot.query.aggregation import Aggregation, aggregation
from merlot.query.plan.expressions import columns_of, shared_by
from merlot.query.plan.memo import Memo
from merlot.tree.nodes import Aggregate, Column, Expr, OrderKey, Output
from merlot.tree.types import SqlType
from merlot.vectors.vector import arrow_type

SKIP_OPTION: Final = "skipSegmentPruning"
STAR_TREE_OPTION: Final = "useStarTree"
SIZE_OPTIONS: Final = ("maxServerResponseSizeBytes", "maxQueryResponseSizeBytes")


class LeafKind(Enum):
    """Kind of a partial answer."""

    SELECTION = "SELECTION"
    """Rows."""
    AGGREGATION = "AGGREGATION"
    """One row of states."""
    GROUP_BY = "GROUP_BY"
    """Keys and states; also DISTINCT, which has no aggregates."""


class UpsertRows(Enum):
    """Rows of an upsert table that a query reads; it reads all rows of other tables."""

    NEWEST = "NEWEST"
    """The newest row of each key, unless it says that the key is deleted."""
    WITH_DELETED = "WITH_DELETED"
    """`skipUpsertDelete=true`: the newest row of each key, even if it says that the key is deleted."""
    EVERY = "EVERY"
    """`skipUpsert=true`: all rows that are stored, replaced rows too."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LeafWork:
    """Work of servers on the docs that pass a filter. It serves later queries too: properties are computed once."""

    kind: LeafKind
    keys: tuple[Expr, ...] = ()
    """Group keys over the table's columns; slots k0, k1, …"""
    aggregates: tuple[Aggregate, ...] = ()
    """Distinct aggregates over the table's columns; slots a0, a1, …"""
    columns: tuple[Expr, ...] = ()
    """Selected expressions over the table's columns, order keys included; slots c0, c1, …"""
    order_by: tuple[OrderKey, ...] = ()
    """Order of a selection's rows, over its slots."""
    rows_needed: int
    """Number of first rows that decide the answer."""
    null_handling: bool = False
    skips_pruning: bool = False
    """`skipSegmentPruning=true`: look at every segment, to compare answers or to rule out that pruning is wrong."""
    rows: UpsertRows = UpsertRows.NEWEST
    skips_star_trees: bool = False
    """`useStarTree=false`: read rows."""
    max_bytes: int | None = None
    """Most bytes of a server's answer, if the query sets a limit. The table's limit holds too."""
    memo: Memo = field(default_factory=Memo, init=False, repr=False, compare=False)
    """Values that are derived from the work. A copy with other fields has a memo of its own."""

    @cached_property
    def slots(self) -> tuple[Expr, ...]:
        """Columns by which order keys and outputs refer to the selected expressions."""
        return tuple(Column(f"c{number}", expr.type) for number, expr in enumerate(self.columns))

    @cached_property
    def columns_after_filter(self) -> frozenset[str]:
        """Columns of the table that are read for docs that pass the filter."""
        exprs = [*self.keys, *self.columns, *(arg for aggregate in self.aggregates for arg in aggregate.args)]
        exprs += [aggregate.filter for aggregate in self.aggregates if aggregate.filter is not None]
        return frozenset().union(*(columns_of(expr) for expr in exprs))

    @cached_property
    def columns_of_keys(self) -> frozenset[str]:
        """Columns of the table that group keys read."""
        return frozenset().union(*(columns_of(expr) for expr in self.keys))

    @cached_property
    def columns_of_called_keys(self) -> frozenset[str]:
        """Columns of the table that group keys apply functions to."""
        return frozenset().union(*(columns_of(expr) for expr in self.keys if not isinstance(expr, Column)))

    @cached_property
    def shared(self) -> frozenset[Expr]:
        """Expressions that several keys and aggregates share. Each is evaluated once for each chunk of rows."""
        arguments = [arg for aggregate in self.aggregates for arg in aggregate.args]
        filters = [aggregate.filter for aggregate in self.aggregates if aggregate.filter is not None]
        return shared_by([*self.keys, *arguments, *filters])

    @cached_property
    def aggregations(self) -> tuple[Aggregation, ...]:
        """The aggregates with their functions from the registry. Raises UnsupportedQueryError."""
        return tuple(aggregation(aggregate, nulls=self.null_handling) for aggregate in self.aggregates)

    @cached_property
    def empty_states(self) -> pa.Table:
        """States of an aggregation over no rows, in one row."""
        states = [column for item in self.aggregations for column in item.function.identity(item.call)]
        return pa.Table.from_arrays(states, schema=self.partial_schema)

    @cached_property
    def partial_schema(self) -> pa.Schema:
        """Columns of a partial answer. Raises UnsupportedQueryError."""
        if self.kind is LeafKind.SELECTION:
            return pa.schema([(f"c{number}", arrow_type(expr.type)) for number, expr in enumerate(self.columns)])
        fields = [(f"k{number}", arrow_type(SqlType(key.type.base))) for number, key in enumerate(self.keys)]
        for number, item in enumerate(self.aggregations):
            fields += [(f"a{number}.{state.suffix}", state.type) for state in item.fields]
        return pa.schema(fields)


@dataclass(frozen=True)
class Leaf:
    """Part of a plan that servers run over segments."""

    work: LeafWork
    filter: Expr | None

    @cached_property
    def columns_read(self) -> frozenset[str]:
        """Columns of the table that the leaf reads."""
        names = self.work.columns_after_filter
        return names if self.filter is None else names | columns_of(self.filter)


@dataclass(frozen=True, kw_only=True, eq=False)
class Finish:
    """Steps from the merged partial answers to the answer, over slots; shared as `LeafWork` is."""

    outputs: tuple[Output, ...]
    having: Expr | None = None
    order_by: tuple[OrderKey, ...] = ()
    limit: int
    offset: int
    is_distinct: bool = False
    """True for SELECT DISTINCT over the groups of a GROUP BY: equal rows of the answer become one row."""
    memo: Memo = field(default_factory=Memo, init=False, repr=False, compare=False)
    """Values that are derived from this node. A copy with other fields has a memo of its own."""

    @property
    def rows_needed(self) -> int:
        """Number of first rows that decide the answer."""
        return self.limit + self.offset


@dataclass(frozen=True, slots=True)
class Reduce:
    """Merge of a leaf's partial answers, and the steps from there to the answer, on the broker."""

    leaf: Leaf
    finish: Finish


PlanNode = Leaf | Reduce


def refilter(template: Reduce, where: Expr | None) -> Reduce:
    """Return the plan of a query that differs from the template's query in WHERE alone. The rest is shared."""
    return Reduce(Leaf(template.leaf.work, where), template.finish)
