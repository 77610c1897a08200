"""Planning: from a bound query to its plan. Pure: broker and server derive the same plan from the same query."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from merlot.query.plan.expressions import has_aggregate, replace, walk
from merlot.query.plan.nodes import (
    SIZE_OPTIONS,
    SKIP_OPTION,
    STAR_TREE_OPTION,
    Finish,
    Leaf,
    LeafKind,
    LeafWork,
    Reduce,
    UpsertRows,
)
from merlot.query.plan.rewrite import rewrite
from merlot.tree.nodes import Aggregate, BoundQuery, Call, Column, Expr, Literal, OrderKey, Output
from merlot.tree.types import INT, LONG, SqlType
from merlot.vectors.errors import UnsupportedQueryError


def plan(query: BoundQuery) -> Reduce:
    """Return the plan of a bound query. Raise UnsupportedQueryError if it cannot be planned."""
    query = rewrite(query)
    exprs = [output.expr for output in query.select] + [key.expr for key in query.order_by]
    if query.having is not None:
        exprs.append(query.having)
    if query.group_by or any(map(has_aggregate, exprs)):
        return _grouped(query, query.group_by)
    if query.distinct:
        return _grouped(query, tuple(dict.fromkeys(output.expr for output in query.select)))
    return _selection(query)


_COUNT_OF_ROWS: Final = Aggregate("count", (), LONG)


def _skips_pruning(query: BoundQuery) -> bool:
    return _is_on(query, SKIP_OPTION)


def _is_on(query: BoundQuery, option: str) -> bool:
    return (query.option(option) or "").lower() == "true"


def _rows(query: BoundQuery) -> UpsertRows:
    if _is_on(query, "skipUpsert"):
        return UpsertRows.EVERY
    return UpsertRows.WITH_DELETED if _is_on(query, "skipUpsertDelete") else UpsertRows.NEWEST


def _skips_star_trees(query: BoundQuery) -> bool:
    return (query.option(STAR_TREE_OPTION) or "").lower() == "false"


def _max_bytes(query: BoundQuery) -> int | None:
    given = [int(value) for name in SIZE_OPTIONS if (value := query.option(name)) is not None]
    return min(given, default=None)


def _selection(query: BoundQuery) -> Reduce:
    exprs = [output.expr for output in query.select] + [key.expr for key in query.order_by]
    columns = tuple(dict.fromkeys(exprs))
    for key in query.order_by:
        if key.expr.type.is_array:
            raise UnsupportedQueryError("cannot order rows by a multi-value column")
    slots = {expr: Column(f"c{number}", expr.type) for number, expr in enumerate(columns)}
    finish = Finish(
        outputs=tuple(Output(output.label, slots[output.expr]) for output in query.select),
        order_by=tuple(OrderKey(slots[key.expr], key.ascending, key.nulls_last) for key in query.order_by),
        limit=query.limit,
        offset=query.offset,
    )
    work = LeafWork(
        kind=LeafKind.SELECTION,
        columns=columns,
        order_by=finish.order_by,
        rows_needed=finish.rows_needed,
        null_handling=query.null_handling,
        skips_pruning=_skips_pruning(query),
        rows=_rows(query),
        max_bytes=_max_bytes(query),
    )
    return Reduce(Leaf(work, query.where), finish)


def _grouped(query: BoundQuery, group_by: tuple[Expr, ...]) -> Reduce:
    distinct_keys = dict.fromkeys(key for key in group_by if not isinstance(key, Literal))
    keys = tuple(key for key in distinct_keys if not _is_computed_from_key(key, distinct_keys))
    slots = _Slots(keys)
    outputs = tuple(Output(output.label, slots.rewritten(output.expr)) for output in query.select)
    having = None if query.having is None else slots.rewritten(query.having)
    order_by = tuple(OrderKey(slots.rewritten(key.expr), key.ascending, key.nulls_last) for key in query.order_by)
    is_grouped = bool(keys or query.group_by or not slots.aggregates)
    is_distinct = query.distinct and bool(query.group_by or slots.aggregates)
    if not keys and not slots.aggregates:
        # If all keys are constants, there is one group if there is a row. An answer without columns cannot show that.
        slots.to_slot(_COUNT_OF_ROWS)
    finish = Finish(
        outputs=outputs,
        having=having,
        order_by=order_by,
        limit=query.limit,
        offset=query.offset,
        is_distinct=is_distinct,
    )
    work = LeafWork(
        kind=LeafKind.GROUP_BY if is_grouped else LeafKind.AGGREGATION,
        keys=keys,
        aggregates=tuple(slots.aggregates),
        rows_needed=finish.rows_needed,
        null_handling=query.null_handling,
        skips_pruning=_skips_pruning(query),
        rows=_rows(query),
        skips_star_trees=_skips_star_trees(query),
        max_bytes=_max_bytes(query),
    )
    return Reduce(Leaf(work, query.where), finish)


def _is_computed_from_key(key: Expr, keys: Container[Expr]) -> bool:
    """Return whether a key is computed from another key: an INT column plus, minus or times a constant. The broker then
    computes it for each group, which cannot fail, whatever groups LIMIT leaves."""
    if not isinstance(key, Call) or key.function not in ("plus", "minus", "times"):
        return False
    columns = [arg for arg in key.args if isinstance(arg, Column)]
    constants = [arg.value for arg in key.args if isinstance(arg, Literal) and arg.type in (INT, LONG)]
    is_small = len(constants) == 1 and isinstance(constants[0], int) and abs(constants[0]) <= _MAX_CONSTANT
    return is_small and len(columns) == 1 and columns[0].type == INT and columns[0] in keys


_MAX_CONSTANT: Final = 1 << 31


class _Slots:
    """Names of keys and aggregates, by which expressions above the leaf refer to them."""

    def __init__(self, keys: tuple[Expr, ...]) -> None:
        self._keys: dict[Expr, Expr] = {
            key: Column(f"k{number}", SqlType(key.type.base)) for number, key in enumerate(keys)
        }
        self._slots: set[Expr] = set(self._keys.values())
        self.aggregates: dict[Aggregate, Column] = {}

    def to_slot(self, expr: Expr) -> Expr | None:
        """Return the slot of a key or an aggregate, a new one for a new aggregate; None for any other expression."""
        if expr in self._keys:
            return self._keys[expr]
        if isinstance(expr, Aggregate):
            slot = self.aggregates.setdefault(expr, Column(f"a{len(self.aggregates)}", expr.type))
            self._slots.add(slot)
            return slot
        return None

    def rewritten(self, expr: Expr) -> Expr:
        """Return the expression over slots. Raise UnsupportedQueryError if it reads a column that is neither a key nor
        aggregated."""
        result = replace(expr, self.to_slot)
        for node in walk(result):
            if isinstance(node, Column) and node not in self._slots:
                raise UnsupportedQueryError(f"column is neither grouped nor aggregated column={node.name}")
        return result
