"""Push LIMIT to both sides of UNION ALL, and to subqueries under a projection. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from merlot.query.stages.replacing import Replacing, UnsoundError
from merlot.query.stages.rewrites.walks import is_limited, is_plain, map_queries
from merlot.tree.nodes import Column, Expr, OrderKey
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Query,
    SetKind,
    SetOperation,
    Statement,
    columns_in,
    is_correlated,
)


def push_limits(statement: Statement) -> Statement:
    """Rewrite `SELECT a FROM t UNION ALL SELECT b FROM u ORDER BY 1 LIMIT 9` to read the first nine rows of t and of
    u."""
    return map_queries(statement, _pushed)


def _pushed(query: Query) -> Query:
    if query.limit is None:
        return query
    return _into_sides(query) if isinstance(query, SetOperation) else _below_projection(query)


def _into_sides(query: SetOperation) -> Query:
    if query.kind is not SetKind.UNION or not query.is_all:
        return query
    left, right = (_first_rows(side, query) for side in (query.left, query.right))
    if left is query.left and right is query.right:
        return query
    return replace(query, left=left, right=right)


def _first_rows(side: Query, query: SetOperation) -> Query:
    """Return the rows of a side that may be among the first rows of both."""
    if is_limited(side):
        return side
    outputs: Mapping[str, Expr] = {f"c{place}": output.expr for place, output in enumerate(side.outputs)}
    return _limited(side, query, outputs)


def _below_projection(block: Block) -> Query:
    """Push the LIMIT of `SELECT a + 1 FROM (q) AS v LIMIT 9`, which needs nine rows of q, into q."""
    source = block.source
    if not isinstance(source, DerivedTable) or is_limited(source.query) or is_correlated(source.query):
        return block
    if block.where is not None or block.slots or not is_plain(replace(block, limit=None, offset=0)):
        return block
    outputs = {f"{source.id}.c{place}": output.expr for place, output in enumerate(source.query.outputs)}
    made = _limited(source.query, block, outputs)
    return block if made is source.query else replace(block, source=replace(source, query=made))


def _limited(query: Query, outer: Query, outputs: Mapping[str, Expr]) -> Query:
    """Return the query limited to its first rows in the order of the outer query, as far as that one is limited."""
    assert outer.limit is not None
    keys = [key.expr for key in outer.order_by]
    if not all(isinstance(key, Column) and key.name in outputs for key in keys):
        return query
    try:
        over = Replacing(outputs)
        order_by = tuple(OrderKey(over(key.expr), key.ascending, key.nulls_last) for key in outer.order_by)
    except UnsoundError:
        return query
    if isinstance(query, Block) and any("." not in column.name for key in order_by for column in columns_in(key.expr)):
        return query
    return replace(query, order_by=order_by or query.order_by, limit=outer.limit + outer.offset)
