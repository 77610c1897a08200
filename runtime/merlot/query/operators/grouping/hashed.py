"""GROUP BY with many possible keys: a hash table assigns a group to each packed key that occurs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merlot.query.context import check_groups
from merlot.query.operators.grouping.groups import HASH_CHUNK_DOCS, GroupTask, finish, pack
from merlot.query.operators.grouping.keys import GroupKey
from merlot.vectors.groups import GroupTable, Packing


def group(task: GroupTask, keys: Sequence[GroupKey]) -> list[pa.Array]:
    packing = Packing([key.cardinality for key in keys])
    table = GroupTable(packing.width, task.docs.count)
    accumulators = task.accumulators(1024)
    scratch = np.zeros(packing.width * HASH_CHUNK_DOCS, np.uint64)
    for chunk in task.chunks(HASH_CHUNK_DOCS):
        groups = table.assign(pack(keys, packing, chunk, scratch))
        check_groups(task.context.limits, table.num_groups)
        for accumulator in accumulators:
            accumulator.grow(table.num_groups)
            accumulator.add(chunk, groups)
    result = finish(keys, packing, table.keys(), accumulators, np.arange(table.num_groups), task.context)
    table.close()
    return result
