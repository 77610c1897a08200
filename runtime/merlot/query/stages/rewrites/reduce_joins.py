"""Turn outer joins whose made-up rows a condition drops into inner joins, or into joins that keep one side. Pure.

A join that keeps unmatched rows makes NULLs for the other side. A condition above that is never true of these NULLs
drops such rows, as `b.x = 1` does for `a LEFT JOIN b`: it is an inner join then, and the condition reaches b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from merlot.functions.registry import BY_NAME
from merlot.query.stages.conjuncts import conjuncts
from merlot.query.stages.replacing import OF_FIRST, is_null_bit
from merlot.query.stages.rewrites.walks import map_queries
from merlot.tree.nodes import Call, Column, Expr
from merlot.tree.relations import Block, Join, JoinKind, Query, Relation, Statement, relations_in, source_id

_WITHOUT_MADE_UP_RIGHT: Final = {JoinKind.LEFT: JoinKind.INNER, JoinKind.FULL: JoinKind.RIGHT}
"""Joins without the rows that have NULLs for the right side."""
_WITHOUT_MADE_UP_LEFT: Final = {JoinKind.RIGHT: JoinKind.INNER, JoinKind.FULL: JoinKind.LEFT}
_LEFT_IS_REAL: Final = frozenset({JoinKind.INNER, JoinKind.CROSS, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI})
_RIGHT_IS_REAL: Final = frozenset({JoinKind.INNER, JoinKind.CROSS, JoinKind.RIGHT})
_ON_DROPS_LEFT: Final = frozenset({JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI})
_ON_DROPS_RIGHT: Final = frozenset({JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI})


def reduce_joins(statement: Statement) -> Statement:
    """Join `a LEFT JOIN b ON … WHERE b.x = 1` as `a INNER JOIN b ON … WHERE b.x = 1`."""
    return map_queries(statement, _query)


def _query(query: Query) -> Query:
    if not isinstance(query, Block) or query.source is None:
        return query
    source = _reduced(query.source, conjuncts(query.where))
    return query if source is query.source else replace(query, source=source)


def _reduced(relation: Relation, parts: Sequence[Expr]) -> Relation:
    """Return a FROM of which only rows matter for which all of `parts` are true; the relation itself if nothing
    changes."""
    if not isinstance(relation, Join):
        return relation
    kind = _kind(relation, parts)
    on = conjuncts(relation.condition)
    left = _reduced(relation.left, [*(parts if kind in _LEFT_IS_REAL else ()), *(on if kind in _ON_DROPS_LEFT else ())])
    right = _reduced(
        relation.right, [*(parts if kind in _RIGHT_IS_REAL else ()), *(on if kind in _ON_DROPS_RIGHT else ())]
    )
    if kind is relation.kind and left is relation.left and right is relation.right:
        return relation
    return replace(relation, kind=kind, left=left, right=right)


def _kind(join: Join, parts: Sequence[Expr]) -> JoinKind:
    kind = join.kind
    if kind in _WITHOUT_MADE_UP_RIGHT and _is_any_false(parts, join.right):
        kind = _WITHOUT_MADE_UP_RIGHT[kind]
    if kind in _WITHOUT_MADE_UP_LEFT and _is_any_false(parts, join.left):
        kind = _WITHOUT_MADE_UP_LEFT[kind]
    return kind


def _is_any_false(parts: Sequence[Expr], side: Relation) -> bool:
    """Return whether one of these conditions is not true where all columns of a join's side are NULL."""
    ids = frozenset(relation.id for relation in relations_in(side))
    return any(_is_false(part, ids) for part in parts)


def _is_false(part: Expr, ids: frozenset[str]) -> bool:
    if not isinstance(part, Call):
        return False
    if part.function in ("and", "or"):
        return (any if part.function == "and" else all)(_is_false(arg, ids) for arg in part.args)
    if part.function == "is_not_null":
        return _is_null(part.args[0], ids)
    if part.function == "not" and is_null_bit(part.args[0]):
        bit = part.args[0]
        assert isinstance(bit, Call)
        return _is_null(bit.args[0], ids)
    return _is_null(part, ids)


def _is_null(expr: Expr, ids: frozenset[str]) -> bool:
    """Return whether an expression is NULL where all columns of these relations are."""
    if isinstance(expr, Column):
        return source_id(expr) in ids and not expr.type.is_array
    if not isinstance(expr, Call):
        return False
    if expr.function in OF_FIRST:
        return _is_null(expr.args[0], ids)
    function = BY_NAME.get(expr.function)
    is_strict = function is not None and function.lazy is None and not function.sees_nulls
    return (is_strict or expr.function == "cast") and any(_is_null(arg, ids) for arg in expr.args)
