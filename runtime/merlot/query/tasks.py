"""Tasks of a leaf: targets are split into them, the query's threads run them, and their results are merged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from merlot.query import cost
from merlot.query.answer.combine import merge_tables, order_columns
from merlot.query.context import ExecutionContext, ExecutionLimits, check_groups, check_size
from merlot.query.filter.resolve import All
from merlot.query.operators import late_materialization
from merlot.query.operators.aggregate import aggregate
from merlot.query.operators.grouping import range_partitioned
from merlot.query.operators.grouping.groups import GroupTask
from merlot.query.operators.grouping.keys import mapped_keys
from merlot.query.operators.grouping.run import group
from merlot.query.operators.selection import select_first, select_top
from merlot.query.plan.nodes import Leaf, LeafKind, LeafWork
from merlot.query.targets import LeafTarget, Task, TaskResult, matched, select
from merlot.query.workers import Workers
from merlot.segment.index.zones import BLOCK_DOCS
from merlot.vectors import account

MIN_SPLIT_DOCS = 4 * BLOCK_DOCS
"""Fewest docs of a task when a segment is split; a multiple of the zone maps' block."""


def split(leaf: Leaf, targets: Sequence[LeafTarget], num_helpers: int, context: ExecutionContext) -> list[Task]:
    """Split targets into tasks, by ranges of keys or of docs."""
    tasks = _by_keys(leaf, targets)
    if tasks is not None:
        return tasks
    return [task for target in targets for task in _by_docs(target, len(targets), num_helpers, context)]


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


def _by_docs(target: LeafTarget, num_targets: int, num_helpers: int, context: ExecutionContext) -> list[Task]:
    """Split a target into ranges of docs, so that few targets keep every thread busy."""
    num_docs = target.columns.num_docs
    if not num_helpers or num_targets >= 2 * context.threads or num_docs < 2 * MIN_SPLIT_DOCS:
        return [Task(target, 0, num_docs)]
    size = max(MIN_SPLIT_DOCS, -(-num_docs // (2 * context.threads) // BLOCK_DOCS) * BLOCK_DOCS)
    return [Task(target, start, min(start + size, num_docs)) for start in range(0, num_docs, size)]


def run(
    leaf: Leaf, tasks: Sequence[Task], num_helpers: int, context: ExecutionContext
) -> tuple[pa.Table, list[TaskResult]]:
    """Run the tasks on this thread and `num_helpers` of the pool; return the merged slots, and the tasks' results."""
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
    num_mergers = cost.num_mergers(sum([table.num_rows for table in tables]), context)
    workers = Workers(context.pool, num_mergers, context.cancel.check)
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


def _work(leaf: Leaf, task: Task, context: ExecutionContext, total: int) -> TaskResult:
    """Run one task, and hold nothing but its result afterwards. `total` is the number of docs that all tasks look
    at."""
    mark = account.current().held_bytes
    return _settled(_computed(leaf, task, context, total), mark)


def _settled(result: TaskResult, mark: int) -> TaskResult:
    """Charge the columns of a finished task together, each of which may be too small to be counted."""
    num_bytes = sum([column.nbytes for column in result.columns or ()])
    account.current().settle("partial answers", mark, num_bytes)
    return result


def _computed(leaf: Leaf, task: Task, context: ExecutionContext, total: int) -> TaskResult:
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
        mark = account.current().held_bytes
        docs, num_entries = select(leaf, task, context)
        num_rows = min(wanted, docs.count)
        check_size(context.limits, leaf.work.rows_needed - wanted + num_rows, 0)
        columns = select_first(task.target.leaf(leaf).work, task.target.columns, docs, num_rows) if num_rows else None
        results.append(_settled(TaskResult(columns, num_rows, num_entries, matched(task, docs)), mark))
        wanted -= num_rows
    return results
