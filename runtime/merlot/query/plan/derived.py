"""Expressions that segments have stored as columns: `DATETRUNC('DAY', ts)` becomes the column `$ts$DAY`.

This is done per segment, after pruning, which knows the bounds of the times themselves. An expression is replaced only
if it equals the stored values doc for doc: in UTC, and with the column's unit as unit of input and output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace as changed
from typing import Final, NamedTuple

from merlot.functions.registry import of
from merlot.query.plan.expressions import replace, walk
from merlot.query.plan.nodes import Leaf, LeafWork
from merlot.spec.derived import DerivedColumn, Granularity, unit_of
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.types import LONG

_NULL_TESTS: Final = frozenset({"is_null", "is_not_null"})
_UTC: Final = "UTC"


class Computed(NamedTuple):
    """A derived column as a query computes it."""

    derived: DerivedColumn
    unit: str
    """Unit of the column's times, as the query states it."""


def derived_columns_of(leaf: Leaf, indexing: IndexingSpec | None, schema: TableSchema) -> frozenset[Computed]:
    """Return the derived columns that a leaf computes and that the table declares.

    `indexing` is None to take whatever columns segments have."""
    if indexing is not None and not indexing.may_derive:
        return frozenset()
    calls = [*leaf.work.memo.cached(_calls_of, leaf.work), *(() if leaf.filter is None else _calls((leaf.filter,)))]
    if not calls:
        return frozenset()
    declared = None if indexing is None else {column.name for column in indexing.derived}
    computed = set()
    for derived, unit in calls:
        field = schema.field(derived.column)
        is_declared = declared is None or derived.name in declared
        if is_declared and field is not None and not field.multi_value and unit_of(field.type, field.format) == unit:
            computed.add(Computed(derived, unit))
    return frozenset(computed)


def with_columns(leaf: Leaf, columns: frozenset[Computed]) -> Leaf:
    """Return the leaf with these derived columns in place of the expressions that compute them."""

    def column(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and (expr.function in _NULL_TESTS or of(expr).sees_nulls):
            # Nulls of a column are known even without null handling, those of an expression are not.
            return expr
        computed = _derived(expr)
        return Column(computed.derived.name, LONG) if computed in columns else None

    forms = leaf.work.memo.cached(_Forms).by_columns
    work = forms.get(columns)
    if work is None:
        work = forms[columns] = _with(leaf.work, lambda expr: replace(expr, column))
    return Leaf(work, None if leaf.filter is None else replace(leaf.filter, column))


class _Forms:
    """Forms of a work, by the derived columns that they read."""

    def __init__(self) -> None:
        self.by_columns: dict[frozenset[Computed], LeafWork] = {}


def _with(work: LeafWork, change: Callable[[Expr], Expr]) -> LeafWork:
    aggregates = [
        Aggregate(
            aggregate.function,
            tuple(map(change, aggregate.args)),
            aggregate.type,
            None if aggregate.filter is None else change(aggregate.filter),
        )
        for aggregate in work.aggregates
    ]
    return changed(
        work,
        keys=tuple(map(change, work.keys)),
        aggregates=tuple(aggregates),
        columns=tuple(map(change, work.columns)),
    )


def _calls_of(work: LeafWork) -> tuple[Computed, ...]:
    """Return the derived columns that the work computes."""
    exprs = [*work.keys, *work.columns]
    for aggregate in work.aggregates:
        exprs += [*aggregate.args, *(() if aggregate.filter is None else (aggregate.filter,))]
    return tuple(_calls(exprs))


def _calls(exprs: Iterable[Expr]) -> Iterator[Computed]:
    for expr in exprs:
        for node in walk(expr):
            computed = _derived(node)
            if computed is not None:
                yield computed


def _derived(expr: Expr) -> Computed | None:
    """Return the derived column that equals an expression, with the unit that its column's times must have; None if
    there is no such column."""
    if not isinstance(expr, Call) or expr.function != "datetrunc":
        return None
    granularity, column, unit, zone, output = expr.args
    if not isinstance(column, Column) or column.name.startswith("$"):
        return None
    words = [arg.value for arg in (granularity, unit, zone, output) if isinstance(arg, Literal)]
    if len(words) != len(expr.args) - 1 or words[2] != _UTC or words[1] != words[3]:
        return None
    return Computed(DerivedColumn(column.name, Granularity(str(words[0]))), str(words[1]))
