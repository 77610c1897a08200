"""What a query computes, apart from any segment: broker and server derive the same plan from the same bound query.

Partial answers have slots: `k0`, `k1`, … group keys, `a0`, … aggregates (each with one column per part of its state),
`c0`, … selected expressions. Outputs, HAVING and ORDER BY are written over slots, as columns of those names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

import pyarrow as pa

from merlot.query.aggregation import Aggregation, aggregation
from merlot.query.plan.expressions import columns_of, has_aggregate, replace, walk
from merlot.query.plan.rewrite import rewrite
from merlot.query.shortcuts.one_row import PlainAggregation, plain_aggregation
from merlot.tree.nodes import Aggregate, BoundQuery, Column, Expr, Literal, OrderKey, Output
from merlot.tree.types import LONG, SqlType
from merlot.vectors.errors import UnsupportedQueryError
from merlot.vectors.vector import arrow_type

SKIP_OPTION: Final = "skipSegmentPruning"


class PlanKind(Enum):
    """Three shapes of a partial answer."""

    SELECTION = "SELECTION"
    """Rows."""
    AGGREGATION = "AGGREGATION"
    """One row of states."""
    GROUP_BY = "GROUP_BY"
    """Keys and states; also DISTINCT, which has no aggregates."""


@dataclass(frozen=True, kw_only=True)
class LogicalPlan:
    """A query over slots. Plans are kept and used again: what follows from one is worked out once."""

    kind: PlanKind
    filter: Expr | None
    keys: tuple[Expr, ...] = ()
    """Group keys over the table's columns; slots k0, k1, …"""
    aggregates: tuple[Aggregate, ...] = ()
    """Distinct aggregates over the table's columns; slots a0, a1, …"""
    columns: tuple[Expr, ...] = ()
    """Selected expressions over the table's columns, order keys included; slots c0, c1, …"""
    outputs: tuple[Output, ...]
    having: Expr | None = None
    order_by: tuple[OrderKey, ...] = ()
    limit: int
    offset: int
    is_distinct_after: bool = False
    """SELECT DISTINCT over the groups of a GROUP BY: equal answers are one."""
    null_handling: bool = False
    skips_pruning: bool = False
    """`skipSegmentPruning=true`: every segment is to be looked at, to compare, or to suspect pruning of an answer."""

    @property
    def rows_needed(self) -> int:
        """How many of the first rows decide the answer; a negative limit means all."""
        return (1 << 62) if self.limit < 0 else self.limit + self.offset

    @cached_property
    def slots(self) -> tuple[Expr, ...]:
        """What outputs and order keys call the selected expressions."""
        return tuple(Column(f"c{number}", expr.type) for number, expr in enumerate(self.columns))

    @cached_property
    def columns_after_filter(self) -> frozenset[str]:
        """Columns of the table that are read for docs that the filter kept."""
        exprs = [*self.keys, *self.columns, *(arg for one in self.aggregates for arg in one.args)]
        return frozenset().union(*(columns_of(expr) for expr in exprs))

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
    def plain(self) -> PlainAggregation | None:
        """The plan as counts and sums of plain columns, if that is all it is."""
        return plain_aggregation(self) if self.kind is PlanKind.AGGREGATION else None

    @cached_property
    def partial_schema(self) -> pa.Schema:
        """Columns of a partial answer. Raises UnsupportedQueryError."""
        if self.kind is PlanKind.SELECTION:
            return pa.schema([(f"c{number}", arrow_type(expr.type)) for number, expr in enumerate(self.columns)])
        fields = [(f"k{number}", arrow_type(SqlType(key.type.base))) for number, key in enumerate(self.keys)]
        for number, one in enumerate(self.aggregations):
            fields += [(f"a{number}.{state.suffix}", state.type) for state in one.fields]
        return pa.schema(fields)


