"""Walk over the queries of a statement, and change them from the inside out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from merlot.query.stages.rewriting import is_grouped, map_inner
from merlot.tree.nodes import Column, Expr
from merlot.tree.relations import (
    Block,
    Query,
    SetOperation,
    Statement,
    Window,
    columns_in,
    conditions_in,
    queries_in,
)

Change = Callable[[Query], Query]


def map_queries(statement: Statement, change: Change) -> Statement:
    """Change each query after the queries inside it. Return the statement itself if `change` changes none."""
    common = tuple((id_, _mapped(query, change)) for id_, query in statement.common)
    query = _mapped(statement.query, change)
    is_same = query is statement.query and all(a[1] is b[1] for a, b in zip(common, statement.common, strict=True))
    return statement if is_same else replace(statement, query=query, common=common)


def _mapped(query: Query, change: Change) -> Query:
    if isinstance(query, SetOperation):
        left, right = _mapped(query.left, change), _mapped(query.right, change)
        is_same = left is query.left and right is query.right
        return change(query if is_same else replace(query, left=left, right=right))
    return change(map_inner(query, lambda inner: _mapped(inner, change)))


def blocks_of(query: Query) -> Iterator[Block]:
    """List every SELECT of a query, those of its subqueries included."""
    return (block for block in queries_in(Statement(query=query)) if isinstance(block, Block))


def exprs_of(query: Query) -> Iterator[Expr]:
    """List every expression of a query, those of its subqueries included."""
    for block in blocks_of(query):
        yield from block.exprs
        yield from conditions_in(block.source)


def reads(query: Query) -> Counter[str]:
    """Count how often each column is read in a query, its subqueries included."""
    return Counter(column.name for expr in exprs_of(query) for column in columns_in(expr))


def position_of(name: str, relation: str) -> int | None:
    """Return the position of a column of a subquery; None if the column is not of that relation."""
    owner, _, column = name.partition(".c")
    return int(column) if owner == relation and column.isdigit() else None


def has_windows(block: Block) -> bool:
    """Return whether a SELECT has a function OVER a window."""
    return any(isinstance(slot, Window) for slot in block.slots.values())


def is_limited(query: Query) -> bool:
    """Return whether a query has LIMIT or OFFSET."""
    return query.limit is not None or bool(query.offset)


def is_plain(block: Block) -> bool:
    """Return whether a SELECT returns a row for each row of its FROM that meets its WHERE."""
    is_filter = not (block.is_distinct or block.qualify is not None or is_limited(block) or has_windows(block))
    return is_filter and not is_grouped(block)


def slot_columns(expr: Expr) -> Iterator[Column]:
    """List the windows and subqueries that an expression reads."""
    return (column for column in columns_in(expr) if "." not in column.name)
