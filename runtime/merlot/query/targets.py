"""What a leaf runs over: segments, alone or joined, with the filter resolved against each, cut into tasks."""

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
from merlot.query.operators.group_keys import Key
from merlot.query.plan import derived
from merlot.query.plan.nodes import Leaf
from merlot.query.read.columns import Columns, SegmentColumns
from merlot.segment.reader import Segment
from merlot.tree.nodes import Expr


@dataclass(frozen=True, slots=True)
class Source:
    """Docs to look at: a segment, or small ones seen as one."""

    columns: Columns
    starts: NDArray[np.int64] | None = None
    """First doc of each segment in it, and the number of all docs; None of a segment by itself."""
    live: Live | None = None
    """The docs that the query's filter keeps, if they are known already."""
    num_joined: int = 1
    """Segments in it where `starts` is None: of which of them a doc is, is not known then."""
    leaf: Leaf | None = None
    """What the query comes to here, where expressions are columns that the segment has computed; None: the query's own
    leaf. Slots are the same."""

    @property
    def is_joined(self) -> bool:
        return self.starts is not None or self.num_joined > 1


@dataclass(frozen=True, slots=True)
class Sources:
    """All docs of a query."""

    every: Sequence[Source]
    on_run: Callable[[], None] | None = None
    """To be called once the query is sure to run here."""


@dataclass(frozen=True, slots=True)
class Target:
    """A source with its resolved filter."""

    source: Source
    live: Live
    mapped: dict[Expr, Key] = field(default_factory=dict)
    """Group keys that its tasks share."""

    @property
    def node(self) -> Node:
        """The filter, to look at; `live` is what runs."""
        return self.live.node

    @property
    def columns(self) -> Columns:
        return self.source.columns

    def leaf(self, leaf: Leaf) -> Leaf:
        """What is run over it of a query's leaf."""
        return self.source.leaf or leaf

    @property
    def num_segments(self) -> int:
        starts = self.source.starts
        return self.source.num_joined if starts is None else len(starts) - 1


@dataclass(frozen=True, slots=True)
class Task:
    """Docs [start, stop) of a target."""

    target: Target
    start: int
    stop: int
    keys: range | None = None
    """Packed keys of the groups that it is to find, while other tasks find the others of these docs; None: all."""

    @property
    def counts(self) -> bool:
        """Whether its docs are not counted by another task."""
        return self.keys is None or not self.keys.start


@dataclass(frozen=True, slots=True)
class Found:
    """What one task found: slot columns (None if no doc matched), matching docs, entries looked at."""

    columns: Sequence[pa.Array | pa.ChunkedArray] | None
    num_docs: int
    num_entries: int
    matched: NDArray[np.bool_] | bool
    """Which segments of the target hold a match; a target of one, whether it does."""
    is_grouped: bool = True
    """Whether equal keys are one row."""


def apart(segments: Sequence[Segment], context: ExecutionContext) -> list[Source]:
    """Each segment by itself."""
    return [Source(SegmentColumns(segment, context.schema, context.host)) for segment in segments]


def with_derived(leaf: Leaf, sources: Sequence[Source], context: ExecutionContext) -> Sequence[Source]:
    """The sources; those that have computed what the leaf would compute read that."""
    asked = derived.asked_for(leaf, context.indexing, context.schema)
    if not asked:
        return sources
    forms: dict[frozenset[derived.Computed], Leaf | None] = {frozenset(): None}
    found = []
    for source in sources:
        columns = _computed(source, asked)
        if columns not in forms:
            forms[columns] = derived.with_columns(leaf, columns)
        found.append(replace(source, leaf=forms[columns]))
    return found


def _computed(source: Source, asked: frozenset[derived.Computed]) -> frozenset[derived.Computed]:
    """The derived columns that a source has."""
    columns = source.columns
    if not isinstance(columns, SegmentColumns):
        return frozenset()
    return frozenset(one for one in asked if columns.has_derived(one.derived.name, one.unit))


def resolved(
    leaf: Leaf, sources: Sequence[Source], context: ExecutionContext, resolver: Callable[..., Resolver] = Resolver
) -> list[Target]:
    """The filter against each source."""
    targets = []
    for source in sources:
        context.cancel.check()
        live = source.live
        if live is None:
            with_nulls = leaf.work.null_handling
            one = resolver(source.columns, null_handling=with_nulls, indexing=context.indexing)
            live = one.live((source.leaf or leaf).filter, leaf.work.rows)
        targets.append(Target(source, live))
    return targets


def can_match(leaf: Leaf, target: Target) -> bool:
    """Whether a target is to be run at all."""
    return leaf.work.skips_pruning or not isinstance(target.node, Nothing)


def select(leaf: Leaf, task: Task, context: ExecutionContext) -> tuple[DocSet, int]:
    """Docs that the filter keeps, and how many entries were looked at."""
    run = FilterRun(task.target.columns, leaf.work.null_handling, context.cancel)
    docs = run.select(task.target.live, task.start, task.stop)
    return docs, run.num_entries


def matched(task: Task, docs: DocSet) -> NDArray[np.bool_] | bool:
    """`Found.matched` of a task's docs."""
    starts, num_joined = task.target.source.starts, task.target.source.num_joined
    if num_joined > 1:
        # Documents of joined trees stand for rows of any of the segments.
        return np.full(num_joined, bool(docs.pieces))
    return bool(docs.pieces) if starts is None or not docs.pieces else docs.has_docs(starts)
