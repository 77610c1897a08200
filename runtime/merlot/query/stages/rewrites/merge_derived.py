"""Merge plain subqueries in FROM into the SELECT around them. Pure.

A plain subquery returns a row for each row of its own FROM that meets its WHERE. On the nullable side of an outer join
its condition moves into ON, where that is sound; a column that it computes must be NULL in the rows that the join makes
up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from merlot.query.stages.conjuncts import all_of, conjuncts
from merlot.query.stages.failures import fenced
from merlot.query.stages.replacing import Replacing, UnsoundError, is_null_bit, is_strict
from merlot.query.stages.rewrites.walks import (
    exprs_of,
    is_plain,
    map_queries,
    position_of,
    slot_columns,
)
from merlot.query.stages.rewriting import is_grouped, map_query
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    JoinKind,
    Query,
    Relation,
    Scan,
    Statement,
    Unnest,
    is_correlated,
    relations_in,
)

_LEFT_INTO_ON = frozenset({JoinKind.INNER, JoinKind.CROSS, JoinKind.RIGHT})
_RIGHT_INTO_ON = frozenset({JoinKind.INNER, JoinKind.CROSS, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI})
"""Joins that return the same rows if a condition on one side is moved into ON."""
_LEFT_RISES = frozenset({JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI, JoinKind.ASOF, JoinKind.LEFT_ASOF})
_RIGHT_RISES = frozenset({JoinKind.RIGHT})
"""Joins that return the same rows if a condition on one side is applied to the joined rows."""
_LEFT_IS_NULLABLE = frozenset({JoinKind.RIGHT, JoinKind.FULL})
_RIGHT_IS_NULLABLE = frozenset({JoinKind.LEFT, JoinKind.FULL, JoinKind.LEFT_ASOF})
_ALL_ROWS = frozenset({JoinKind.INNER, JoinKind.CROSS})
_NEAREST = frozenset({JoinKind.ASOF, JoinKind.LEFT_ASOF})
_WITHOUT_ORDER = frozenset({"count", "sum", "min", "max", "avg", "distinctcount", "booland", "boolor"})
"""Aggregates that do not depend on the order of rows."""


def merge_derived(statement: Statement) -> Statement:
    """Rewrite `SELECT … FROM (SELECT a, b + 1 FROM t WHERE c) AS v WHERE d` as a SELECT from t."""
    common = dict(statement.common)
    return map_queries(statement, lambda query: _merged(query, common) if isinstance(query, Block) else query)


def _merged(block: Block, common: Mapping[str, Query]) -> Block:
    """Merge subqueries one after the other."""
    refused: set[str] = set()
    while True:
        relations = (relation for relation in relations_in(block.source) if relation.id not in refused)
        candidate = next(filter(_is_plain, relations), None)
        if candidate is None:
            return block
        assert isinstance(candidate, DerivedTable)
        merged = _Merging(block, candidate, common).block()
        if merged is None:
            refused.add(candidate.id)
        else:
            block = merged


def _is_plain(relation: Relation) -> bool:
    if not isinstance(relation, DerivedTable) or not isinstance(relation.query, Block):
        return False
    query = relation.query
    if (
        query.source is None
        or not is_plain(query)
        or any(isinstance(source, Unnest) for source in relations_in(query.source))
    ):
        return False
    has_slots = any(True for output in query.outputs for _ in slot_columns(output.expr))
    return not has_slots and not is_correlated(query)


class _Merging:
    """Merge of one plain subquery into the SELECT whose FROM it is in."""

    def __init__(self, block: Block, derived: DerivedTable, common: Mapping[str, Query]) -> None:
        assert isinstance(derived.query, Block)
        self._block = block
        self._id = derived.id
        self._inner = derived.query
        assert derived.query.source is not None
        self._rows: Relation = derived.query.source
        self._condition = conjuncts(derived.query.where)
        self._columns = {f"{derived.id}.c{at}": output.expr for at, output in enumerate(derived.query.outputs)}
        self._is_fenced = derived.id in fenced(block, common)

    def block(self) -> Block | None:
        """Return the SELECT with the subquery merged; None if the answer might change."""
        if (self._is_fenced and not self._is_one_leaf()) or self._has_other_keys() or self._is_order_read():
            return None
        assert self._block.source is not None
        placed = self._placed(self._block.source, is_nullable=False, may_rise=True)
        if placed is None:
            return None
        source, risen = placed
        where = all_of([*risen, *conjuncts(self._block.where)])
        slots = {**self._inner.slots, **self._block.slots}
        try:
            keys = map(Replacing(self._columns), self._block.group_by)
            replacing = Replacing(self._columns, keys)
            merged = map_query(replace(self._block, source=source, where=where, slots=slots), replacing)
        except UnsoundError:
            return None
        assert isinstance(merged, Block)
        if self._keeps_order():
            merged = replace(merged, order_by=self._inner.order_by)
        return merged if merged.grouping_sets else replace(merged, group_by=tuple(dict.fromkeys(merged.group_by)))

    def _is_one_leaf(self) -> bool:
        """Return whether all conditions belong to one leaf, which computes what may fail only where no other condition
        decides."""
        is_alone = isinstance(self._block.source, DerivedTable) and isinstance(self._rows, Scan)
        return is_alone and not self._inner.slots

    def _keeps_order(self) -> bool:
        """Return whether rows have to stay in the subquery's order, as clients expect that wrap a query to limit it."""
        block = self._block
        is_alone = isinstance(block.source, DerivedTable)
        return is_alone and not (block.order_by or block.is_distinct or is_grouped(block))

    def _is_order_read(self) -> bool:
        """Return whether aggregates depend on the order of the subquery's rows."""
        aggregates = {aggregate.function for expr in self._block.exprs for aggregate in _aggregates(expr)}
        return bool(self._inner.order_by) and not aggregates <= _WITHOUT_ORDER

    def _has_other_keys(self) -> bool:
        """Return whether merging would make grouping sets of constants, of computed values, or of the same key
        twice."""
        if not self._block.grouping_sets:
            return False
        keys = [self._columns.get(key.name, key) if isinstance(key, Column) else key for key in self._block.group_by]
        is_changed = any(key is not old for key, old in zip(keys, self._block.group_by, strict=True))
        return is_changed and not (all(isinstance(key, Column) for key in keys) and len(set(keys)) == len(keys))

    def _placed(self, relation: Relation, *, is_nullable: bool, may_rise: bool) -> tuple[Relation, list[Expr]] | None:
        """Return the FROM with the subquery's own FROM in its place, and the conditions to apply to all joined rows;
        None if that is not sound."""
        if isinstance(relation, DerivedTable) and relation.id == self._id:
            is_refused = (self._condition and not may_rise) or (is_nullable and not self._gives_nulls())
            return None if is_refused else (self._rows, self._condition)
        if not isinstance(relation, Join):
            return relation, []
        kind = relation.kind
        is_left = any(source.id == self._id for source in relations_in(relation.left))
        into_on = _LEFT_INTO_ON if is_left else _RIGHT_INTO_ON
        rises = _LEFT_RISES if is_left else _RIGHT_RISES
        if self._inner.slots:  # the engine takes no subqueries in ON
            into_on, rises = frozenset(), rises | _ALL_ROWS
        side = relation.left if is_left else relation.right
        if kind in _NEAREST and side is relation.right and not self._is_renaming():
            return None
        placed = self._placed(
            side,
            is_nullable=is_nullable or kind in (_LEFT_IS_NULLABLE if is_left else _RIGHT_IS_NULLABLE),
            may_rise=kind in into_on or (kind in rises and may_rise),
        )
        if placed is None:
            return None
        merged, risen = placed
        relation = replace(relation, left=merged) if is_left else replace(relation, right=merged)
        if kind not in into_on or not risen:
            return relation, risen
        condition = all_of([*conjuncts(relation.condition), *risen])
        return replace(relation, kind=JoinKind.INNER if kind is JoinKind.CROSS else kind, condition=condition), []

    def _is_renaming(self) -> bool:
        are_columns = all(isinstance(expr, Column) for expr in self._columns.values())
        return isinstance(self._rows, Scan) and not self._condition and are_columns

    def _gives_nulls(self) -> bool:
        """Return whether every column that is read is NULL in rows that a join makes up. Null bits are exempt: they say
        the same of those rows as the tables' own columns do."""
        return all(_is_read_as_null(expr, self._id, self._columns) for expr in exprs_of(self._block))


def _aggregates(expr: Expr) -> Iterator[Aggregate]:
    if isinstance(expr, Aggregate):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from _aggregates(arg)


def _is_read_as_null(expr: Expr, relation: str, columns: Mapping[str, Expr]) -> bool:
    if isinstance(expr, Column):
        return position_of(expr.name, relation) is None or is_strict(columns[expr.name])
    if isinstance(expr, Literal):
        return True
    if is_null_bit(expr) and isinstance(expr, Call) and isinstance(expr.args[0], Column):
        column = columns.get(expr.args[0].name)
        is_test = isinstance(column, Call) and column.function == "is_null" and isinstance(column.args[0], Column)
        if is_test or (column is not None and is_null_bit(column)):
            return True
    condition = getattr(expr, "filter", None)
    args = (*expr.args, condition) if condition is not None else expr.args
    return all(_is_read_as_null(arg, relation, columns) for arg in args)
