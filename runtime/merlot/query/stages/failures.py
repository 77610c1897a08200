"""Expressions that may fail, and the relations whose rows the engine must make before it computes them. Pure.

The engine applies conditions in any order, and moves them into subqueries, past the filters there.
"""

from __future__ import annotations

from collections.abc import Mapping

from merlot.query.stages.conjuncts import conjuncts, only_source
from merlot.query.stages.zeros import UNSIGNED_ZERO
from merlot.tree.literals import INT_MIN, LONG_MAX
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.tree.relations import (
    GROUPING,
    Block,
    DerivedTable,
    Named,
    Query,
    Scan,
    SetOperation,
    columns_in,
    conditions_in,
    is_correlated,
    relations_in,
    source_id,
    source_position,
)
from merlot.tree.types import DOUBLE, INT, LONG
from merlot.values.types import TypeName

COMPARISONS = {
    "equals": "=",
    "not_equals": "<>",
    "less_than": "<",
    "less_than_or_equal": "<=",
    "greater_than": ">",
    "greater_than_or_equal": ">=",
}
ARITHMETIC = {"plus": "+", "minus": "-", "times": "*"}
RANKS = {
    TypeName.INT: 0,
    TypeName.TIMESTAMP: 1,
    TypeName.LONG: 1,
    TypeName.BIG_DECIMAL: 2,
    TypeName.FLOAT: 3,
    TypeName.DOUBLE: 4,
}
"""Ranks of number types. A cast to a type of a higher rank is lossless, or is done as we do it."""
_SAFE = frozenset(
    {
        *COMPARISONS,
        GROUPING,
        "and",
        "or",
        "not",
        "between",
        "in",
        "not_in",
        "is_null",
        "is_not_null",
        "case",
        "coalesce",
        UNSIGNED_ZERO,
    }
)


def may_fail(expr: Expr) -> bool:
    """Return whether an expression may fail for a row, by an overflow or in one of our functions."""
    if not isinstance(expr, Call):
        return False
    is_safe = expr.function in _SAFE or (expr.function in ARITHMETIC and expr.type == DOUBLE) or _is_small(expr)
    is_widened = expr.function == "cast" and RANKS.get(expr.args[0].type.base, 9) <= RANKS.get(expr.type.base, -1)
    return not (is_safe or is_widened) or any(map(may_fail, expr.args))


def _is_small(call: Call) -> bool:
    """Return whether arithmetic has whole numbers so small that the result always fits a LONG."""
    most = _most(call) if call.function in ARITHMETIC else None
    return most is not None and most <= LONG_MAX


def _most(expr: Expr) -> int | None:
    """Return an upper bound of a whole number's magnitude; None if none is known."""
    if isinstance(expr, Literal):
        return abs(expr.value) if isinstance(expr.value, int) else None
    if isinstance(expr, Call) and expr.function in ARITHMETIC and expr.type == LONG:
        left, right = map(_most, expr.args)
        if left is None or right is None:
            return None
        return left * right if expr.function == "times" else left + right
    return -INT_MIN if expr.type == INT else None


def is_join_of_keys(part: Expr) -> bool:
    """Return whether a condition equates expressions of two relations, as the keys of a hash join."""
    if not isinstance(part, Call) or part.function != "equals":
        return False
    sources = [only_source(side) for side in part.args]
    return None not in sources and sources[0] != sources[1]


def fenced(block: Block, common: Mapping[str, Query]) -> frozenset[str]:
    """Return the relations of a FROM whose rows must be made before conditions over them are computed that may fail."""
    queries = {
        relation.id: relation.query if isinstance(relation, DerivedTable) else common[relation.common]
        for relation in relations_in(block.source)
        if isinstance(relation, DerivedTable | Named)
    }
    sources: set[str] = set()
    if not queries:
        return frozenset()
    for condition in (block.where, block.having, block.qualify, *conditions_in(block.source)):
        for part in conjuncts(condition):
            columns = [column for column in columns_in(part) if source_id(column) in queries]
            if may_fail(part) or any(_may_fail_in(queries, column, common) for column in columns):
                sources.update(map(source_id, columns))
    return frozenset(id_ for id_ in sources if not _keeps_all_rows(queries[id_]) and not is_correlated(queries[id_]))


def _may_fail_in(queries: Mapping[str, Query], column: Column, common: Mapping[str, Query]) -> bool:
    """Return whether a column of a subquery is computed from an expression that may fail."""
    query = queries[source_id(column)]
    return _may_fail_at(query, source_position(column), common)


def _may_fail_at(query: Query, position: int, common: Mapping[str, Query]) -> bool:
    if isinstance(query, SetOperation):
        return any(_may_fail_at(side, position, common) for side in (query.left, query.right))
    expr = query.outputs[position].expr
    if may_fail(expr):
        return True
    inner = {
        relation.id: relation.query if isinstance(relation, DerivedTable) else common[relation.common]
        for relation in relations_in(query.source)
        if isinstance(relation, DerivedTable | Named)
    }
    return any(_may_fail_in(inner, column, common) for column in columns_in(expr) if source_id(column) in inner)


def _keeps_all_rows(query: Query) -> bool:
    """Return whether a query is a SELECT from one scan without WHERE: it has no WHERE to move conditions past."""
    return isinstance(query, Block) and isinstance(query.source, Scan) and query.where is None
