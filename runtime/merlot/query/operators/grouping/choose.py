"""Choice of the way in which a task groups its docs.

Keys are packed into words, chunk by chunk. If few words are possible, they index the accumulators directly; otherwise a
hash table assigns a group to each word that occurs.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from merlot.query.context import ExecutionContext
from merlot.query.filter.docset import DocSet
from merlot.query.operators.grouping import dense, encoded, hashed
from merlot.query.operators.grouping.keys import GroupKey, ValueKey, key_of
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.columns import Columns
from merlot.tree.nodes import Expr
from merlot.vectors.groups import Packing

SMALL_SPACE = 4_096
MAX_DENSE_SPACE = 1 << 22


def group(
    work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext, mapped: Mapping[Expr, GroupKey]
) -> list[pa.Array]:
    """Return key columns, then state columns, with a row per group. `mapped` holds the keys that tasks share."""
    keys = [key_of(expr, columns, null_handling=work.null_handling, mapped=mapped) for expr in work.keys]
    if any(expr.type.is_array for expr in work.keys) or any(isinstance(key, ValueKey) for key in keys):
        return encoded.group(work, columns, docs, context, keys)
    packing = Packing([key.cardinality for key in keys])
    if packing.space <= SMALL_SPACE or packing.space <= min(2 * docs.count, MAX_DENSE_SPACE):
        return dense.group(work, columns, docs, context, keys)
    return hashed.group(work, columns, docs, context, keys)
