"""Targets of a leaf: segments, alone or coalesced, with the filter resolved against each, split into tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.context import ExecutionContext
from merlot.query.filter.docset import DocSet
from merlot.query.filter.resolve import Live, Node, Nothing, Resolver
from merlot.query.filter.run import FilterRun
from merlot.query.operators.grouping.keys import GroupKey
from merlot.query.plan import derived
from merlot.query.plan.nodes import Leaf
from merlot.query.read.columns import Columns, SegmentColumns
from merlot.segment.reader import Segment
from merlot.tree.nodes import Expr


@dataclass(frozen=True, slots=True)
class LeafSource:
    """Docs of a segment, or of coalesced segments, or the star-tree documents that stand for them."""

    columns: Columns
    starts: NDArray[np.int64] | None = None
    """First doc of each coalesced segment, and the number of all docs; None for a segment by itself."""
    live: Live | None = None
    """Docs that the query's filter keeps, if they were found already."""
    num_coalesced: int = 1
    """Number of coalesced segments if `starts` is None. It is then unknown which of them a doc belongs to."""
    leaf: Leaf | None = None
    """Form of the query's leaf for this source, with derived columns of the segment in place of expressions; None: the
    query's own leaf. Slots are the same."""

    @property
    def is_coalesced(self) -> bool:
        return self.starts is not None or self.num_coalesced > 1


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of a query that together hold all its docs."""

    every: Sequence[LeafSource]
    on_run: Callable[[], None] = lambda: None
    """Function that is called once the query is sure to run here."""


@dataclass(frozen=True, slots=True)
class LeafTarget:
    """Source with its resolved filter."""

    source: LeafSource
    live: Live
    mapped: dict[Expr, GroupKey] = field(default_factory=dict)
    """Group keys that the target's tasks share."""

    @property
    def node(self) -> Node:
        """Resolved filter for inspection; `live` is what runs."""
        return self.live.node

    @property
    def columns(self) -> Columns:
        return self.source.columns

    def leaf(self, leaf: Leaf) -> Leaf:
        """Return the form of a query's leaf that runs over this target."""
        return self.source.leaf or leaf

    @property
    def num_segments(self) -> int:
        starts = self.source.starts
        return self.source.num_coalesced if starts is None else len(starts) - 1


@dataclass(frozen=True, slots=True)
class LeafTargets:
    """Targets of a query."""

    every: Sequence[LeafTarget]
    alive: Sequence[LeafTarget]
    """Targets that may hold a match."""
    on_run: Callable[[], None]
    """Function that is called once the query is sure to run here."""


@dataclass(frozen=True, slots=True)
class Task:
    """Docs [start, stop) of a target."""

    target: LeafTarget
    start: int
    stop: int
    keys: range | None = None
    """Packed keys of the groups that this task computes, while other tasks compute other groups of the same docs; None:
    all."""

    @property
    def counts(self) -> bool:
        """True unless another task counts the same docs."""
        return self.keys is None or not self.keys.start


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of one task: slot columns (None if no doc matched), number of matching docs, number of entries read."""

    columns: Sequence[pa.Array | pa.ChunkedArray] | None
    num_docs: int
    num_entries: int
    matched: NDArray[np.bool_] | bool
    """Segments of the target that hold a match; for a target of one segment, whether it does."""
    is_grouped: bool = True
    """True if each key has one row."""


def apart(segments: Sequence[Segment], context: ExecutionContext) -> list[LeafSource]:
    """Return a source for each segment by itself."""
    return [LeafSource(SegmentColumns(segment, context.schema, context.host)) for segment in segments]


def with_derived(leaf: Leaf, sources: Sequence[LeafSource], context: ExecutionContext) -> Sequence[LeafSource]:
    """Return the sources; those with derived columns that the leaf would compute read those columns instead."""
    wanted = derived.derived_columns_of(leaf, context.indexing, context.schema)
    if not wanted:
        return sources
    forms: dict[frozenset[derived.Computed], Leaf | None] = {frozenset(): None}
    replaced = []
    for source in sources:
        columns = _computed(source, wanted)
        if columns not in forms:
            forms[columns] = derived.with_columns(leaf, columns)
        replaced.append(replace(source, leaf=forms[columns]))
    return replaced


def _computed(source: LeafSource, wanted: frozenset[derived.Computed]) -> frozenset[derived.Computed]:
    """Return the derived columns that a source has."""
    columns = source.columns
    if not isinstance(columns, SegmentColumns):
        return frozenset()
    return frozenset(column for column in wanted if columns.has_derived(column.derived.name, column.unit))


def resolved(
    leaf: Leaf, sources: Sequence[LeafSource], context: ExecutionContext, resolver: Callable[..., Resolver] = Resolver
) -> list[LeafTarget]:
    """Resolve the filter against each source."""
    targets = []
    for source in sources:
        context.cancel.check()
        live = source.live
        if live is None:
            with_nulls = leaf.work.null_handling
            source_resolver = resolver(source.columns, null_handling=with_nulls, indexing=context.indexing)
            live = source_resolver.live((source.leaf or leaf).filter, leaf.work.rows)
        targets.append(LeafTarget(source, live))
    return targets


def can_match(leaf: Leaf, target: LeafTarget) -> bool:
    """Return whether a target has to run at all."""
    return leaf.work.skips_pruning or not isinstance(target.node, Nothing)


def select(leaf: Leaf, task: Task, context: ExecutionContext) -> tuple[DocSet, int]:
    """Return the docs that pass the filter, and the number of entries read."""
    run = FilterRun(task.target.columns, leaf.work.null_handling, context.cancel)
    docs = run.select(task.target.live, task.start, task.stop)
    return docs, run.num_entries


def matched(task: Task, docs: DocSet) -> NDArray[np.bool_] | bool:
    """Return `TaskResult.matched` for a task's docs."""
    starts, num_coalesced = task.target.source.starts, task.target.source.num_coalesced
    if num_coalesced > 1:
        # Documents of a coalesced tree stand for rows of any of its segments.
        return np.full(num_coalesced, bool(docs.pieces))
    return bool(docs.pieces) if starts is None or not docs.pieces else docs.has_docs(starts)
