"""A plan over the segments of one server: tasks on the query's threads, partial answers merged exactly.

A task is a segment, or a range of docs of a large one, so that one segment too uses every thread. Tasks share nothing
but a queue; the caller works on them as well, so a busy pool delays a query and never stops it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.answer.combine import merge_tables
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.query.context import ExecutionContext, ExecutionLimits, TooMuchWorkError, check_groups, check_size
from merlot.query.filter.predicates import DocList, SpanMatch
from merlot.query.filter.resolve import All, And, Resolver
from merlot.query.operators.group_by import aggregate, group
from merlot.query.operators.selection import select_first, select_top
from merlot.query.plan.nodes import Leaf, LeafKind, LeafWork
from merlot.query.read.columns import Columns, SegmentColumns
from merlot.query.shortcuts import joined_segments, one_row
from merlot.query.star_trees import choice
from merlot.query.targets import Found, Sources, Target, Task, apart, can_match, matched, resolved, select, with_derived
from merlot.segment.arrow_types import is_fixed_width
from merlot.segment.index.zones import BLOCK_DOCS
from merlot.segment.reader import Segment

R = TypeVar("R")

MIN_SPLIT_DOCS = 4 * BLOCK_DOCS
"""Fewest docs of a task when a segment is split; a multiple of the zone maps' block."""
TEXT_DOCS = 16
"""As many docs is one with a text of its own worth."""


