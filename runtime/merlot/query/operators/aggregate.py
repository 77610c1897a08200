"""Aggregation without GROUP BY over the selected docs of one segment: one task, one thread."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from merlot.query.context import ExecutionContext
from merlot.query.filter.docset import DocSet
from merlot.query.operators.grouping.groups import accumulators_of
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.columns import Columns


def aggregate(work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext) -> list[pa.Array]:
    """Return the state columns of the aggregates, each of one row."""
    accumulators = accumulators_of(work, columns, 1)
    for chunk in docs.chunks(columns, null_handling=work.null_handling, shared=work.shared):
        context.cancel.check()
        for accumulator in accumulators:
            accumulator.add(chunk, None)
    row = np.zeros(1, np.int64)
    return [state for accumulator in accumulators for state in accumulator.states(row)]
