"""Range-partitioned aggregation: GROUP BY of very many keys over one large source. Each task reads all docs, and groups
those whose keys are in its range, in an array of all keys that are possible there.

If tasks took ranges of docs instead, the hash table of each would hold most keys, miss the caches with every row, and
have to be merged. Results of these tasks have no key in common, and their arrays are smaller by the number of
ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.kernels import group as kernels
from merlot.query.context import ExecutionContext
from merlot.query.filter.docset import CHUNK_DOCS, DocSet
from merlot.query.filter.resolve import All, Node
from merlot.query.operators.grouping.groups import accumulators_of, finish, pack
from merlot.query.operators.grouping.keys import DictionaryKey, WholeKey, key_of
from merlot.query.plan.nodes import LeafKind, LeafWork
from merlot.query.read.columns import Columns
from merlot.vectors.groups import Packing

LEAST_DOCS: Final = 1 << 20
NUM_RANGES: Final = 4
"""Ranges of a query. With more ranges, arrays are smaller, but all keys are read more often."""
LEAST_SHARE: Final = 8
"""Most docs for each possible key. With more docs, groups are few and quickly merged."""
MOST_SHARE: Final = 4
"""Most possible keys for each doc."""
MOST_SPACE: Final = 1 << 24
MOST_BYTES: Final = 384 << 20
"""Most bytes of the arrays of all ranges together."""
_STATE_BYTES: Final = 16
"""Approximate size of a light state."""


def cut(work: LeafWork, columns: Columns, node: Node) -> list[range] | None:
    """Return a range of packed keys for each task over one target; None if docs are to be split instead. `node` is the
    target's filter."""
    num_docs = columns.num_docs
    if work.kind is not LeafKind.GROUP_BY or num_docs < LEAST_DOCS or not isinstance(node, All):
        return None
    if columns.stored_states is not None or any(key.type.is_array for key in work.keys):
        return None
    if not all(aggregation.function.is_light for aggregation in work.aggregations):
        return None
    space = _space(work, columns)
    if space is None or not num_docs <= LEAST_SHARE * space <= LEAST_SHARE * min(MOST_SHARE * num_docs, MOST_SPACE):
        return None
    if space * _STATE_BYTES * (1 + len(work.aggregations)) > MOST_BYTES:
        return None
    edges = [space * number // NUM_RANGES for number in range(NUM_RANGES + 1)]
    return [range(*pair) for pair in pairwise(edges)]


def _space(work: LeafWork, columns: Columns) -> int | None:
    """Return the number of possible keys; None if a key has neither a dictionary nor small whole numbers."""
    space = 1
    for expr in work.keys:
        key = key_of(expr, columns, null_handling=work.null_handling)
        if not isinstance(key, WholeKey | DictionaryKey):
            return None
        space *= key.cardinality
    return space


def group(
    work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext, wanted: range
) -> Sequence[pa.Array]:
    """Do the work of `choose.group` for the docs whose packed keys are in `wanted`."""
    keys = [key_of(expr, columns, null_handling=work.null_handling) for expr in work.keys]
    packing = Packing([key.cardinality for key in keys])
    states = accumulators_of(work, columns, len(wanted))
    present = np.zeros(len(wanted), np.uint8)
    most = min(CHUNK_DOCS, docs.count)
    scratch, rows = np.zeros(most, np.uint32), np.empty(most, np.int64)
    for chunk in docs.chunks(columns, null_handling=work.null_handling, shared=work.shared):
        context.cancel.check()
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
    return finish(keys, packing, packed, states, occurring, context)
