"""Functions that change the expressions of a statement of several stages, wherever they occur. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from merlot.query.plan.expressions import has_aggregate
from merlot.tree.nodes import Aggregate, Call, Expr, OrderKey, Output
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    Query,
    Relation,
    SetOperation,
    Slot,
    Source,
    Statement,
    Subquery,
    Unnest,
)

Change = Callable[[Expr], Expr]


def is_grouped(block: Block) -> bool:
    """Return True if a block's rows are groups: it has GROUP BY or aggregates."""
    return bool(block.group_by or block.grouping_sets) or any(map(has_aggregate, block.exprs))


def substituted(expr: Expr, substitute: Callable[[Expr], Expr | None]) -> Expr:
    """Return a copy of an expression in which `substitute` replaces nodes, from the top down.

    If it returns an expression for a node, this replaces the node and all below it. If it returns None, the node stays,
    and its arguments follow, as does the filter of an aggregate."""
    replacement = substitute(expr)
    if replacement is not None:
        return replacement
    if isinstance(expr, Call):
        args = tuple(substituted(arg, substitute) for arg in expr.args)
        return expr if args == expr.args else replace(expr, args=args)
    if isinstance(expr, Aggregate):
        args = tuple(substituted(arg, substitute) for arg in expr.args)
        condition = None if expr.filter is None else substituted(expr.filter, substitute)
        return replace(expr, args=args, filter=condition)
    return expr


def map_statement(statement: Statement, change: Change) -> Statement:
    """Return a statement with each of its expressions changed."""
    common = tuple((id_, map_query(query, change)) for id_, query in statement.common)
    return replace(statement, query=map_query(statement.query, change), common=common)


def map_query(query: Query, change: Change) -> Query:
    """Return a query with each of its expressions changed, those of subqueries included."""
    if isinstance(query, SetOperation):
        return replace(query, left=map_query(query.left, change), right=map_query(query.right, change))
    block = map_block(query, change)
    block = map_inner(block, lambda inner: map_query(inner, change))
    return replace(block, source=map_conditions(block.source, change))


def map_inner(block: Block, change: Callable[[Query], Query]) -> Block:
    """Return a block with its subqueries in FROM and in expressions changed; the block itself if none changes."""

    def changed_slot(slot: Slot) -> Slot:
        if not isinstance(slot, Subquery):
            return slot
        query = change(slot.query)
        return slot if query is slot.query else replace(slot, query=query)

    source = None if block.source is None else map_derived(block.source, change)
    slots = {name: changed_slot(slot) for name, slot in block.slots.items()}
    is_same = source is block.source and all(slots[name] is slot for name, slot in block.slots.items())
    return block if is_same else replace(block, source=source, slots=slots)


def map_derived(relation: Relation, change: Callable[[Query], Query]) -> Relation:
    """Return a FROM with its subqueries changed; the relation itself if none changes."""

    def changed_source(source: Source) -> Source:
        if not isinstance(source, DerivedTable):
            return source
        query = change(source.query)
        return source if query is source.query else replace(source, query=query)

    return map_sources(relation, changed_source)


def map_sources(relation: Relation, change: Callable[[Source], Source]) -> Relation:
    """Return a FROM with its relations other than joins changed; the relation itself if none changes."""
    if not isinstance(relation, Join):
        return change(relation)
    left, right = map_sources(relation.left, change), map_sources(relation.right, change)
    is_same = left is relation.left and right is relation.right
    return relation if is_same else replace(relation, left=left, right=right)


def map_conditions(relation: Relation | None, change: Change) -> Relation | None:
    """Return a FROM with the conditions of its joins and the lists of UNNEST changed; its subqueries stay."""
    if isinstance(relation, Unnest):
        return replace(relation, lists=tuple(map(change, relation.lists)))
    if not isinstance(relation, Join):
        return relation
    left, right = map_conditions(relation.left, change), map_conditions(relation.right, change)
    assert left is not None
    assert right is not None
    return replace(
        relation, left=left, right=right, condition=None if relation.condition is None else change(relation.condition)
    )


def map_block(block: Block, change: Change) -> Block:
    """Return a block with each of its expressions changed, except those in FROM and inside subqueries."""

    def changed_keys(order_by: tuple[OrderKey, ...]) -> tuple[OrderKey, ...]:
        return tuple(replace(key, expr=change(key.expr)) for key in order_by)

    def changed_slot(slot: Slot) -> Slot:
        if isinstance(slot, Subquery):
            return replace(slot, operands=tuple(map(change, slot.operands)))
        return replace(
            slot,
            args=tuple(map(change, slot.args)),
            partition_by=tuple(map(change, slot.partition_by)),
            order_by=changed_keys(slot.order_by),
            filter=None if slot.filter is None else change(slot.filter),
        )

    def changed_or_none(expr: Expr | None) -> Expr | None:
        return None if expr is None else change(expr)

    return replace(
        block,
        outputs=tuple(Output(output.label, change(output.expr)) for output in block.outputs),
        where=changed_or_none(block.where),
        group_by=tuple(map(change, block.group_by)),
        having=changed_or_none(block.having),
        qualify=changed_or_none(block.qualify),
        order_by=changed_keys(block.order_by),
        slots={name: changed_slot(slot) for name, slot in block.slots.items()},
    )
