"""Push predicates down through projections, groups, windows and set operations. Pure.

Predicates that may fail or that read subqueries stay where they are: further down, they would be computed for other
rows.
"""

from __future__ import annotations

from dataclasses import replace

from merlot.query.plan.expressions import has_aggregate
from merlot.query.plan.expressions import replace as rewrite_expr
from merlot.query.stages.conjuncts import all_of, conjuncts, only_source, reachable, reachable_by_condition
from merlot.query.stages.failures import COMPARISONS, may_fail
from merlot.query.stages.null_bits import NULL_TESTS
from merlot.query.stages.replacing import Replacing, UnsoundError
from merlot.query.stages.rewrites.walks import has_windows, is_limited, map_queries, slot_columns
from merlot.query.stages.rewriting import is_grouped
from merlot.tree.nodes import TRUE, Call, Column, Expr, Literal
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    JoinKind,
    Query,
    Relation,
    SetOperation,
    Statement,
    Window,
    columns_in,
    relations_in,
)
from merlot.tree.types import DOUBLE, FLOAT

MAX_PARTS = 200
"""Most conditions of an AND that is pushed; a longer one stays. Each push rebuilds the conditions below."""
_ZERO_SIGN_BLIND = frozenset({*COMPARISONS, "between", "in", "not_in"})
"""Functions that give the same result for 0.0 and -0.0, which belong to the same group."""


def push_filters(statement: Statement) -> Statement:
    """Push the condition of `… FROM (SELECT a FROM t UNION ALL SELECT b FROM u) AS v WHERE a = 1` to t and u."""
    pushing = _Pushing(nulls=statement.null_handling)
    return map_queries(statement, lambda query: pushing.block(query) if isinstance(query, Block) else query)


class _Pushing:
    def __init__(self, *, nulls: bool) -> None:
        self._nulls = nulls

    def block(self, block: Block) -> Block:
        """Push the conditions of WHERE, ON and HAVING."""
        block = self._having_to_where(block)
        if block.source is None:
            return block
        source, rest = self._pushed(block.source, conjuncts(block.where), reachable(block.source))
        source = self._conditions(source)
        if source is block.source:
            return block
        return replace(block, source=source, where=all_of(rest))

    def _having_to_where(self, block: Block) -> Block:
        moved, stay = list[Expr](), list[Expr]()
        for part in conjuncts(block.having):
            (moved if _is_of_keys(part, block) and self._may_move(part) else stay).append(part)
        if not moved:
            return block
        return replace(block, having=all_of(stay), where=all_of([*conjuncts(block.where), *moved]))

    def _may_move(self, part: Expr) -> bool:
        is_sure = not may_fail(part) and not any(True for _ in slot_columns(part))
        return is_sure and (self._nulls or not _tests_null(part))

    def _conditions(self, relation: Relation) -> Relation:
        """Push the conditions of joins."""
        if not isinstance(relation, Join):
            return relation
        left, right = self._conditions(relation.left), self._conditions(relation.right)
        if left is not relation.left or right is not relation.right:
            relation = replace(relation, left=left, right=right)
        if relation.kind in (JoinKind.ASOF, JoinKind.LEFT_ASOF):
            return relation
        pushed, rest = self._pushed(relation, conjuncts(relation.condition), reachable_by_condition(relation))
        if pushed is relation:
            return relation
        assert isinstance(pushed, Join)
        condition = all_of(rest)
        if condition is None and pushed.kind is JoinKind.INNER:
            return replace(pushed, kind=JoinKind.CROSS, condition=None)
        return replace(pushed, condition=condition or TRUE)

    def _pushed(self, source: Relation, parts: list[Expr], reach: frozenset[str]) -> tuple[Relation, list[Expr]]:
        """Return FROM with conditions moved into the one subquery that each of them reads, and the conditions that
        stay."""
        derived = [relation for relation in relations_in(source) if isinstance(relation, DerivedTable)]
        queries = {relation.id: relation.query for relation in derived if relation.id in reach}
        if not queries or len(parts) > MAX_PARTS:
            return source, parts
        rest: list[Expr] = []
        for part in parts:
            owner = only_source(part)
            absorbed = None
            if owner is not None and owner in queries and self._may_move(part):
                absorbed = self._absorbed(queries[owner], part, owner)
            if owner is None or absorbed is None:
                rest.append(part)
                continue
            queries[owner] = absorbed
        if len(rest) == len(parts):
            return source, parts
        return _with_queries(source, queries), rest

    def _absorbed(self, query: Query, part: Expr, id_: str) -> Query | None:
        """Return the query with a condition on its columns, which are called `id.c0`, …; None if its rows would
        change."""
        if is_limited(query):
            return None
        if isinstance(query, SetOperation):
            left, right = self._absorbed(query.left, part, id_), self._absorbed(query.right, part, id_)
            return None if left is None or right is None else replace(query, left=left, right=right)
        if query.source is None or query.qualify is not None:
            return None
        try:
            columns = {f"{id_}.c{position}": output.expr for position, output in enumerate(query.outputs)}
            condition = Replacing(columns, query.group_by)(part)
        except UnsoundError:
            return None
        if may_fail(condition) or any(True for _ in slot_columns(condition)):
            return None
        if (has_windows(query) or query.is_distinct) and not self._nulls and _tests_null(condition):
            return None
        if has_windows(query):
            is_safe = not is_grouped(query) and _is_of_partitions(condition, query)
        elif is_grouped(query) and has_aggregate(condition):
            return replace(query, having=all_of([*conjuncts(query.having), condition]))
        elif is_grouped(query):
            is_safe = _is_of_keys(condition, query)
        else:
            is_safe = not query.is_distinct or _is_same_for_zeros(condition)
        return replace(query, where=all_of([*conjuncts(query.where), condition])) if is_safe else None


