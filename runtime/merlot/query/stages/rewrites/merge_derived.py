"""Merge plain subqueries in FROM into the SELECT around them. Pure.

A plain one gives a row for each row of its own FROM that meets its WHERE. On the nullable side of an outer join its
condition moves into ON, where it may; a column that it computes must be NULL in rows that the join makes up.
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
    place_of,
    slot_columns,
)
from merlot.query.stages.rewriting import is_grouped, map_query
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.relations import (
    Block,
    Derived,
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
"""Joins that give the same rows if a condition on one side is asked in ON."""
_LEFT_RISES = frozenset({JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI, JoinKind.ASOF, JoinKind.LEFT_ASOF})
_RIGHT_RISES = frozenset({JoinKind.RIGHT})
"""Joins that give the same rows if a condition on one side is asked of their rows."""
_LEFT_IS_NULLABLE = frozenset({JoinKind.RIGHT, JoinKind.FULL})
_RIGHT_IS_NULLABLE = frozenset({JoinKind.LEFT, JoinKind.FULL, JoinKind.LEFT_ASOF})
_ALL_ROWS = frozenset({JoinKind.INNER, JoinKind.CROSS})
_NEAREST = frozenset({JoinKind.ASOF, JoinKind.LEFT_ASOF})
_WITHOUT_ORDER = frozenset({"count", "sum", "min", "max", "avg", "distinctcount", "booland", "boolor"})
"""Aggregates that are the same in whatever order rows come."""


def merge_derived(statement: Statement) -> Statement:
    """`SELECT … FROM (SELECT a, b + 1 FROM t WHERE c) AS v WHERE d` is a SELECT from t."""
    common = dict(statement.common)
    return map_queries(statement, lambda query: _merged(query, common) if isinstance(query, Block) else query)


def _merged(block: Block, common: Mapping[str, Query]) -> Block:
    """Merge one subquery after the other."""
    refused: set[str] = set()
    while True:
        candidate = next((one for one in relations_in(block.source) if one.id not in refused and _is_plain(one)), None)
        if candidate is None:
            return block
        assert isinstance(candidate, Derived)
        made = _Merging(block, candidate, common).block()
        if made is None:
            refused.add(candidate.id)
        else:
            block = made


def _is_plain(relation: Relation) -> bool:
    if not isinstance(relation, Derived) or not isinstance(relation.query, Block):
        return False
    query = relation.query
    if (
        query.source is None
        or not is_plain(query)
        or any(isinstance(one, Unnest) for one in relations_in(query.source))
    ):
        return False
    has_slots = any(True for output in query.outputs for _ in slot_columns(output.expr))
    return not has_slots and not is_correlated(query)


class _Merging:
    """One plain subquery in the FROM of one SELECT."""

    def __init__(self, block: Block, derived: Derived, common: Mapping[str, Query]) -> None:
        assert isinstance(derived.query, Block)
        self._block = block
        self._id = derived.id
        self._inner = derived.query
        assert derived.query.source is not None
        self._rows: Relation = derived.query.source
        self._condition = conjuncts(derived.query.where)
        self._columns = {f"{derived.id}.c{at}": one.expr for at, one in enumerate(derived.query.outputs)}
        self._is_fenced = derived.id in fenced(block, common)

    def block(self) -> Block | None:
        """The SELECT with the subquery merged; None where the answer might be another."""
        if (self._is_fenced and not self._is_one_leaf()) or self._has_other_keys() or self._is_order_read():
            return None
        assert self._block.source is not None
        placed = self._placed(self._block.source, is_nullable=False, may_rise=True)
        if placed is None:
            return None
        source, risen = placed
        where = all_of([*risen, *conjuncts(self._block.where)])
        slots = {**self._inner.slots, **self._block.slots}
        replacing = Replacing(self._columns)
        try:
            made = map_query(replace(self._block, source=source, where=where, slots=slots), replacing)
        except UnsoundError:
            return None
        assert isinstance(made, Block)
        if self._keeps_order():
            made = replace(made, order_by=self._inner.order_by)
        return made if made.grouping_sets else replace(made, group_by=tuple(dict.fromkeys(made.group_by)))

    def _is_one_leaf(self) -> bool:
        """Whether one leaf asks all conditions, of which what may fail is computed where no other one decides."""
        is_alone = isinstance(self._block.source, Derived) and isinstance(self._rows, Scan)
        return is_alone and not self._inner.slots

    def _keeps_order(self) -> bool:
        """Whether the rows of the subquery come in its order, as clients expect that wrap a query to limit it."""
        block = self._block
        is_alone = isinstance(block.source, Derived)
        return is_alone and not (block.order_by or block.is_distinct or is_grouped(block))

    def _is_order_read(self) -> bool:
        """Whether aggregates read rows in the order of the subquery."""
        aggregates = {one.function for expr in self._block.exprs for one in _aggregates(expr)}
        return bool(self._inner.order_by) and not aggregates <= _WITHOUT_ORDER

    def _has_other_keys(self) -> bool:
        """Whether sets of keys would be sets of constants, of computed values or of the same key twice."""
        if not self._block.grouping_sets:
            return False
        keys = [self._columns.get(key.name, key) if isinstance(key, Column) else key for key in self._block.group_by]
        is_changed = any(key is not old for key, old in zip(keys, self._block.group_by, strict=True))
        return is_changed and not (all(isinstance(key, Column) for key in keys) and len(set(keys)) == len(keys))

    def _placed(self, relation: Relation, *, is_nullable: bool, may_rise: bool) -> tuple[Relation, list[Expr]] | None:
        """The FROM with the subquery's own in its place, and conditions that are to be asked of all rows of it."""
        if isinstance(relation, Derived) and relation.id == self._id:
            is_refused = (self._condition and not may_rise) or (is_nullable and not self._gives_nulls())
            return None if is_refused else (self._rows, self._condition)
        if not isinstance(relation, Join):
            return relation, []
        kind = relation.kind
        is_left = any(one.id == self._id for one in relations_in(relation.left))
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
        made, risen = placed
        relation = replace(relation, left=made) if is_left else replace(relation, right=made)
        if kind not in into_on or not risen:
            return relation, risen
        condition = all_of([*conjuncts(relation.condition), *risen])
        return replace(relation, kind=JoinKind.INNER if kind is JoinKind.CROSS else kind, condition=condition), []

    def _is_renaming(self) -> bool:
        are_columns = all(isinstance(expr, Column) for expr in self._columns.values())
        return isinstance(self._rows, Scan) and not self._condition and are_columns

    def _gives_nulls(self) -> bool:
        """Whether every column that is read is NULL in rows that a join makes up, null bits aside, which tell the same
        of those rows as the tables' own columns do."""
        return all(_is_read_as_null(expr, self._id, self._columns) for expr in exprs_of(self._block))


def _aggregates(expr: Expr) -> Iterator[Aggregate]:
    if isinstance(expr, Aggregate):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from _aggregates(arg)


def _is_read_as_null(expr: Expr, relation: str, columns: Mapping[str, Expr]) -> bool:
    if isinstance(expr, Column):
        return place_of(expr.name, relation) is None or is_strict(columns[expr.name])
    if isinstance(expr, Literal):
        return True
    if is_null_bit(expr) and isinstance(expr, Call) and isinstance(expr.args[0], Column):
        known = columns.get(expr.args[0].name)
        is_test = isinstance(known, Call) and known.function == "is_null" and isinstance(known.args[0], Column)
        if is_test or (known is not None and is_null_bit(known)):
            return True
    condition = getattr(expr, "filter", None)
    args = (*expr.args, condition) if condition is not None else expr.args
    return all(_is_read_as_null(arg, relation, columns) for arg in args)
