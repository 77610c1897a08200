"""Expressions that segments have computed: `DATETRUNC('DAY', ts)` becomes the column `$ts$DAY`.

Per segment, after pruning, which knows the times themselves. Replaced is only what equals the stored values doc for
doc: UTC, and the unit that the column is in, going in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace as changed
from typing import Final, NamedTuple

from merlot.functions.registry import of
from merlot.query.plan.expressions import replace, walk
from merlot.query.plan.nodes import Leaf, LeafWork
from merlot.spec.derived import Derived, Granularity, unit_of
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.types import LONG

_MEMO: Final = "derived"
_NULL_TESTS: Final = frozenset({"is_null", "is_not_null"})
_UTC: Final = "UTC"


class Computed(NamedTuple):
    """A derived column as a query computes it."""

    derived: Derived
    unit: str
    """That the column's times are taken to be in."""


def asked_for(leaf: Leaf, indexing: IndexingSpec | None, schema: TableSchema) -> frozenset[Computed]:
    """Derived columns that a leaf computes and the table asks for.

    indexing: None for whatever segments have."""
    if indexing is not None and not indexing.may_derive:
        return frozenset()
    calls = [*_calls_of(leaf.work), *(() if leaf.filter is None else _calls((leaf.filter,)))]
    if not calls:
        return frozenset()
    declared = None if indexing is None else {one.name for one in indexing.derived}
    found = set()
    for derived, unit in calls:
        field = schema.field(derived.column)
        is_declared = declared is None or derived.name in declared
        if is_declared and field is not None and not field.multi_value and unit_of(field.type, field.format) == unit:
            found.add(Computed(derived, unit))
    return frozenset(found)


def with_columns(leaf: Leaf, columns: frozenset[Computed]) -> Leaf:
    """The leaf with these derived columns in the place of what they are computed by."""

    def column(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and (expr.function in _NULL_TESTS or of(expr).sees_nulls):
            # Of a column it is known which rows are null, without null handling too; of an expression it is not.
            return expr
        found = _derived(expr)
        return Column(found.derived.name, LONG) if found in columns else None

    key = f"{_MEMO} {sorted(columns)}"
    work: LeafWork | None = leaf.work.memo.get(key)
    if work is None:
        work = leaf.work.memo[key] = _with(leaf.work, lambda expr: replace(expr, column))
    return Leaf(work, None if leaf.filter is None else replace(leaf.filter, column))


def _with(work: LeafWork, change: Callable[[Expr], Expr]) -> LeafWork:
    aggregates = [
        Aggregate(
            one.function, tuple(map(change, one.args)), one.type, None if one.filter is None else change(one.filter)
        )
        for one in work.aggregates
    ]
    return changed(
        work,
        keys=tuple(map(change, work.keys)),
        aggregates=tuple(aggregates),
        columns=tuple(map(change, work.columns)),
        memo={},
    )


def _calls_of(work: LeafWork) -> tuple[Computed, ...]:
    """Found once, and remembered with the plan."""
    known: tuple[Computed, ...] | None = work.memo.get(_MEMO)
    if known is None:
        exprs = [*work.keys, *work.columns]
        for one in work.aggregates:
            exprs += [*one.args, *(() if one.filter is None else (one.filter,))]
        known = work.memo[_MEMO] = tuple(_calls(exprs))
    return known


def _calls(exprs: Iterable[Expr]) -> Iterator[Computed]:
    for expr in exprs:
        for node in walk(expr):
            found = _derived(node)
            if found is not None:
                yield found


def _derived(expr: Expr) -> Computed | None:
    """The derived column that an expression is, and the unit that its column's times would be in."""
    if not isinstance(expr, Call) or expr.function != "datetrunc":
        return None
    granularity, column, unit, zone, output = expr.args
    if not isinstance(column, Column) or column.name.startswith("$"):
        return None
    words = [one.value for one in (granularity, unit, zone, output) if isinstance(one, Literal)]
    if len(words) != len(expr.args) - 1 or words[2] != _UTC or words[1] != words[3]:
        return None
    return Computed(Derived(column.name, Granularity(str(words[0]))), str(words[1]))
