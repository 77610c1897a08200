"""Cost of a query, by which its threads are counted. The unit is a doc whose numbers are read and added up.

Figures are ns of CPU time per doc, on one thread, over 1,500,000 rows of ClickBench's schema; a filtered sum takes 2.4
to 3.9. Most costs are below the measured ratios.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from merlot.aggregates.distinct import DistinctCount
from merlot.query.context import ExecutionContext
from merlot.query.filter.predicates import DocList, SpanMatch
from merlot.query.filter.resolve import All, And
from merlot.query.plan.nodes import Leaf, LeafKind, LeafWork
from merlot.query.read.columns import Columns, reads_texts
from merlot.query.targets import LeafTarget
from merlot.segment.reader import Reader

TEXT_DOCS: Final = 16
"""Cost of a doc whose texts are read."""
HASHED_DOCS: Final = 4
"""Cost of a doc whose group key or distinct value is hashed: a key of users and regions takes 45 ns, one of addresses
and phrases 275, a distinct count of dict ids 5."""
SUMMED_DOCS: Final = 0.25
"""Cost of a doc of an ungrouped, unfiltered sum, 1.3 ns: 6,000,000 rows take 1.1 ms alone and 2.9 ms with a helper
thread."""
DENSE_KEYS: Final = 1 << 16
"""Largest number of possible keys for which an array with a slot for each fits a cache: 90 keys take 4 ns a doc,
249,000 keys 25."""
MERGED_ROWS: Final = 8
"""Cost of merging a row of a partial answer: 134,000 rows of texts and counts from several tasks take 105 ns each."""


def num_helpers(leaf: Leaf, targets: Sequence[LeafTarget], context: ExecutionContext) -> int:
    """Return how many threads of the pool are worth waking beside the caller's."""
    if context.pool is None:
        return 0
    work = 0.0
    for target in targets:
        target_leaf = target.leaf(leaf)
        num_docs = docs_to_visit(target_leaf, target)
        if num_docs:
            work += num_docs * _weight(target_leaf, target) + TEXT_DOCS * _num_mapped(target_leaf.work, target)
    return max(0, min(context.threads, int(work) // context.docs_per_thread) - 1)


def num_mergers(num_rows: int, context: ExecutionContext) -> int:
    """Return how many threads of the pool are worth waking to merge rows of partial answers."""
    num_threads = 1 if context.pool is None else min(context.threads, MERGED_ROWS * num_rows // context.docs_per_thread)
    return max(0, num_threads - 1)


def docs_to_visit(leaf: Leaf, target: LeafTarget) -> float:
    """Return the number of docs to read: the docs that lists and spans of the filter leave. It is 0 if an aggregation
    reads no column and its filter keeps all docs."""
    num_docs = target.columns.num_docs
    node = target.node
    work = leaf.work
    if isinstance(node, All) and work.kind is LeafKind.AGGREGATION and not work.columns_after_filter:
        return 0.0
    nodes = node.children if isinstance(node, And) else (node,)
    shares = [child.share for child in nodes if isinstance(child, DocList | SpanMatch)]
    return num_docs * min(shares, default=1.0)


def _weight(leaf: Leaf, target: LeafTarget) -> float:
    """Return the cost of a doc of the target, in docs of plain numbers."""
    if target.columns.stored_states is not None:
        return 1
    if reads_texts(target.columns, leaf.columns_read):
        return TEXT_DOCS
    is_all = leaf.work.kind is LeafKind.AGGREGATION and isinstance(target.node, All)
    if is_all and all(aggregation.function.is_light for aggregation in leaf.work.aggregations):
        return SUMMED_DOCS
    # One thread hashes the docs of coalesced segments into one table, which costs less than merging two tables.
    # How few docs a scanning filter leaves to hash is unknown before it runs.
    is_known = isinstance(target.node, All | DocList | SpanMatch)
    is_heavy = is_known and not target.source.is_coalesced and _hashes(leaf.work, target.columns)
    return HASHED_DOCS if is_heavy else 1


def _num_mapped(work: LeafWork, target: LeafTarget) -> int:
    """Return the number of distinct texts that the functions of group keys are applied to, whatever docs the filter
    keeps."""
    if target.columns.stored_states is not None:
        return 0
    dictionaries = [target.columns.reader(name).dictionary for name in work.columns_of_called_keys]
    return sum([len(texts) for texts in dictionaries if texts is not None and texts.numeric is None])


def _hashes(work: LeafWork, columns: Columns) -> bool:
    """Return whether there are many groups, or distinct values have to be counted."""
    if work.kind is LeafKind.SELECTION:
        return False
    space = math.prod([_num_values(columns.reader(name)) for name in work.columns_of_keys])
    return space > DENSE_KEYS or any(isinstance(item.function, DistinctCount) for item in work.aggregations)


def _num_values(reader: Reader) -> int:
    """Return how many distinct values a column may have."""
    return 1 << 32 if reader.dictionary is None else len(reader.dictionary)
