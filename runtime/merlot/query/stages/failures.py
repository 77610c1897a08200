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
    most = magnitude(call) if call.function in ARITHMETIC else None
    return most is not None and most <= LONG_MAX


def magnitude(expr: Expr) -> int | None:
    """Return an upper bound of a whole number's magnitude; None if none is known."""
    if isinstance(expr, Literal):
        return abs(expr.value) if isinstance(expr.value, int) else None
    if isinstance(expr, Call) and expr.function in ARITHMETIC and expr.type == LONG:
        left, right = map(magnitude, expr.args)
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
    failing = _FailingColumns(common)
    queries = failing.queries(block)
    sources: set[str] = set()
    if not queries:
        return frozenset()
    for condition in (block.where, block.having, block.qualify, *conditions_in(block.source)):
        for part in conjuncts(condition):
            columns = [column for column in dict.fromkeys(columns_in(part)) if source_id(column) in queries]
            if may_fail(part) or any(failing.has(queries, column) for column in columns):
                sources.update(map(source_id, columns))
    return frozenset(id_ for id_ in sources if not _keeps_all_rows(queries[id_]) and not is_correlated(queries[id_]))


class _FailingColumns:
    """Columns of subqueries that are computed from expressions that may fail. Each is looked at once."""

    def __init__(self, common: Mapping[str, Query]) -> None:
        self._common = common
        self._verdicts: dict[tuple[int, int], bool] = {}
        """Verdicts by the `id` of a query and the position of its column."""

    def queries(self, block: Block) -> dict[str, Query]:
        """Return the subqueries of a FROM by their relations."""
        return {
            relation.id: relation.query if isinstance(relation, DerivedTable) else self._common[relation.common]
            for relation in relations_in(block.source)
            if isinstance(relation, DerivedTable | Named)
        }

    def has(self, queries: Mapping[str, Query], column: Column) -> bool:
        """Return whether a column of one of these subqueries is computed from an expression that may fail."""
        return self._has(queries[source_id(column)], source_position(column))

    def _has(self, query: Query, position: int) -> bool:
        key = id(query), position
        if key not in self._verdicts:
            self._verdicts[key] = self._computed(query, position)
        return self._verdicts[key]

    def _computed(self, query: Query, position: int) -> bool:
        if isinstance(query, SetOperation):
            return self._has(query.left, position) or self._has(query.right, position)
        expr = query.outputs[position].expr
        if may_fail(expr):
            return True
        inner = self.queries(query)
        return any(self.has(inner, column) for column in dict.fromkeys(columns_in(expr)) if source_id(column) in inner)


def _keeps_all_rows(query: Query) -> bool:
    """Return whether a query is a SELECT from one scan without WHERE: it has no WHERE to move conditions past."""
    return isinstance(query, Block) and isinstance(query.source, Scan) and query.where is None
