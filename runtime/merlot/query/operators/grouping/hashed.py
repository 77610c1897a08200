"""GROUP BY with many possible keys: a hash table assigns a group to each packed key that occurs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from merlot.query.context import ExecutionContext, check_groups
from merlot.query.filter.docset import DocSet
from merlot.query.operators.grouping.groups import HASH_CHUNK_DOCS, accumulators_of, finish, pack
from merlot.query.operators.grouping.keys import GroupKey
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.columns import Columns
from merlot.vectors.groups import GroupTable, Packing


def group(
    work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext, keys: list[GroupKey]
) -> list[pa.Array]:
    packing = Packing([key.cardinality for key in keys])
    table = GroupTable(packing.width, docs.count)
    accumulators = accumulators_of(work, columns, 1024)
    scratch = np.zeros(packing.width * HASH_CHUNK_DOCS, np.uint64)
    for chunk in docs.chunks(columns, null_handling=work.null_handling, max_docs=HASH_CHUNK_DOCS, shared=work.shared):
        context.cancel.check()
        groups = table.assign(pack(keys, packing, chunk, scratch))
        check_groups(context.limits, table.num_groups)
        for accumulator in accumulators:
            accumulator.grow(table.num_groups)
            accumulator.add(chunk, groups)
    result = finish(keys, packing, table.keys(), accumulators, np.arange(table.num_groups), context)
    table.close()
    return result
