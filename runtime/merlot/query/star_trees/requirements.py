"""Needs of a leaf in the terms of star-trees: the columns whose values it reads, the stored states, the predicates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from merlot.aggregates.hyperloglog import DEFAULT_LOG2M
from merlot.aggregates.settings_text import nominal_entries
from merlot.aggregates.tdigest import DEFAULT_COMPRESSION
from merlot.aggregates.theta import DEFAULT_ENTRIES
from merlot.functions.registry import of
from merlot.query.aggregation import Aggregation
from merlot.query.plan.expressions import columns_of, walk
from merlot.query.plan.nodes import Leaf, LeafKind, LeafWork
from merlot.spec.star_tree import StoredFunction, stored_functions
from merlot.tree.nodes import Call, Column, Expr, Literal

_NULL_TESTS: Final = frozenset({"is_null", "is_not_null"})
_SUMS: Final = frozenset({"sum", "sumlong", "sumprecision"})


@dataclass(frozen=True, slots=True)
class Work:
    """Part of a leaf's needs that does not depend on its filter."""

    value_columns: frozenset[str]
    """Columns whose values are read: those of group keys, and of filters of aggregates."""
    states: tuple[tuple[StoredFunction, ...], ...]
    """Stored functions of each aggregate. Their states, one after another, make the aggregate's state."""
    arguments: frozenset[str]
    """Columns that are aggregated."""
    null_aware: frozenset[str]
    """Columns whose nulls change the answer."""


@dataclass(frozen=True, slots=True)
class TreeRequirements:
    """Needs of a leaf, the same for all segments."""

    work: Work
    of_columns: tuple[tuple[str, tuple[Expr, ...]], ...]
    """Predicates over one column each, by column. All must hold."""
    others: tuple[Expr, ...]
    """Predicates over several columns. All must hold."""
    null_aware: frozenset[str]

    @property
    def value_columns(self) -> frozenset[str]:
        """Columns whose values have to be read from the documents."""
        return self.work.value_columns.union(*(columns_of(expr) for expr in self.others))

    @property
    def columns(self) -> frozenset[str]:
        """Columns that must be dimensions."""
        return self.value_columns.union(name for name, _ in self.of_columns)


def requirements(leaf: Leaf) -> TreeRequirements | None:
    """Return the needs of a leaf; None if no star-tree can answer it."""
    work = leaf.work.memo.cached(_work_of, leaf.work)
    if work is None:
        return None
    by_column: dict[str, list[Expr]] = {}
    others: list[Expr] = []
    for expr in _conjuncts(leaf.filter):
        if isinstance(expr, Literal):
            if not expr.value:
                return None
            continue
        names = columns_of(expr)
        if not names:
            return None
        if len(names) == 1:
            by_column.setdefault(next(iter(names)), []).append(expr)
        else:
            others.append(expr)
    filters = [expr for exprs in by_column.values() for expr in exprs] + others
    of_columns = tuple((name, tuple(exprs)) for name, exprs in by_column.items())
    null_aware = work.null_aware.union(*(_null_aware(expr) for expr in filters))
    return TreeRequirements(work, of_columns, tuple(others), null_aware)


def _conjuncts(expr: Expr | None) -> Iterator[Expr]:
    if isinstance(expr, Call) and expr.function == "and":
        for arg in expr.args:
            yield from _conjuncts(arg)
    elif expr is not None:
        yield expr


def _work_of(work: LeafWork) -> Work | None:
    """Return the needs of the work; None if no star-tree can answer it."""
    if work.kind is LeafKind.SELECTION or work.skips_star_trees or any(key.type.is_array for key in work.keys):
        return None
    states = []
    for aggregation in work.aggregations:
        stored = _stored(aggregation)
        if stored is None:
            return None
        states.append(stored)
    filters = [aggregate.filter for aggregate in work.aggregates if aggregate.filter is not None]
    exprs = [*work.keys, *filters]
    values: frozenset[str] = frozenset().union(*(columns_of(expr) for expr in exprs))
    args = [arg for aggregate in work.aggregates for arg in aggregate.args]
    arguments: frozenset[str] = frozenset().union(*(columns_of(arg) for arg in args))
    null_aware = frozenset().union(*(_null_aware(expr) for expr in exprs))
    if work.null_handling:
        null_aware |= arguments
    return Work(values, tuple(states), arguments, null_aware)


def _stored(aggregation: Aggregation) -> tuple[StoredFunction, ...] | None:
    """Return the stored functions whose states make an aggregate's state; None if there are none."""
    name, call = aggregation.function.name, aggregation.call
    if aggregation.function.flattens or not all(isinstance(arg, Column) for arg in aggregation.arguments):
        return None
    if aggregation.function.counts_rows:
        return stored_functions(name, "") or None
    if len(aggregation.arguments) != 1 or not _has_defaults(aggregation):
        return None
    argument = aggregation.arguments[0]
    assert isinstance(argument, Column)
    stored = stored_functions("distinctcountbitmap" if name == "distinctcount" else name, argument.name)
    if stored and call.nulls and name in _SUMS:
        # With null handling a sum's state holds its number of values: without nulls, the number of rows.
        stored += stored_functions("count", "")
    return stored or None


def _has_defaults(aggregation: Aggregation) -> bool:
    """Return whether a sketch has the size with which trees store it. Other functions always do."""
    constants = aggregation.call.constants
    if "hll" in aggregation.function.name:
        return not constants or constants[0] == DEFAULT_LOG2M
    if "theta" in aggregation.function.name:
        return nominal_entries(constants, DEFAULT_ENTRIES) == DEFAULT_ENTRIES
    if "tdigest" in aggregation.function.name:
        return len(constants) < 2 or constants[1] == DEFAULT_COMPRESSION
    return True


def _null_aware(expr: Expr) -> frozenset[str]:
    """Return the columns below functions that see nulls."""
    names: frozenset[str] = frozenset()
    for node in walk(expr):
        if isinstance(node, Call) and (node.function in _NULL_TESTS or of(node).sees_nulls):
            names |= columns_of(node)
    return names
