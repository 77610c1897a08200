"""Execution of a plan's leaf over the segments of one server: sources, targets, tasks, and a partial answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from merlot.query.answer.partial import Partial
from merlot.query.context import ExecutionContext, TooMuchWorkError
from merlot.query.cost import docs_to_visit, num_helpers
from merlot.query.filter.resolve import Resolver
from merlot.query.plan.nodes import Leaf
from merlot.query.shortcuts import coalesced_segments, scalar_aggregates
from merlot.query.star_trees import choice
from merlot.query.statistics import statistics
from merlot.query.targets import LeafTargets, Sources, apart, can_match, resolved, with_derived
from merlot.query.tasks import run, split
from merlot.segment.reader import Segment
from merlot.vectors import account


def execute(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> Partial:
    """Return the partial answer of these segments. Raises the errors of `context`, and InvalidInputError for a bad
    plan."""
    # Without a pool this is a light query on an event loop, whose elapsed time is its CPU time. Reading the thread's
    # CPU clock, a system call, would take a tenth of it.
    clock_ns = time.perf_counter_ns if context.pool is None else time.thread_time_ns
    started = clock_ns()
    with account.Working(context.limits.work_bytes, context.cancel.check):
        targets = prepare(leaf, segments, context)
        targets.on_run()
        helpers = num_helpers(leaf, targets.alive, context)
        tasks = split(leaf, targets.alive, helpers, context)
        helpers = min(helpers, max(0, len(tasks) - 1))
        row = None if helpers else scalar_aggregates.tally(leaf, tasks, context)
        content, results = row or run(leaf, tasks, helpers, context)
        stats = statistics(leaf.work, segments, targets, tasks, results, clock_ns() - started)
    return Partial(content, stats)


def prepare(
    leaf: Leaf,
    segments: Sequence[Segment],
    context: ExecutionContext,
    resolver: Callable[..., Resolver] = Resolver,
) -> LeafTargets:
    """Resolve the leaf's filter against each of its sources.

    Raise TooMuchWorkError if the filter has to look at more docs than `context.most_docs`."""
    sources = _sources(leaf, segments, context)
    every = with_derived(leaf, sources.every, context)
    targets = resolved(leaf, choice.replace_with_trees(leaf, every, context, resolver), context, resolver)
    alive = [target for target in targets if can_match(leaf, target)]
    to_visit = sum([docs_to_visit(target.leaf(leaf), target) for target in alive])
    if context.most_docs is not None and to_visit > context.most_docs:
        raise TooMuchWorkError(f"query looks at too many docs limit={context.most_docs}")
    return LeafTargets(targets, alive, sources.on_run)


def _sources(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> Sources:
    """Return the segments that have docs. Small segments are coalesced if their columns already are, or if coalescing
    them is due."""
    with_docs = [segment for segment in segments if segment.num_docs]
    coalesced = coalesced_segments.sources(leaf, with_docs, context)
    return Sources(apart(with_docs, context)) if coalesced is None else coalesced