def plan(query: BoundQuery) -> LogicalPlan:
    """The plan of a bound query; deterministic. Raises UnsupportedQueryError."""
    query = rewrite(query)
    exprs = [output.expr for output in query.select] + [key.expr for key in query.order_by]
    if query.having is not None:
        exprs.append(query.having)
    if query.group_by or any(map(has_aggregate, exprs)):
        return _grouped(query, query.group_by)
    if query.distinct:
        return _grouped(query, tuple(dict.fromkeys(output.expr for output in query.select)))
    return _selection(query)


def refilter(template: LogicalPlan, where: Expr | None) -> LogicalPlan:
    """The plan of a query that differs from the template's in WHERE alone.

    It shares what was worked out from the template: none of that depends on WHERE."""
    for name in _WORKED_OUT:
        getattr(template, name)
    made = object.__new__(LogicalPlan)
    made.__dict__.update(template.__dict__)
    made.__dict__["filter"] = where
    return made


_ROWS: Final = Aggregate("count", (), LONG)
_WORKED_OUT: Final = ("columns_after_filter", "aggregations", "partial_schema", "plain")


def _selection(query: BoundQuery) -> LogicalPlan:
    exprs = [output.expr for output in query.select] + [key.expr for key in query.order_by]
    columns = tuple(dict.fromkeys(exprs))
    for key in query.order_by:
        if key.expr.type.is_array:
            raise UnsupportedQueryError("cannot order rows by a multi-value column")
    slots = {expr: Column(f"c{number}", expr.type) for number, expr in enumerate(columns)}
    return LogicalPlan(
        kind=PlanKind.SELECTION,
        filter=query.where,
        columns=columns,
        outputs=tuple(Output(output.label, slots[output.expr]) for output in query.select),
        order_by=tuple(OrderKey(slots[key.expr], key.ascending, key.nulls_last) for key in query.order_by),
        limit=query.limit,
        offset=query.offset,
        null_handling=query.null_handling,
        skips_pruning=(query.option(SKIP_OPTION) or "").lower() == "true",
    )


def _grouped(query: BoundQuery, group_by: tuple[Expr, ...]) -> LogicalPlan:
    keys = tuple(dict.fromkeys(key for key in group_by if not isinstance(key, Literal)))
    slots: dict[Expr, Expr] = {key: Column(f"k{number}", SqlType(key.type.base)) for number, key in enumerate(keys)}
    aggregates: dict[Aggregate, Column] = {}
    known: set[Expr] = set(slots.values())

    def to_slot(expr: Expr) -> Expr | None:
        if expr in slots:
            return slots[expr]
        if isinstance(expr, Aggregate):
            slot = aggregates.setdefault(expr, Column(f"a{len(aggregates)}", expr.type))
            known.add(slot)
            return slot
        return None

    def rewritten(expr: Expr) -> Expr:
        result = replace(expr, to_slot)
        for node in walk(result):
            if isinstance(node, Column) and node not in known:
                raise UnsupportedQueryError(f"column is neither grouped nor aggregated column={node.name}")
        return result

    outputs = tuple(Output(output.label, rewritten(output.expr)) for output in query.select)
    having = None if query.having is None else rewritten(query.having)
    order_by = tuple(OrderKey(rewritten(key.expr), key.ascending, key.nulls_last) for key in query.order_by)
    kind = PlanKind.GROUP_BY if keys or query.group_by or not aggregates else PlanKind.AGGREGATION
    is_distinct_after = query.distinct and bool(query.group_by or aggregates)
    if not keys and not aggregates:
        # Keys that are all constants make one group if there is a row; a table without columns cannot tell.
        to_slot(_ROWS)
    return LogicalPlan(
        kind=kind,
        filter=query.where,
        keys=keys,
        aggregates=tuple(aggregates),
        outputs=outputs,
        having=having,
        order_by=order_by,
        limit=query.limit,
        offset=query.offset,
        is_distinct_after=is_distinct_after,
        null_handling=query.null_handling,
        skips_pruning=(query.option(SKIP_OPTION) or "").lower() == "true",
    )
