"""Execution of a plan over the segments of one server: tasks run on the query's threads, and their partial answers are
merged exactly.

A task is a segment, or a range of docs of a large segment, so that a single segment too uses every thread.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.distinct import DistinctCount
from merlot.query.answer.combine import merge_tables, order_columns
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.query.context import ExecutionContext, ExecutionLimits, TooMuchWorkError, check_groups, check_size
from merlot.query.filter.predicates import DocList, SpanMatch
from merlot.query.filter.resolve import All, And, Resolver
from merlot.query.operators import late_materialization
from merlot.query.operators.aggregate import aggregate
from merlot.query.operators.grouping import range_partitioned
from merlot.query.operators.grouping.groups import GroupTask
from merlot.query.operators.grouping.keys import mapped_keys
from merlot.query.operators.grouping.run import group
from merlot.query.operators.selection import select_first, select_top
from merlot.query.plan.nodes import Leaf, LeafKind, LeafWork
from merlot.query.read.columns import Columns, SegmentColumns
from merlot.query.shortcuts import coalesced_segments, one_row
from merlot.query.star_trees import choice
from merlot.query.targets import (
    LeafTarget,
    Sources,
    Task,
    TaskResult,
    apart,
    can_match,
    matched,
    resolved,
    select,
    with_derived,
)
from merlot.query.workers import Workers
from merlot.segment.arrow_types import is_fixed_width
from merlot.segment.index.zones import BLOCK_DOCS
from merlot.segment.reader import Reader, Segment
from merlot.vectors import account

MIN_SPLIT_DOCS = 4 * BLOCK_DOCS
"""Fewest docs of a task when a segment is split; a multiple of the zone maps' block."""
TEXT_DOCS = 16
"""Cost of a row whose text is stored raw, in rows of fixed width."""
HASHED_DOCS = 4
"""Cost of a row whose group key or distinct value is hashed, in rows of fixed width."""
SUMMED_DOCS = 0.25
"""Cost of a row of an ungrouped, unfiltered sum: 6,000,000 rows take 1.1 ms alone and 2.9 ms with a helper thread."""
DENSE_KEYS = 1 << 16
"""Largest number of possible keys for which an array with a slot for each fits a cache."""

MERGED_ROWS = 8
"""Cost of merging a row of a partial answer, in docs."""


