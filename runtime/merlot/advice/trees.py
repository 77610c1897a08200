"""Star-trees that would answer logged queries: one for each set of columns, and for unions of such sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from merlot.advice.statistics import Statistics
from merlot.advice.workload import Question
from merlot.query.star_trees.question import question
from merlot.spec.indexing import MAX_STAR_TREES, IndexingSpec
from merlot.spec.star_tree import EVERY_ROW, MAX_DIMENSIONS, SEPARATOR, StarTreeSpec, StoredFunction

MOST_SHARE: Final = 0.5
"""Documents of a tree, of the rows of a segment: of more, queries read little less."""
MOST_TREES: Final = 8
Columns = frozenset[str]


@dataclass(frozen=True, slots=True)
class _Need:
    """What a question asks of a tree."""

    number: int
    columns: Columns
    functions: frozenset[StoredFunction]


def trees_for(
    questions: Sequence[Question], known: Statistics, indexing: IndexingSpec
) -> Iterator[tuple[StarTreeSpec, tuple[int, ...], float]]:
    """Trees, the numbers of the questions that each answers, and how many documents a segment's may have."""
    if len(indexing.star_tree_index_configs) >= MAX_STAR_TREES:
        return
    needs = [need for need in _needs(questions, known) if not _is_met(need, indexing)]
    for columns in _column_sets(needs, known):
        met = [need for need in needs if need.columns <= columns]
        functions = frozenset().union(*(need.functions for need in met))
        order = sorted(columns, key=lambda name: (-_uses(name, met), -known.columns[name].cardinality, name))
        tree = StarTreeSpec(
            dimensions_split_order=tuple(order),
            function_column_pairs=tuple(sorted(_pair(one) for one in functions)),
        )
        yield tree, tuple(need.number for need in met), _documents(columns, known)


def _needs(questions: Sequence[Question], known: Statistics) -> Iterator[_Need]:
    for number, one in enumerate(questions):
        asked = question(one.form)
        if asked is None or (one.leaf.filter is None and not one.leaf.work.columns_after_filter):
            continue
        functions = frozenset(stored for states in asked.work.states for stored in states)
        is_known = all(name in known.columns and not known.columns[name].multi_value for name in asked.columns)
        if functions and is_known:
            yield _Need(number, asked.columns, functions)


def _is_met(need: _Need, indexing: IndexingSpec) -> bool:
    return any(
        need.columns <= set(tree.dimensions_split_order) and need.functions <= set(tree.stored)
        for tree in indexing.star_tree_index_configs
    )


def _column_sets(needs: Sequence[_Need], known: Statistics) -> list[Columns]:
    """Those that questions name, and what becomes of them as one after the other is added, those of few documents
    first."""
    named = {need.columns for need in needs if need.columns}
    sets = sorted(named, key=lambda one: (_documents(one, known), sorted(one)))
    fitting = [one for one in sets if _fits(one, known)]
    found = dict.fromkeys(fitting)
    union: Columns = frozenset()
    for columns in fitting:
        if _fits(union | columns, known):
            union |= columns
            found[union] = None
    # Of those that answer the same questions, the smallest.
    best: dict[tuple[int, ...], Columns] = {}
    for columns in found:
        best.setdefault(tuple(need.number for need in needs if need.columns <= columns), columns)
    return sorted(best.values(), key=len, reverse=True)[:MOST_TREES]


def _fits(columns: Columns, known: Statistics) -> bool:
    return len(columns) <= MAX_DIMENSIONS and _documents(columns, known) <= MOST_SHARE * known.docs_each


def _documents(columns: Columns, known: Statistics) -> float:
    """At most, of a segment's tree, star documents included."""
    return min(2 * known.docs_each, math.prod(known.columns[name].cardinality + 1.0 for name in columns))


def _uses(name: str, needs: Sequence[_Need]) -> int:
    return sum(name in need.columns for need in needs)


def _pair(one: StoredFunction) -> str:
    return f"{one.function.upper()}{SEPARATOR}{one.column or EVERY_ROW}"
