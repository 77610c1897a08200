"""GROUP BY with few possible keys: packed keys index the accumulators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merlot.kernels import group as kernels
from merlot.query.filter.docset import CHUNK_DOCS
from merlot.query.operators.grouping.groups import GroupTask, finish, pack
from merlot.query.operators.grouping.keys import GroupKey
from merlot.vectors.groups import Packing


def group(task: GroupTask, keys: Sequence[GroupKey]) -> list[pa.Array]:
    packing = Packing([key.cardinality for key in keys])
    accumulators = task.accumulators(packing.space)
    rows = next((candidate for candidate in accumulators if candidate.rows_by_group is not None), None)
    present = np.zeros(packing.space, np.uint8) if rows is None else None
    scratch = np.zeros(min(CHUNK_DOCS, task.docs.count), np.uint32)
    for chunk in task.chunks():
        groups = pack(keys, packing, chunk, scratch)[0]
        if present is not None:
            kernels.mark(groups, present)
        for accumulator in accumulators:
            accumulator.add(chunk, groups)
    counted = present if rows is None else rows.rows_by_group
    assert counted is not None
    occurring = np.flatnonzero(counted)
    packed = occurring.astype(np.uint64).reshape(-1, 1)
    return finish(keys, packing, packed, accumulators, occurring, task.context)