def _with_queries(relation: Relation, queries: dict[str, Query]) -> Relation:
    if isinstance(relation, DerivedTable) and relation.id in queries:
        return replace(relation, query=queries[relation.id])
    if not isinstance(relation, Join):
        return relation
    left, right = _with_queries(relation.left, queries), _with_queries(relation.right, queries)
    return replace(relation, left=left, right=right)


def _is_of_keys(part: Expr, block: Block) -> bool:
    """Return whether a condition reads only keys of a single grouping set, so that it holds for all rows of a group or
    for none."""
    keys = frozenset(block.group_by)
    return bool(keys) and not block.grouping_sets and _reads_only(part, keys) and _is_same_for_zeros(part)


def _is_of_partitions(part: Expr, block: Block) -> bool:
    """Return whether a condition holds for all rows of a partition or for none, for every window of the block."""
    windows = [slot for slot in block.slots.values() if isinstance(slot, Window)]
    reads_only_keys = all(_reads_only(part, frozenset(window.partition_by)) for window in windows)
    return reads_only_keys and _is_same_for_zeros(part)


def _reads_only(part: Expr, allowed: frozenset[Expr]) -> bool:
    rest = rewrite_expr(part, lambda expr: TRUE if expr in allowed else None)
    has_columns = any(True for _ in columns_in(part))
    return has_columns and not has_aggregate(rest) and not any(True for _ in columns_in(rest))


def _is_same_for_zeros(part: Expr) -> bool:
    """Return whether a condition has the same result for 0.0 and -0.0."""
    if all(column.type not in (FLOAT, DOUBLE) for column in columns_in(part)):
        return True
    if not isinstance(part, Call):
        return False
    if part.function in ("and", "or", "not"):
        return all(map(_is_same_for_zeros, part.args))
    return part.function in _ZERO_SIGN_BLIND and all(isinstance(arg, Column | Literal) for arg in part.args)


def _tests_null(expr: Expr) -> bool:
    if not isinstance(expr, Call):
        return False
    is_test = expr.function in NULL_TESTS and isinstance(expr.args[0], Column)
    return is_test or any(map(_tests_null, expr.args))
