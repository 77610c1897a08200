"""Leaves out the segments of one request that cannot matter: all judged at once, by statistics kept with the set.

Runs in the query's thread. Statistics of a column are made when a query first needs them and live as long as brokers
ask for the same set of segments, which they do while routes stay the same and they do not prune themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from merlot.query.answer.partial import Partial
from merlot.query.plan.expressions import columns_of
from merlot.query.plan.nodes import Leaf, Rows
from merlot.query.pruning import footers, limits, monotone
from merlot.query.pruning.blooms import ColumnBlooms, SegmentBloom
from merlot.query.pruning.evaluate import evaluate
from merlot.query.pruning.statistics import SegmentStatistics
from merlot.query.pruning.verdicts import NONE
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index import bloom
from merlot.segment.metadata import SegmentMetadata
from merlot.segment.reader import EVERY_DOC, Segment
from merlot.spec.schema import TableSchema

FEW_SEGMENTS = 4
"""Up to this many are not worth statistics: resolving the filter against each costs less."""
MAX_BLOOM_BYTES = 32 << 20
"""Of the filters of one column that are kept with a set of segments."""


class SetStatistics:
    """Statistics of a set of open segments, column by column. Two threads may make the same column; they agree."""

    def __init__(self, segments: Sequence[ImmutableSegment]) -> None:
        self._segments = segments
        self._schema: TableSchema | None = None
        self._known: SegmentStatistics | None = None

    def has(self, schema: TableSchema, leaf: Leaf) -> bool:
        """Whether what a leaf is judged by was made before."""
        known = self._known if self._schema is schema else None
        if known is None or not _columns(leaf, schema) <= known.ranges.keys():
            return False
        return known.knows(monotone.functions_of(leaf.filter))

    def of(self, schema: TableSchema, columns: frozenset[str]) -> SegmentStatistics:
        """At least of these columns, as far as footers tell."""
        known = self._known if self._schema is schema else None
        if known is None:
            known = _counts_of(self._segments)
        missing = columns - known.ranges.keys()
        if missing:
            read = [segment.metadata for segment in self._segments]
            made = footers.statistics_of(read, schema, sorted(missing))
            known = replace(
                known,
                ranges={**known.ranges, **made.ranges},
                partitions={**known.partitions, **made.partitions},
                blooms={**known.blooms, **self._blooms(read, schema, missing)},
                null_counts={**known.null_counts, **made.null_counts},
            )
        self._schema, self._known = schema, known
        return known

    def _blooms(
        self, read: Sequence[SegmentMetadata], schema: TableSchema, columns: Iterable[str]
    ) -> dict[str, ColumnBlooms]:
        """Filters of the columns that have any."""
        names = [name for name in columns if schema.field(name) is not None]
        pairs = list(zip(self._segments, read, strict=True))
        asked = [name for name in names if any(_may_have_bloom(*pair, name) for pair in pairs)]
        return {name: ColumnBlooms.of(_within_budget(pairs, name)) for name in asked}


def _counts_of(segments: Sequence[ImmutableSegment]) -> SegmentStatistics:
    """What is known without a look at footers."""
    num_docs = np.array([segment.num_docs for segment in segments], np.int64)
    is_empty = num_docs == 0
    return SegmentStatistics(
        num_segments=len(segments), is_empty=is_empty if is_empty.any() else None, num_docs=num_docs
    )


def _may_have_bloom(segment: ImmutableSegment, footer: SegmentMetadata, column: str) -> bool:
    """Whether a column's reader has to be asked: the segment's file has a filter, or another one beside it may."""
    known = footer.columns.get(column)
    return known is not None and (bloom.WORDS in known.buffers or segment.sidecar is not None)


def _within_budget(
    segments: Sequence[tuple[ImmutableSegment, SegmentMetadata]], column: str
) -> list[SegmentBloom | None]:
    """A filter by segment; the set's copies of them take memory, so the last ones may be left out."""
    found: list[SegmentBloom | None] = []
    num_bytes = 0
    for segment, footer in segments:
        reader = segment.column(column) if _may_have_bloom(segment, footer, column) else None
        words = None if reader is None else reader.index(bloom.INDEX)
        num_bytes += 0 if words is None else words.nbytes
        is_known = reader is not None and words is not None and len(words) > 0 and num_bytes <= MAX_BLOOM_BYTES
        found.append(
            SegmentBloom(reader.type, words) if is_known and reader is not None and words is not None else None
        )
    return found


@dataclass(frozen=True, slots=True)
class Kept:
    """Segments to run the leaf on, and how many others the request named."""

    segments: Sequence[Segment]
    positions: Sequence[int] | None = None
    """Of the segments in the request; None: all of them, one after another."""
    num_empty: int = 0
    num_by_value: int = 0
    num_by_limit: int = 0
    total_docs: int = 0
    """Of those left out."""

    def count(self, partial: Partial) -> Partial:
        """The partial answer with figures for all segments of the request."""
        stats = partial.stats
        num_pruned = self.num_empty + self.num_by_value + self.num_by_limit
        if not num_pruned:
            return partial
        counted = replace(
            stats,
            num_segments_queried=stats.num_segments_queried + num_pruned,
            num_segments_pruned_by_server=stats.num_segments_pruned_by_server + num_pruned,
            num_segments_pruned_by_value=stats.num_segments_pruned_by_value + self.num_by_value,
            num_segments_pruned_by_limit=stats.num_segments_pruned_by_limit + self.num_by_limit,
            total_docs=stats.total_docs + self.total_docs,
        )
        return Partial(partial.content, counted)


def _columns(leaf: Leaf, schema: TableSchema) -> frozenset[str]:
    """By whose statistics segments of a leaf are judged."""
    names = columns_of(leaf.filter) if leaf.filter is not None else frozenset()
    first = limits.order_column(leaf.work)
    return frozenset([name for name in (names if first is None else {*names, first}) if schema.field(name) is not None])


def _hide_rows(leaf: Leaf, segments: Sequence[Segment]) -> bool:
    """Whether a segment may have fewer rows than docs: nobody knows then how many of them suffice for a LIMIT."""
    return leaf.work.rows is not Rows.EVERY and any(one.valid_docs is not EVERY_DOC for one in segments)


def prune(leaf: Leaf, segments: Sequence[Segment], statistics: SetStatistics, schema: TableSchema) -> Kept:
    """What is left of a request's segments."""
    if len(segments) <= FEW_SEGMENTS or leaf.work.skips_pruning:
        return Kept(segments)
    known = statistics.of(schema, _columns(leaf, schema))
    verdicts = evaluate(leaf.filter, known, null_handling=leaf.work.null_handling)
    needed = limits.needed(leaf.work, verdicts, known)
    num_left, num_none = int(np.count_nonzero(needed)), int(np.count_nonzero(verdicts == NONE))
    # To ask every segment takes a tenth of a request's time, so it is done where LIMIT has left some out.
    if num_left + num_none < len(segments) and _hide_rows(leaf, segments):
        needed = verdicts != NONE
        num_left = len(segments) - num_none
    if num_left == len(segments):
        return Kept(segments)
    num_empty = 0 if known.is_empty is None else int(np.count_nonzero(known.is_empty))
    assert known.num_docs is not None
    positions = np.flatnonzero(needed).tolist()
    return Kept(
        [segments[position] for position in positions],
        positions,
        num_empty=num_empty,
        num_by_value=num_none - num_empty,
        num_by_limit=len(segments) - num_none - num_left,
        total_docs=int(known.num_docs[~needed].sum()),
    )
