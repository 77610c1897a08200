"""Range-partitioned aggregation: GROUP BY of very many keys over one large source. Each task reads all docs, and groups
those whose keys are in its range, in an array of all keys that are possible there.

If tasks took ranges of docs instead, the hash table of each would hold most keys, miss the caches with every row, and
have to be merged. Results of these tasks have no key in common, and their arrays are smaller by the number of
ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.kernels import group as kernels
from merlot.query.filter.docset import CHUNK_DOCS
from merlot.query.operators.grouping.choose import TargetFacts, splits_keys
from merlot.query.operators.grouping.groups import GroupTask, facts_of, finish, pack
from merlot.query.operators.grouping.keys import DictionaryKey, WholeKey, applies_function, key_of
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.columns import Columns
from merlot.vectors.groups import Packing

NUM_RANGES: Final = 4
"""Ranges of a query. With more ranges, arrays are smaller, but all keys are read more often."""


def split(work: LeafWork, columns: Columns, *, selects_all: bool) -> list[range] | None:
    """Return a range of packed keys for each task over a query's only target; None if docs are to be split instead."""
    facts = TargetFacts(
        num_docs=columns.num_docs,
        selects_all=selects_all,
        has_stored_states=columns.stored_states is not None,
        space=cache(partial(_space, work, columns)),
    )
    if not splits_keys(work.memo.cached(facts_of, work), facts):
        return None
    space = facts.space()
    assert space is not None
    edges = [space * number // NUM_RANGES for number in range(NUM_RANGES + 1)]
    return [range(*pair) for pair in pairwise(edges)]


def _space(work: LeafWork, columns: Columns) -> int | None:
    """Return the number of possible keys; None if a key is neither a dict id nor a whole number."""
    space = 1
    # The function of a MappedKey is left to the tasks, which would have to apply it again.
    if any(applies_function(expr, columns) for expr in work.keys):
        return None
    for expr in work.keys:
        key = key_of(expr, columns, null_handling=work.null_handling)
        if not isinstance(key, WholeKey | DictionaryKey):
            return None
        space *= key.cardinality
    return space


def group(task: GroupTask, wanted: range) -> Sequence[pa.Array]:
    """Group the docs whose packed keys are in `wanted`."""
    work = task.work
    keys = [key_of(expr, task.columns, null_handling=work.null_handling) for expr in work.keys]
    packing = Packing([key.cardinality for key in keys])
    states = task.accumulators(len(wanted))
    present = np.zeros(len(wanted), np.uint8)
    most = min(CHUNK_DOCS, task.docs.count)
    scratch, rows = np.zeros(most, np.uint32), np.empty(most, np.int64)
    for chunk in task.chunks():
        packed = pack(keys, packing, chunk, scratch)[0]
        groups = np.empty(chunk.num_rows, np.uint32)
        count = kernels.keys_within(packed, np.uint32(wanted.start), np.uint32(len(wanted)), rows, groups)
        if not count:
            continue
        matching, groups = chunk.at(rows[:count]), groups[:count]
        kernels.mark(groups, present)
        for state in states:
            state.add(matching, groups)
    occurring = np.flatnonzero(present)
    packed = (occurring + wanted.start).astype(np.uint64).reshape(-1, 1)
    return finish(keys, packing, packed, states, occurring, task.context)
