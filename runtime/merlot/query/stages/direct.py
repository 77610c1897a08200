"""Single-stage form of a statement that is one SELECT over one table.

Types, labels and NULL over no values stay those of several stages: sums of whole numbers are LONG, extremes keep their
type. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from merlot.query.plan.expressions import replace as rewrite_expr
from merlot.query.stages.conjuncts import all_of, conjuncts
from merlot.query.stages.groupings import Grouping, aggregates_in, is_leaf_aggregate, of_table
from merlot.query.stages.replacing import is_null_bit
from merlot.query.stages.rewriting import is_grouped, substituted
from merlot.tree.literals import INT_MAX
from merlot.tree.nodes import TRUE, Aggregate, BoundQuery, Call, Column, Expr, Literal, OrderKey, Output
from merlot.tree.relations import Block, Scan, Statement, columns_in, source_id
from merlot.tree.types import BOOLEAN
from merlot.values.types import TypeName

DIRECT = "AnswerDirectly"
"""Name of this rewriting among the rules."""


def direct_query(statement: Statement) -> tuple[Scan, BoundQuery] | None:
    """Return the table and its query; None if the statement needs the engine."""
    block = statement.query
    if not isinstance(block, Block) or not isinstance(block.source, Scan) or statement.common:
        return None
    if block.slots or block.grouping_sets or block.qualify is not None:
        return None
    if any(_has_untyped_null(expr) for expr in block.exprs if expr is not block.where):
        return None
    scan = block.source
    if any(source_id(column) != scan.id for expr in block.exprs for column in columns_in(expr)):
        return None
    aggregates = aggregates_in(block)
    if not all(map(is_leaf_aggregate, aggregates)):
        return None
    over = _over_groups(block, scan, aggregates, nulls=statement.null_handling) if is_grouped(block) else of_table
    limit = INT_MAX if block.limit is None else block.limit
    query = BoundQuery(
        scan.table,
        tuple(Output(output.label, over(output.expr)) for output in block.outputs),
        distinct=block.is_distinct,
        where=all_of([of_table(part) for part in conjuncts(block.where)]),
        group_by=tuple(of_table(key) for key in block.group_by),
        having=None if block.having is None else over(block.having),
        order_by=tuple(_keys(block, over)),
        limit=max(0, min(limit, INT_MAX - block.offset)),
        offset=block.offset,
        options=statement.options,
        explain=statement.explain,
    )
    return scan, query


def _over_groups(block: Block, scan: Scan, aggregates: list[Aggregate], *, nulls: bool) -> _OverGroups:
    keys = tuple(key for key in block.group_by if not isinstance(key, Literal))
    grouping = Grouping(scan.id, keys, nulls=nulls, is_whole=not block.group_by)
    for aggregate in aggregates:
        grouping.add(aggregate)
    return _OverGroups(scan.id, grouping)


class _OverGroups:
    """Rewriter of expressions over groups: their aggregates become single-stage aggregates with the same values."""

    def __init__(self, scan: str, grouping: Grouping) -> None:
        self._slots = grouping.slots
        self._outputs: dict[str, Expr] = {f"{scan}.c{at}": output.expr for at, output in enumerate(grouping.outputs)}

    def __call__(self, expr: Expr) -> Expr:
        above = rewrite_expr(expr, self._slots.get)
        return substituted(above, self._of_one_stage)

    def _of_one_stage(self, expr: Expr) -> Expr | None:
        if isinstance(expr, Column):
            computed = self._outputs[expr.name]
            return computed if computed.type == expr.type else Call("cast", (computed,), expr.type)
        if not is_null_bit(expr):
            return None
        assert isinstance(expr, Call)
        bit = self(expr.args[0])
        is_present = Call("is_not_null", (bit,), BOOLEAN)
        return Call("equals", (Call("case", (is_present, bit, TRUE), BOOLEAN), TRUE), BOOLEAN)


def _keys(block: Block, over: Callable[[Expr], Expr]) -> Iterator[OrderKey]:
    """Yield the keys of ORDER BY without constants."""
    for key in block.order_by:
        if not isinstance(key.expr, Literal):
            yield OrderKey(over(key.expr), key.ascending, key.nulls_last)


def _has_untyped_null(expr: Expr) -> bool:
    """Return whether an expression contains a NULL without a type, which servers do not evaluate."""
    if expr.type.base is TypeName.UNKNOWN:
        return True
    return isinstance(expr, Call | Aggregate) and any(map(_has_untyped_null, expr.args))
