"""Propose star-trees for logged queries: one for each set of columns that they name, and for unions of such sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from merlot.advice.statistics import Statistics
from merlot.advice.workload import Question
from merlot.query.star_trees.requirements import requirements
from merlot.spec.indexing import MAX_STAR_TREES, IndexingSpec
from merlot.spec.star_tree import EVERY_ROW, MAX_DIMENSIONS, SEPARATOR, StarTreeSpec, StoredFunction

MAX_SHARE: Final = 0.5
"""Documents of a tree per row of its segment up to which it is proposed: with more, queries read hardly less."""
MAX_TREES: Final = 8
Columns = frozenset[str]


@dataclass(frozen=True, slots=True)
class _Need:
    """Columns and functions that a question needs of a tree."""

    number: int
    columns: Columns
    functions: frozenset[StoredFunction]


def trees_for(
    questions: Sequence[Question], statistics: Statistics, indexing: IndexingSpec
) -> Iterator[tuple[StarTreeSpec, tuple[int, ...], float]]:
    """Yield trees, each with the numbers of the questions that it answers and the documents it may have per segment."""
    if len(indexing.star_tree_index_configs) >= MAX_STAR_TREES:
        return
    needs = [need for need in _needs(questions, statistics) if not _is_met(need, indexing)]
    for columns in _column_sets(needs, statistics):
        met = [need for need in needs if need.columns <= columns]
        functions = frozenset().union(*(need.functions for need in met))
        order = sorted(columns, key=lambda name: (-_uses(name, met), -statistics.columns[name].cardinality, name))
        tree = StarTreeSpec(
            dimensions_split_order=tuple(order),
            function_column_pairs=tuple(sorted(map(_pair, functions))),
        )
        yield tree, tuple(need.number for need in met), _documents(columns, statistics)


def _needs(questions: Sequence[Question], statistics: Statistics) -> Iterator[_Need]:
    for number, logged in enumerate(questions):
        tree_needs = requirements(logged.form)
        if tree_needs is None or (logged.leaf.filter is None and not logged.leaf.work.columns_after_filter):
            continue
        functions = frozenset(function for states in tree_needs.work.states for function in states)
        facts = [statistics.columns.get(name) for name in tree_needs.columns]
        if functions and all(column is not None and not column.multi_value for column in facts):
            yield _Need(number, tree_needs.columns, functions)


def _is_met(need: _Need, indexing: IndexingSpec) -> bool:
    return any(
        need.columns <= set(tree.dimensions_split_order) and need.functions <= set(tree.stored)
        for tree in indexing.star_tree_index_configs
    )


def _column_sets(needs: Sequence[_Need], statistics: Statistics) -> list[Columns]:
    """Return the column sets that questions name and their running unions, starting with the sets of few documents."""
    named = {need.columns for need in needs if need.columns}
    sets = sorted(named, key=lambda columns: (_documents(columns, statistics), sorted(columns)))
    fitting = [columns for columns in sets if _fits(columns, statistics)]
    proposals = dict.fromkeys(fitting)
    union: Columns = frozenset()
    for columns in fitting:
        if _fits(union | columns, statistics):
            union |= columns
            proposals[union] = None
    # If several sets answer the same questions, the smallest stays.
    best: dict[tuple[int, ...], Columns] = {}
    for columns in proposals:
        best.setdefault(tuple(need.number for need in needs if need.columns <= columns), columns)
    return sorted(best.values(), key=len, reverse=True)[:MAX_TREES]


def _fits(columns: Columns, statistics: Statistics) -> bool:
    return len(columns) <= MAX_DIMENSIONS and _documents(columns, statistics) <= MAX_SHARE * statistics.docs_each


def _documents(columns: Columns, statistics: Statistics) -> float:
    """Return an upper bound of the documents in a segment's tree, star documents included."""
    return min(2 * statistics.docs_each, math.prod(statistics.columns[name].cardinality + 1.0 for name in columns))


def _uses(name: str, needs: Sequence[_Need]) -> int:
    return sum(name in need.columns for need in needs)


def _pair(stored: StoredFunction) -> str:
    return f"{stored.function.upper()}{SEPARATOR}{stored.column or EVERY_ROW}"
