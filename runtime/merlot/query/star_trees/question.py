"""What a leaf asks, in the terms of star-trees: which columns it needs values of, which states, which predicates."""

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

_MEMO: Final = "star_trees"
_NULL_TESTS: Final = frozenset({"is_null", "is_not_null"})
_SUMS: Final = frozenset({"sum", "sumlong", "sumprecision"})


@dataclass(frozen=True, slots=True)
class Work:
    """What a leaf makes of the documents."""

    kept: frozenset[str]
    """Columns whose values are wanted: of group keys, and of filters of aggregates."""
    states: tuple[tuple[StoredFunction, ...], ...]
    """Of each aggregate, the stored functions whose states make its own, one after another."""
    arguments: frozenset[str]
    """Columns that are aggregated."""
    null_aware: frozenset[str]
    """Columns of which it matters which rows are null."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a query asks of a segment."""

    work: Work
    of_columns: tuple[tuple[str, tuple[Expr, ...]], ...]
    """Predicates of one column each, all of which must hold, by column."""
    others: tuple[Expr, ...]
    """Predicates of several columns, which must hold too."""
    null_aware: frozenset[str]

    @property
    def kept(self) -> frozenset[str]:
        """Columns whose values documents must tell."""
        return self.work.kept.union(*(columns_of(expr) for expr in self.others))

    @property
    def columns(self) -> frozenset[str]:
        """Columns that must be dimensions."""
        return self.kept.union(name for name, _ in self.of_columns)


def question(leaf: Leaf) -> Question | None:
    """None if no star-tree can answer it."""
    work = _work_of(leaf.work)
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
    return Question(work, of_columns, tuple(others), null_aware)


def _conjuncts(expr: Expr | None) -> Iterator[Expr]:
    if isinstance(expr, Call) and expr.function == "and":
        for arg in expr.args:
            yield from _conjuncts(arg)
    elif expr is not None:
        yield expr


def _work_of(work: LeafWork) -> Work | None:
    """Made once, and remembered with the plan."""
    if _MEMO not in work.memo:
        work.memo[_MEMO] = _make_work(work)
    made: Work | None = work.memo[_MEMO]
    return made


def _make_work(work: LeafWork) -> Work | None:
    if work.kind is LeafKind.SELECTION or work.skips_star_trees or any(key.type.is_array for key in work.keys):
        return None
    states = []
    for one in work.aggregations:
        stored = _stored(one)
        if stored is None:
            return None
        states.append(stored)
    exprs = [*work.keys, *(one.filter for one in work.aggregates if one.filter is not None)]
    kept: frozenset[str] = frozenset().union(*(columns_of(expr) for expr in exprs))
    arguments: frozenset[str] = frozenset().union(*(columns_of(arg) for one in work.aggregates for arg in one.args))
    null_aware = frozenset().union(*(_null_aware(expr) for expr in exprs))
    if work.null_handling:
        null_aware |= arguments
    return Work(kept, tuple(states), arguments, null_aware)


def _stored(one: Aggregation) -> tuple[StoredFunction, ...] | None:
    """The stored functions whose states make an aggregate's; None if there are none."""
    name, call = one.function.name, one.call
    if one.function.flattens or not all(isinstance(arg, Column) for arg in one.arguments):
        return None
    if one.function.counts_rows:
        return stored_functions(name, "") or None
    if len(one.arguments) != 1 or not _has_defaults(one):
        return None
    argument = one.arguments[0]
    assert isinstance(argument, Column)
    found = stored_functions("distinctcountbitmap" if name == "distinctcount" else name, argument.name)
    if found and call.nulls and name in _SUMS:
        # With null handling a sum knows of how many values it is: of all, where none is null.
        found += stored_functions("count", "")
    return found or None


def _has_defaults(one: Aggregation) -> bool:
    """Whether a sketch is asked for as trees keep it."""
    constants = one.call.constants
    if "hll" in one.function.name:
        return not constants or constants[0] == DEFAULT_LOG2M
    if "theta" in one.function.name:
        return nominal_entries(constants, DEFAULT_ENTRIES) == DEFAULT_ENTRIES
    if "tdigest" in one.function.name:
        return len(constants) < 2 or constants[1] == DEFAULT_COMPRESSION
    return True


def _null_aware(expr: Expr) -> frozenset[str]:
    """Columns below functions that see nulls."""
    found: frozenset[str] = frozenset()
    for node in walk(expr):
        if isinstance(node, Call) and (node.function in _NULL_TESTS or of(node).sees_nulls):
            found |= columns_of(node)
    return found