def execute(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> Partial:
    """The partial answer of these segments. Raises the errors of `context`, InvalidInputError for a bad plan."""
    # Without helpers this is a light query on an event loop: what it takes is its CPU time, and reading the thread's
    # clock, a system call, would be a tenth of it.
    clock_ns = time.perf_counter_ns if context.pool is None else time.thread_time_ns
    started = clock_ns()
    targets, alive, on_run = prepare(leaf, segments, context)
    if on_run is not None:
        on_run()
    num_helpers = _num_helpers(leaf, alive, context)
    tasks = [task for target in alive for task in _split(target, len(alive), num_helpers, context)]
    num_helpers = min(num_helpers, max(0, len(tasks) - 1))
    is_plain = not num_helpers and all(
        target.columns.stored_states is None and target.source.leaf is None for target in alive
    )
    taken_over = one_row.tally(leaf, tasks, context) if is_plain else None
    content, found = taken_over or _tables(leaf, tasks, num_helpers, context)
    processed = sum([target.num_segments for target in alive])
    with_docs = sum([target.num_segments for target in targets])
    num_docs = sum([one.num_docs for one in found])
    matched = _matched(tasks, found)
    consuming = _consuming(alive) if segments and not segments[-1].key.crc else ()
    stats = QueryStats(
        num_docs_scanned=num_docs,
        num_entries_scanned_in_filter=sum([one.num_entries for one in found]),
        num_entries_scanned_post_filter=num_docs * len(leaf.work.columns_after_filter),
        num_segments_matched=sum([int(np.count_nonzero(one)) for one in matched.values()]),
        num_consuming_segments_processed=len(consuming),
        num_consuming_segments_matched=sum([int(np.count_nonzero(matched.get(id(one), False))) for one in consuming]),
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
) -> tuple[list[Target], list[Target], Callable[[], None] | None]:
    """All targets, those that may hold a match, and what is to be called before they are run.

    Raises TooMuchWorkError if they hold more docs to look at than the caller wants."""
    sources = _sources(leaf, segments, context)
    every = with_derived(leaf, sources.every, context)
    targets = resolved(leaf, choice.instead(leaf, every, context, resolver), context, resolver)
    alive = [target for target in targets if can_match(leaf, target)]
    to_visit = sum([_docs_to_visit(target.leaf(leaf), target) for target in alive])
    if context.most_docs is not None and to_visit > context.most_docs:
        raise TooMuchWorkError(f"query looks at too many docs limit={context.most_docs}")
    return targets, alive, sources.on_run


def _sources(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> Sources:
    """The segments that have docs, small ones joined where that was done or is due."""
    with_docs = [segment for segment in segments if segment.num_docs]
    joined = joined_segments.sources(leaf, with_docs, context)
    return Sources(apart(with_docs, context)) if joined is None else joined


def _tables(
    leaf: Leaf, tasks: Sequence[Task], num_helpers: int, context: ExecutionContext
) -> tuple[pa.Table, list[Found]]:
    schema = leaf.work.partial_schema
    if leaf.work.kind is LeafKind.SELECTION and not leaf.work.order_by:
        found = _select_in_order(leaf, tasks, context)
    else:
        found = _run(tasks, lambda task: _work(leaf, task, context), num_helpers, context)
    tables = [pa.Table.from_arrays(one.columns, schema=schema) for one in found if one.columns is not None]
    data = merge_tables(leaf.work, tables) if tables else schema.empty_table()
    _check_partial(leaf.work, data, context.limits)
    return data, found


def _check_partial(work: LeafWork, data: pa.Table, limits: ExecutionLimits) -> None:
    """Raise LimitExceededError; groups are counted as groups, since LIMIT and HAVING may leave a few rows of many."""
    if work.max_bytes is not None:
        limits = replace(limits, max_bytes=min(limits.max_bytes, work.max_bytes))
    if work.kind is LeafKind.GROUP_BY:
        check_groups(limits, data.num_rows)
        check_size(limits, 0, data.nbytes)
    else:
        check_size(limits, data.num_rows, data.nbytes)


def _consuming(targets: Sequence[Target]) -> Sequence[Target]:
    """Those that are rows of streams, without a file: callers put them behind all others."""
    return [one for one in targets if isinstance(one.columns, SegmentColumns) and not one.columns.segment.key.crc]


def _matched(tasks: Sequence[Task], found: Sequence[Found]) -> Mapping[int, NDArray[np.bool_] | bool]:
    """Which segments of each target have a doc that matches, by its id; several tasks may have had a part of one."""
    matched: dict[int, NDArray[np.bool_] | bool] = {}
    for task, one in zip(tasks, found, strict=False):
        matched[id(task.target)] = matched.get(id(task.target), False) | one.matched
    return matched


def _docs_to_visit(leaf: Leaf, target: Target) -> float:
    """Docs that the filter may have to look at, or that are known to match and whose values are read."""
    num_docs = target.columns.num_docs
    node = target.node
    work = leaf.work
    if isinstance(node, All) and work.kind is LeafKind.AGGREGATION and not work.columns_after_filter:
        return 0.0
    nodes = node.children if isinstance(node, And) else (node,)
    return num_docs * min([one.share for one in nodes if isinstance(one, DocList | SpanMatch)], default=1.0)


def _split(target: Target, num_targets: int, num_helpers: int, context: ExecutionContext) -> list[Task]:
    """Ranges of docs, so that few targets keep every thread busy."""
    num_docs = target.columns.num_docs
    if not num_helpers or num_targets >= 2 * context.threads or num_docs < 2 * MIN_SPLIT_DOCS:
        return [Task(target, 0, num_docs)]
    size = max(MIN_SPLIT_DOCS, -(-num_docs // (2 * context.threads) // BLOCK_DOCS) * BLOCK_DOCS)
    return [Task(target, start, min(start + size, num_docs)) for start in range(0, num_docs, size)]


def _work(leaf: Leaf, task: Task, context: ExecutionContext) -> Found:
    context.cancel.check()
    docs, num_entries = select(leaf, task, context)
    if not docs.pieces:
        return Found(None, 0, num_entries, False)
    columns, work = task.target.columns, task.target.leaf(leaf).work
    match work.kind:
        case LeafKind.AGGREGATION:
            slots = aggregate(work, columns, docs, context)
        case LeafKind.GROUP_BY:
            slots = group(work, columns, docs, context)
        case LeafKind.SELECTION:
            slots = select_top(work, columns, docs)
    return Found(slots, docs.count, num_entries, matched(task, docs))


def _select_in_order(leaf: Leaf, tasks: Sequence[Task], context: ExecutionContext) -> list[Found]:
    """Segment after segment until enough rows are found."""
    found: list[Found] = []
    wanted = leaf.work.rows_needed
    for task in tasks:
        if wanted <= 0:
            break
        context.cancel.check()
        docs, num_entries = select(leaf, task, context)
        num_rows = min(wanted, docs.count)
        check_size(context.limits, leaf.work.rows_needed - wanted + num_rows, 0)
        columns = select_first(task.target.leaf(leaf).work, task.target.columns, docs, num_rows) if num_rows else None
        found.append(Found(columns, num_rows, num_entries, matched(task, docs)))
        wanted -= num_rows
    return found


def _num_helpers(leaf: Leaf, targets: Sequence[Target], context: ExecutionContext) -> int:
    """Threads of the pool worth waking beside the caller's."""
    if context.pool is None:
        return 0
    work = 0.0
    for target in targets:
        asked = target.leaf(leaf)
        names, num_docs = asked.columns_read, _docs_to_visit(asked, target)
        work += num_docs * TEXT_DOCS if num_docs and _reads_texts(target.columns, names) else num_docs
    return max(0, min(context.threads, int(work) // context.docs_per_thread) - 1)


def _reads_texts(columns: Columns, names: Iterable[str]) -> bool:
    """Whether there is a column of which every doc's text has to be looked at."""
    if columns.stored_states is not None:
        return False
    readers = map(columns.reader, names)
    return any(reader.dictionary is None and not is_fixed_width(reader.type) for reader in readers)


def _run(tasks: Sequence[Task], work: Callable[[Task], R], num_helpers: int, context: ExecutionContext) -> list[R]:
    """Results in the order of tasks; the first error is raised, after helpers stopped."""
    if not num_helpers:
        return [work(task) for task in tasks]
    results: list[R | None] = [None] * len(tasks)
    queue = _Queue(iter(range(len(tasks))))

    def drain() -> None:
        try:
            while (number := queue.take()) is not None:
                results[number] = work(tasks[number])
        except BaseException:
            queue.close()
            raise

    assert context.pool is not None
    futures: list[Future[None]] = [context.pool.submit(drain) for _ in range(num_helpers)]
    try:
        drain()
    finally:
        errors = [future.exception() for future in futures if not future.cancel()]
    for error in errors:
        if error is not None:
            raise error
    return [result for result in results if result is not None]


class _Queue:
    """Numbers of tasks not yet taken."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._lock = threading.Lock()
        self._closed = False

    def take(self) -> int | None:
        with self._lock:
            return None if self._closed else next(self._numbers, None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
