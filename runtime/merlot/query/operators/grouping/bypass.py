"""Partial-aggregation bypass: GROUP BY where almost every doc has keys of its own leaves rows to the merge, which
groups all of them at once.

A table of groups per task would be filled, read and thrown away, only to merge about as many rows. A sample of the
first docs decides. As groups are merged by parts (`vectors.partitioned`), a wrong guess about the other docs costs
little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.functions.evaluate import evaluate
from merlot.query.operators.grouping.choose import KeySample
from merlot.query.operators.grouping.groups import GroupTask
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import reads_texts
from merlot.vectors.encoding import group_rows, with_one_zero

SAMPLE_DOCS: Final = 1 << 13


def sample(task: GroupTask) -> KeySample:
    """Return facts about the keys of a task's first docs."""
    first = next(task.chunks())
    chunk = first.at(np.arange(min(SAMPLE_DOCS, first.num_rows)))
    num_groups = len(group_rows(list(_keys(task.work, chunk)), chunk.num_rows))
    return KeySample(num_groups / chunk.num_rows, reads_texts(task.columns, task.work.columns_of_keys))


def rows(task: GroupTask, num_docs_of_query: int) -> Sequence[pa.ChunkedArray | pa.Array] | None:
    """Return key columns, then state columns, with a row per doc; None if keys have more bytes than an answer may have.

    `num_docs_of_query` is the number of docs of all tasks, among which the bytes are divided."""
    max_bytes = task.context.limits.max_bytes * task.docs.count // num_docs_of_query
    states = task.accumulators(task.docs.count)
    keys: list[list[pa.Array]] = [[] for _ in task.work.keys]
    start = num_bytes = 0
    for chunk in task.chunks():
        for chunks, key in zip(keys, _keys(task.work, chunk), strict=True):
            chunks.append(key)
            num_bytes += key.nbytes
        if num_bytes > max_bytes:
            return None
        groups = np.arange(start, start + chunk.num_rows, dtype=np.uint32)
        for state in states:
            state.add(chunk, groups)
        start += chunk.num_rows
    every = np.arange(task.docs.count)
    return [*map(pa.chunked_array, keys), *(column for state in states for column in state.states(every))]


def _keys(work: LeafWork, chunk: Chunk) -> Iterator[pa.Array]:
    for key in work.keys:
        yield with_one_zero(evaluate(key, chunk).to_arrow(chunk.num_rows))
