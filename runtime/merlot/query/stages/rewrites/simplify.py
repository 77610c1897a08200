"""Drop parts that change nothing: conditions that hold for all rows, sides without rows, orders that nothing observes.
Pure.
"""

from __future__ import annotations

from dataclasses import replace

from merlot.query.plan.expressions import has_aggregate
from merlot.query.stages.conjuncts import all_of, conjuncts
from merlot.query.stages.replacing import Replacing, UnsoundError
from merlot.query.stages.rewrites.walks import is_limited, map_queries
from merlot.query.stages.rewriting import is_grouped
from merlot.tree.nodes import TRUE, Expr, Literal, Output
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    Query,
    Relation,
    SetKind,
    SetOperation,
    Statement,
    Subquery,
    SubqueryKind,
)


def simplify(statement: Statement) -> Statement:
    """Rewrite `SELECT a FROM t WHERE TRUE UNION ALL SELECT b FROM u WHERE FALSE` as `SELECT a FROM t`."""
    return map_queries(statement, lambda query: _block(query) if isinstance(query, Block) else _set_operation(query))


def _block(block: Block) -> Block:
    made = _without_truths(block)
    made = _without_distinct(made)
    source = None if made.source is None else _without_orders(made.source, is_seen=_shows_order(made))
    if source is not made.source:
        made = replace(made, source=source)
    slots = {
        name: replace(slot, query=_without_order(slot.query))
        if isinstance(slot, Subquery) and slot.kind is not SubqueryKind.SCALAR
        else slot
        for name, slot in made.slots.items()
    }
    is_changed = any(
        isinstance(slot, Subquery) and isinstance(old := made.slots[name], Subquery) and slot.query is not old.query
        for name, slot in slots.items()
    )
    return replace(made, slots=slots) if is_changed else made


def _without_truths(block: Block) -> Block:
    """Drop conditions that always hold, and keep only one that never holds if there is one."""
    where, having = _simple(block.where), _simple(block.having)
    if where is block.where and having is block.having:
        return block
    return (
        replace(block, where=where, having=having)
        if is_grouped(replace(block, having=having))
        else replace(block, where=where)
    )


def _simple(condition: Expr | None) -> Expr | None:
    parts = conjuncts(condition)
    never = next((part for part in parts if _never_holds(part)), None)
    if never is not None:
        return condition if len(parts) == 1 else never
    remaining = [part for part in parts if part != TRUE]
    return condition if len(remaining) == len(parts) else all_of(remaining)


def _never_holds(part: Expr) -> bool:
    return isinstance(part, Literal) and part.value in (False, None)


def _without_distinct(block: Block) -> Block:
    """Drop DISTINCT of groups whose keys are all selected."""
    if not block.is_distinct or not block.group_by or block.grouping_sets:
        return block
    keys = {key for key in block.group_by if not isinstance(key, Literal)}
    return replace(block, is_distinct=False) if keys <= {output.expr for output in block.outputs} else block


def _shows_order(block: Block) -> bool:
    """Return whether rows come in the order of a subquery, or an aggregate may depend on it."""
    if is_grouped(block):
        return any(has_aggregate(expr) for expr in block.exprs)
    return not (block.is_distinct or block.order_by)


def _without_orders(relation: Relation, *, is_seen: bool) -> Relation:
    if isinstance(relation, Join):
        left = _without_orders(relation.left, is_seen=False)
        right = _without_orders(relation.right, is_seen=False)
        is_same = left is relation.left and right is relation.right
        return relation if is_same else replace(relation, left=left, right=right)
    if is_seen or not isinstance(relation, DerivedTable):
        return relation
    query = _without_order(relation.query)
    return relation if query is relation.query else replace(relation, query=query)


def _without_order(query: Query) -> Query:
    return replace(query, order_by=()) if query.order_by and not is_limited(query) else query


def _set_operation(query: SetOperation) -> Query:
    left, right = _without_order(query.left), _without_order(query.right)
    if left is not query.left or right is not query.right:
        query = replace(query, left=left, right=right)
    if query.kind is not SetKind.UNION or not query.is_all:
        return query
    for empty, other in ((query.left, query.right), (query.right, query.left)):
        if _is_empty(empty):
            return _alone(query, other)
    return query


def _is_empty(query: Query) -> bool:
    if query.limit == 0:
        return True
    if isinstance(query, SetOperation):
        return False
    is_whole = is_grouped(query) and not query.group_by
    has_rows = is_whole or bool(query.grouping_sets)
    return not has_rows and any(map(_never_holds, conjuncts(query.where)))


def _alone(query: SetOperation, side: Query) -> Query:
    """Return one side in place of both, with the labels, the order and the LIMIT of the set operation."""
    if is_limited(side) and (query.order_by or is_limited(query)):
        return query
    outputs = tuple(Output(label.label, output.expr) for label, output in zip(query.outputs, side.outputs, strict=True))
    try:
        over = Replacing({f"c{place}": output.expr for place, output in enumerate(side.outputs)})
        order_by = tuple(replace(key, expr=over(key.expr)) for key in query.order_by)
    except UnsoundError:
        return query
    if is_limited(side):
        return replace(side, outputs=outputs)
    return replace(side, outputs=outputs, order_by=order_by, limit=query.limit, offset=query.offset)