def execute(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> Partial:
    """Return the partial answer of these segments. Raises the errors of `context`, and InvalidInputError for a bad
    plan."""
    with account.Working(context.limits.work_bytes, context.cancel.check):
        return _execute(leaf, segments, context)


def _execute(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> Partial:
    # Without a pool this is a light query on an event loop, whose elapsed time is its CPU time. Reading the thread's
    # CPU clock, a system call, would take a tenth of it.
    clock_ns = time.perf_counter_ns if context.pool is None else time.thread_time_ns
    started = clock_ns()
    targets, alive, on_run = prepare(leaf, segments, context)
    if on_run is not None:
        on_run()
    num_helpers = _num_helpers(leaf, alive, context)
    tasks = _by_keys(leaf, alive)
    if tasks is None:
        tasks = [task for target in alive for task in _split(target, len(alive), num_helpers, context)]
    num_helpers = min(num_helpers, max(0, len(tasks) - 1))
    is_plain = not num_helpers and all(
        target.source.leaf is (None if target.columns.stored_states is None else leaf) for target in alive
    )
    scalar = one_row.tally(leaf, tasks, context) if is_plain else None
    content, results = scalar or _tables(leaf, tasks, num_helpers, context)
    processed = sum([target.num_segments for target in alive])
    with_docs = sum([target.num_segments for target in targets])
    num_docs = sum([result.num_docs for result in results])
    matched = _matched(tasks, results)
    consuming = _consuming(alive) if segments and not segments[-1].key.crc else ()
    stats = QueryStats(
        num_docs_scanned=num_docs,
        num_entries_scanned_in_filter=sum([result.num_entries for result in results]),
        num_entries_scanned_post_filter=num_docs * len(leaf.work.columns_after_filter),
        num_segments_matched=_num_matched(matched.values()),
        num_consuming_segments_processed=len(consuming),
        num_consuming_segments_matched=_num_matched([matched.get(id(target), False) for target in consuming]),
        num_segments_queried=len(segments),
        num_segments_processed=processed,
        num_segments_pruned_by_server=len(segments) - processed,
        num_segments_pruned_by_value=with_docs - processed,
        total_docs=sum([segment.num_docs for segment in segments]),
        thread_cpu_time_ns=clock_ns() - started,
    )
    return Partial(content, stats)


def prepare(
    leaf: Leaf,
    segments: Sequence[Segment],
    context: ExecutionContext,
    resolver: Callable[..., Resolver] = Resolver,
) -> tuple[list[LeafTarget], list[LeafTarget], Callable[[], None] | None]:
    """Return all targets, the targets that may hold a match, and a function to call before they are run.

    Raise TooMuchWorkError if the filter has to look at more docs than `context.most_docs`."""
    sources = _sources(leaf, segments, context)
    every = with_derived(leaf, sources.every, context)
    targets = resolved(leaf, choice.instead(leaf, every, context, resolver), context, resolver)
    alive = [target for target in targets if can_match(leaf, target)]
    to_visit = sum([_docs_to_visit(target.leaf(leaf), target) for target in alive])
    if context.most_docs is not None and to_visit > context.most_docs:
        raise TooMuchWorkError(f"query looks at too many docs limit={context.most_docs}")
    return targets, alive, sources.on_run


def _sources(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> Sources:
    """Return the segments that have docs; small segments are coalesced if their columns are, or are due to be."""
    with_docs = [segment for segment in segments if segment.num_docs]
    coalesced = coalesced_segments.sources(leaf, with_docs, context)
    return Sources(apart(with_docs, context)) if coalesced is None else coalesced


def _tables(
    leaf: Leaf, tasks: Sequence[Task], num_helpers: int, context: ExecutionContext
) -> tuple[pa.Table, list[TaskResult]]:
    schema = leaf.work.partial_schema
    keys = late_materialization.keys_of(leaf.work) if all(task.target.source.leaf is None for task in tasks) else None
    if keys is not None:
        return _late_materialized(leaf, keys, tasks, num_helpers, context)
    if leaf.work.kind is LeafKind.SELECTION and not leaf.work.order_by:
        results = _select_in_order(leaf, tasks, context)
    else:
        total = sum([task.stop - task.start for task in tasks])
        if num_helpers and leaf.work.kind is LeafKind.GROUP_BY and tasks[0].keys is None:
            _share_keys(leaf, tasks, Workers(context.pool, num_helpers, context.cancel.check))
        results = Workers(context.pool, num_helpers).run(lambda task: _work(leaf, task, context, total), tasks)
    tables = [pa.Table.from_arrays(result.columns, schema=schema) for result in results if result.columns is not None]
    is_apart = len(tables) == 1 or all(task.keys is not None for task in tasks)
    is_merged = is_apart and all(result.is_grouped for result in results)
    workers = _mergers(tables, context)
    data = merge_tables(leaf.work, tables, workers, is_merged=is_merged) if tables else schema.empty_table()
    _check_partial(leaf.work, data, context.limits)
    return data, results


def _late_materialized(
    leaf: Leaf, keys: LeafWork, tasks: Sequence[Task], num_helpers: int, context: ExecutionContext
) -> tuple[pa.Table, list[TaskResult]]:
    """Select the first rows by the order keys of all tasks, and read the other columns for those rows alone."""

    def choose(task: Task) -> tuple[TaskResult, late_materialization.Chosen | None]:
        context.cancel.check()
        docs, num_entries = select(leaf, task, context)
        chosen = late_materialization.choose(keys, task.target.columns, docs) if docs.pieces else None
        return TaskResult(None, docs.count, num_entries, matched(task, docs)), chosen

    results = Workers(context.pool, num_helpers).run(choose, tasks)
    chosen = [rows for _, rows in results if rows is not None]
    data = leaf.work.partial_schema.empty_table()
    if chosen:
        data = late_materialization.rows(leaf.work, keys, chosen, order_columns(keys))
    _check_partial(leaf.work, data, context.limits)
    return data, [result for result, _ in results]


def _share_keys(leaf: Leaf, tasks: Sequence[Task], workers: Workers) -> None:
    """Apply functions to distinct values once for each target, if several tasks would apply them to the same values."""
    for task, following in itertools.pairwise(tasks):
        target = task.target
        if task.start or following.target is not target:
            continue
        work = target.leaf(leaf).work
        keys = mapped_keys(work.keys, target.columns, workers.run, null_handling=work.null_handling)
        target.mapped.update(keys)


def _mergers(tables: Sequence[pa.Table], context: ExecutionContext) -> Workers:
    """Return as many threads as are worth waking for merging."""
    work = MERGED_ROWS * sum([table.num_rows for table in tables])
    num_threads = 1 if context.pool is None else min(context.threads, work // context.docs_per_thread)
    return Workers(context.pool, max(0, num_threads - 1), context.cancel.check)


def _check_partial(work: LeafWork, data: pa.Table, limits: ExecutionLimits) -> None:
    """Raise LimitExceededError if a partial answer is too large. All groups are counted, since LIMIT and HAVING may
    leave a few rows of many groups."""
    if work.max_bytes is not None:
        limits = replace(limits, max_bytes=min(limits.max_bytes, work.max_bytes))
    if work.kind is LeafKind.GROUP_BY:
        check_groups(limits, data.num_rows)
        check_size(limits, 0, data.nbytes)
    else:
        check_size(limits, data.num_rows, data.nbytes)


def _consuming(targets: Sequence[LeafTarget]) -> Sequence[LeafTarget]:
    """Return the targets that are rows of a stream without a file. Callers put them behind all other segments."""
    return [
        target
        for target in targets
        if isinstance(target.columns, SegmentColumns) and not target.columns.segment.key.crc
    ]


def _matched(tasks: Sequence[Task], results: Sequence[TaskResult]) -> Mapping[int, NDArray[np.bool_] | bool]:
    """Return which segments of each target have a matching doc, by the target's id. A target may have several tasks."""
    matched: dict[int, NDArray[np.bool_] | bool] = {}
    for task, result in zip(tasks, results, strict=False):
        matched[id(task.target)] = matched.get(id(task.target), False) | result.matched
    return matched


def _num_matched(matched: Iterable[NDArray[np.bool_] | bool]) -> int:
    return sum([int(np.count_nonzero(segments)) for segments in matched])


def _docs_to_visit(leaf: Leaf, target: LeafTarget) -> float:
    """Return the number of docs whose values the filter may have to read, or that are certain matches to be read."""
    num_docs = target.columns.num_docs
    node = target.node
    work = leaf.work
    if isinstance(node, All) and work.kind is LeafKind.AGGREGATION and not work.columns_after_filter:
        return 0.0
    nodes = node.children if isinstance(node, And) else (node,)
    shares = [child.share for child in nodes if isinstance(child, DocList | SpanMatch)]
    return num_docs * min(shares, default=1.0)


def _by_keys(leaf: Leaf, targets: Sequence[LeafTarget]) -> list[Task] | None:
    """Return a task for each range of keys of a single target with very many keys; None if docs are to be split
    instead."""
    if len(targets) != 1:
        return None
    (target,) = targets
    work = target.leaf(leaf).work
    if work.kind is not LeafKind.GROUP_BY:
        return None
    ranges = range_partitioned.split(work, target.columns, selects_all=isinstance(target.node, All))
    return None if ranges is None else [Task(target, 0, target.columns.num_docs, keys) for keys in ranges]


def _split(target: LeafTarget, num_targets: int, num_helpers: int, context: ExecutionContext) -> list[Task]:
    """Split a target into ranges of docs, so that few targets keep every thread busy."""
    num_docs = target.columns.num_docs
    if not num_helpers or num_targets >= 2 * context.threads or num_docs < 2 * MIN_SPLIT_DOCS:
        return [Task(target, 0, num_docs)]
    size = max(MIN_SPLIT_DOCS, -(-num_docs // (2 * context.threads) // BLOCK_DOCS) * BLOCK_DOCS)
    return [Task(target, start, min(start + size, num_docs)) for start in range(0, num_docs, size)]


def _work(leaf: Leaf, task: Task, context: ExecutionContext, total: int) -> TaskResult:
    """Run one task. `total` is the number of docs that all tasks look at."""
    context.cancel.check()
    docs, num_entries = select(leaf, task, context)
    if not docs.pieces:
        return TaskResult(None, 0, num_entries, False)
    columns, work = task.target.columns, task.target.leaf(leaf).work
    if work.kind is LeafKind.AGGREGATION:
        slots = aggregate(work, columns, docs, context)
    elif work.kind is LeafKind.SELECTION:
        slots = select_top(work, columns, docs)
    else:
        return _group(task, GroupTask(work, columns, docs, context), num_entries, total)
    return TaskResult(slots, docs.count, num_entries, matched(task, docs))


def _group(task: Task, docs: GroupTask, num_entries: int, total: int) -> TaskResult:
    has_match, num_docs = matched(task, docs.docs), docs.docs.count
    if task.keys is not None:
        columns = range_partitioned.group(docs, task.keys)
        return TaskResult(columns, num_docs if task.counts else 0, num_entries, has_match)
    groups = group(docs, task.target.mapped, total)
    return TaskResult(groups.columns, num_docs, num_entries, has_match, is_grouped=groups.is_grouped)


def _select_in_order(leaf: Leaf, tasks: Sequence[Task], context: ExecutionContext) -> list[TaskResult]:
    """Run task after task until there are enough rows."""
    results: list[TaskResult] = []
    wanted = leaf.work.rows_needed
    for task in tasks:
        if wanted <= 0:
            break
        context.cancel.check()
        docs, num_entries = select(leaf, task, context)
        num_rows = min(wanted, docs.count)
        check_size(context.limits, leaf.work.rows_needed - wanted + num_rows, 0)
        columns = select_first(task.target.leaf(leaf).work, task.target.columns, docs, num_rows) if num_rows else None
        results.append(TaskResult(columns, num_rows, num_entries, matched(task, docs)))
        wanted -= num_rows
    return results


def _num_helpers(leaf: Leaf, targets: Sequence[LeafTarget], context: ExecutionContext) -> int:
    """Return how many threads of the pool are worth waking beside the caller's."""
    if context.pool is None:
        return 0
    work = 0.0
    for target in targets:
        target_leaf = target.leaf(leaf)
        num_docs = _docs_to_visit(target_leaf, target)
        if num_docs:
            work += num_docs * _weight(target_leaf, target) + TEXT_DOCS * _num_mapped(target_leaf.work, target)
    return max(0, min(context.threads, int(work) // context.docs_per_thread) - 1)


def _weight(leaf: Leaf, target: LeafTarget) -> float:
    """Return the cost of a doc of the target, in docs of plain numbers."""
    if target.columns.stored_states is not None:
        return 1
    if _reads_texts(target.columns, leaf.columns_read):
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


def _reads_texts(columns: Columns, names: Iterable[str]) -> bool:
    """Return whether a column stores a text for each doc, of variable width, that has to be read."""
    readers = map(columns.reader, names)
    return any(reader.dictionary is None and not is_fixed_width(reader.type) for reader in readers)
