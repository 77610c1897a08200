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
from merlot.query.aggregation import Aggregation
from merlot.query.constant_sums import accumulators
from merlot.query.context import ExecutionContext
from merlot.query.filter.docset import DocSet
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns
from merlot.segment.arrow_types import is_fixed_width
from merlot.values.types import TypeName
from merlot.vectors.encoding import group_rows, with_one_zero

LEAST_DOCS: Final = 1 << 15
"""Fewest docs. Fewer cost little to group."""
SAMPLE_DOCS: Final = 1 << 13
LEAST_SHARE: Final = 0.985
"""Least share of groups among the rows of the sample: that of 8,192 rows drawn from 270,000 keys."""
LEAST_SHARE_OF_TEXTS: Final = 0.75
"""The same, if each task would have to read texts, and the merge again."""
_WIDE: Final = frozenset({TypeName.BIG_DECIMAL, TypeName.BYTES, TypeName.STRING, TypeName.JSON})
"""Types of arguments whose states are more than a few numbers."""


def rows(
    work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext, total: int
) -> Sequence[pa.ChunkedArray | pa.Array] | None:
    """Return key columns, then state columns, with a row per doc; None if docs are to be grouped. `total` is the number
    of docs of all tasks.

    Rows are never more than the groups that a query may have, nor are the bytes of their keys more than those of an
    answer."""
    if docs.count < LEAST_DOCS or total > context.limits.max_groups or columns.stored_states is not None:
        return None
    if any(key.type.is_array for key in work.keys) or not all(map(_is_small, work.aggregations)):
        return None
    if not _differ(work, next(docs.chunks(columns, null_handling=work.null_handling, shared=work.shared))):
        return None
    return _read(work, columns, docs, context, context.limits.max_bytes * docs.count // total)


def _is_small(aggregation: Aggregation) -> bool:
    """Return whether a state is a few numbers."""
    types = {argument.type.base for argument in aggregation.arguments}
    return aggregation.function.is_light and not types & _WIDE


def _differ(work: LeafWork, chunk: Chunk) -> bool:
    """Return whether most of the first docs have keys of their own."""
    sample = chunk.at(np.arange(min(SAMPLE_DOCS, chunk.num_rows)))
    readers = map(chunk.columns.reader, work.columns_of_keys)
    has_texts = any(reader.dictionary is None and not is_fixed_width(reader.type) for reader in readers)
    least = LEAST_SHARE_OF_TEXTS if has_texts else LEAST_SHARE
    return len(group_rows(list(_keys(work, sample)), sample.num_rows)) >= least * sample.num_rows


def _keys(work: LeafWork, chunk: Chunk) -> Iterator[pa.Array]:
    for key in work.keys:
        yield with_one_zero(evaluate(key, chunk).to_arrow(chunk.num_rows))


def _read(
    work: LeafWork, columns: Columns, docs: DocSet, context: ExecutionContext, max_bytes: int
) -> Sequence[pa.ChunkedArray | pa.Array] | None:
    states = accumulators(work, docs.count, columns)
    keys: list[list[pa.Array]] = [[] for _ in work.keys]
    start = num_bytes = 0
    for chunk in docs.chunks(columns, null_handling=work.null_handling, shared=work.shared):
        context.cancel.check()
        for chunks, key in zip(keys, _keys(work, chunk), strict=True):
            chunks.append(key)
            num_bytes += key.nbytes
        if num_bytes > max_bytes:
            return None
        groups = np.arange(start, start + chunk.num_rows, dtype=np.uint32)
        for state in states:
            state.add(chunk, groups)
        start += chunk.num_rows
    every = np.arange(docs.count)
    return [*map(pa.chunked_array, keys), *(column for state in states for column in state.states(every))]
