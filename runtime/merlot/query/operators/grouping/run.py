"""Grouping of a task's docs by the strategy that `choose` picks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import pyarrow as pa

from merlot.query.operators.grouping import bypass, dense, encoded, hashed
from merlot.query.operators.grouping.choose import Strategy, TaskFacts, choose, choose_table
from merlot.query.operators.grouping.groups import GroupTask, facts_of
from merlot.query.operators.grouping.keys import GroupKey, ValueKey, key_of
from merlot.tree.nodes import Expr
from merlot.vectors import account
from merlot.vectors.groups import Packing

_GROUP: Final[Mapping[Strategy, Callable[[GroupTask, Sequence[GroupKey]], list[pa.Array]]]] = {
    Strategy.DENSE: dense.group,
    Strategy.HASHED: hashed.group,
    Strategy.ENCODED: encoded.group,
}


@dataclass(frozen=True, slots=True)
class GroupedDocs:
    """Key columns, then state columns."""

    columns: Sequence[pa.Array | pa.ChunkedArray]
    is_grouped: bool = True
    """True if each key has one row, False if each doc has."""


def group(task: GroupTask, mapped: Mapping[Expr, GroupKey], num_docs_of_query: int) -> GroupedDocs:
    """Group the docs of a task. `mapped` holds the keys that tasks share, `num_docs_of_query` counts the docs of all
    tasks."""
    keys = cache(partial(_keys, task, mapped))
    work = task.work.memo.cached(facts_of, task.work)
    facts = TaskFacts(
        num_docs=task.docs.count,
        num_docs_of_query=num_docs_of_query,
        max_groups=task.context.limits.max_groups,
        has_stored_states=task.columns.stored_states is not None,
        sample=partial(bypass.sample, task),
        space=lambda: _space(keys()),
    )
    strategy = choose(work, facts)
    if strategy is Strategy.BYPASS:
        spending = account.current()
        mark = spending.held_bytes
        rows = bypass.rows(task, num_docs_of_query)
        if rows is not None:
            return GroupedDocs(rows, is_grouped=False)
        spending.release(mark)
        strategy = choose_table(work, facts)
    return GroupedDocs(_GROUP[strategy](task, keys()))


def _keys(task: GroupTask, mapped: Mapping[Expr, GroupKey]) -> list[GroupKey]:
    nulls = task.work.null_handling
    return [key_of(expr, task.columns, null_handling=nulls, mapped=mapped) for expr in task.work.keys]


def _space(keys: Sequence[GroupKey]) -> int | None:
    """Return the number of possible packed keys; None if a key has codes only once all rows are read."""
    if any(isinstance(key, ValueKey) for key in keys):
        return None
    return Packing([key.cardinality for key in keys]).space
