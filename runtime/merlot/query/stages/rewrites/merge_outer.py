"""Merge a SELECT that only filters, orders and picks columns into the one query that it reads. Pure."""

from __future__ import annotations

from dataclasses import replace

from merlot.query.stages.conjuncts import all_of, conjuncts
from merlot.query.stages.failures import may_fail
from merlot.query.stages.replacing import Replacing, UnsoundError
from merlot.query.stages.rewrites.walks import has_windows, is_limited, map_queries
from merlot.query.stages.rewriting import is_grouped
from merlot.tree.nodes import Column, Expr, OrderKey, Output
from merlot.tree.relations import Block, DerivedTable, Query, SetOperation, Statement, is_correlated


def merge_outer(statement: Statement) -> Statement:
    """Rewrite `SELECT … FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) AS v WHERE n > 1` as a SELECT with HAVING."""
    return map_queries(statement, lambda query: _merged(query) if isinstance(query, Block) else query)


def _merged(outer: Block) -> Query:
    source = outer.source
    is_bare = not (outer.slots or outer.is_distinct or outer.qualify is not None or is_grouped(outer))
    if not isinstance(source, DerivedTable) or not is_bare or is_correlated(source.query):
        return outer
    if is_limited(source.query) and (outer.where is not None or outer.order_by):
        return outer
    columns = {f"{source.id}.c{position}": output.expr for position, output in enumerate(source.query.outputs)}
    try:
        if isinstance(source.query, SetOperation):
            return _renamed(outer, source.query, source.id)
        return _merged_into(outer, source.query, Replacing(columns, source.query.group_by))
    except UnsoundError:
        return outer


def _merged_into(outer: Block, inner: Block, replacing: Replacing) -> Query:
    has_filter = outer.where is not None
    if has_filter and (has_windows(inner) or not is_grouped(inner)):
        return outer
    parts = conjuncts(outer.where)
    if any(map(may_fail, parts)):
        return outer
    outputs = tuple(Output(output.label, replacing(output.expr)) for output in outer.outputs)
    order_by = _keys(outer.order_by, replacing) or inner.order_by
    if inner.is_distinct and not _has_same_columns(outputs, order_by, inner):
        return outer
    offset, limit = _limits(outer, inner)
    merged = replace(
        inner,
        outputs=outputs,
        having=all_of([*conjuncts(inner.having), *map(replacing, parts)]),
        order_by=order_by,
        limit=limit,
        offset=offset,
    )
    return merged if is_grouped(merged) == is_grouped(inner) else outer


def _keys(order_by: tuple[OrderKey, ...], replacing: Replacing) -> tuple[OrderKey, ...]:
    return tuple(replace(key, expr=replacing(key.expr)) for key in order_by)


def _has_same_columns(outputs: tuple[Output, ...], order_by: tuple[OrderKey, ...], inner: Block) -> bool:
    """Return whether the columns are those of the distinct rows, in any order, and the rows are ordered by them
    alone."""
    selected = {output.expr for output in outputs}
    return selected == {output.expr for output in inner.outputs} and selected.issuperset(key.expr for key in order_by)


def _renamed(outer: Block, inner: SetOperation, id_: str) -> Query:
    """Return the set operation with the labels, order and limits of `outer`; `outer` itself if it does more."""
    expected = [f"{id_}.c{position}" for position in range(len(inner.outputs))]
    names = [output.expr.name if isinstance(output.expr, Column) else "" for output in outer.outputs]
    keys = [key.expr for key in outer.order_by]
    if names != expected or outer.where is not None or not all(isinstance(key, Column) for key in keys):
        return outer
    replacing = Replacing({f"{id_}.c{position}": output.expr for position, output in enumerate(inner.outputs)})
    offset, limit = _limits(outer, inner)
    return replace(
        inner,
        outputs=tuple(Output(output.label, _as_column(replacing(output.expr))) for output in outer.outputs),
        order_by=_keys(outer.order_by, replacing) or inner.order_by,
        limit=limit,
        offset=offset,
    )


def _as_column(expr: Expr) -> Expr:
    assert isinstance(expr, Column)
    return expr


def _limits(outer: Block, inner: Query) -> tuple[int, int | None]:
    """Return the one OFFSET and LIMIT that equal the inner query's followed by the outer one's."""
    left = None if inner.limit is None else max(0, inner.limit - outer.offset)
    limits = [limit for limit in (left, outer.limit) if limit is not None]
    return inner.offset + outer.offset, min(limits, default=None)
