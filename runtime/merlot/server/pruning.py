"""Prune the segments of one request: all are judged at once, by statistics that are kept with the set of segments.

Runs in the query's thread. Statistics of a column are computed when a query first needs them. They live as long as
brokers ask for the same set of segments: while routes stay the same, and brokers do not prune themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from merlot.query.answer.partial import Partial
from merlot.query.plan.expressions import columns_of
from merlot.query.plan.nodes import Leaf, UpsertRows
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
"""Number of segments up to which statistics are not worth it: resolving the filter against each segment costs less."""
MAX_BLOOM_BYTES = 32 << 20
"""Bytes of the Bloom filters of one column that are kept with a set of segments."""


class SetStatistics:
    """Statistics of a set of open segments, column by column. Two threads may compute the same column; they agree."""

    def __init__(self, segments: Sequence[ImmutableSegment]) -> None:
        self._segments = segments
        self._schema: TableSchema | None = None
        self._statistics: SegmentStatistics | None = None

    def has(self, schema: TableSchema, leaf: Leaf) -> bool:
        """Return True if the statistics by which a leaf is pruned exist."""
        statistics = self._statistics if self._schema is schema else None
        if statistics is None or not _columns(leaf, schema) <= statistics.ranges.keys():
            return False
        return statistics.knows(monotone.functions_of(leaf.filter))

    def of(self, schema: TableSchema, columns: frozenset[str]) -> SegmentStatistics:
        """Return the statistics of at least these columns, as far as footers tell."""
        statistics = self._statistics if self._schema is schema else None
        if statistics is None:
            statistics = _counts_of(self._segments)
        missing = columns - statistics.ranges.keys()
        if missing:
            read = [segment.metadata for segment in self._segments]
            added = footers.statistics_of(read, schema, sorted(missing))
            statistics = replace(
                statistics,
                ranges={**statistics.ranges, **added.ranges},
                partitions={**statistics.partitions, **added.partitions},
                blooms={**statistics.blooms, **self._blooms(read, schema, missing)},
                null_counts={**statistics.null_counts, **added.null_counts},
            )
        self._schema, self._statistics = schema, statistics
        return statistics

    def _blooms(
        self, read: Sequence[SegmentMetadata], schema: TableSchema, columns: Iterable[str]
    ) -> dict[str, ColumnBlooms]:
        """Return the Bloom filters of the columns that have any."""
        names = [name for name in columns if schema.field(name) is not None]
        pairs = list(zip(self._segments, read, strict=True))
        filtered = [name for name in names if any(_may_have_bloom(*pair, name) for pair in pairs)]
        return {name: ColumnBlooms.of(_within_budget(pairs, name)) for name in filtered}


def _counts_of(segments: Sequence[ImmutableSegment]) -> SegmentStatistics:
    """Return the statistics that are known without reading footers."""
    num_docs = np.array([segment.num_docs for segment in segments], np.int64)
    is_empty = num_docs == 0
    return SegmentStatistics(
        num_segments=len(segments), is_empty=is_empty if is_empty.any() else None, num_docs=num_docs
    )


def _may_have_bloom(segment: ImmutableSegment, footer: SegmentMetadata, column: str) -> bool:
    """Return True if a column's reader may have a Bloom filter: the segment's file has one, or its sidecar may."""
    buffers_of = footer.columns.get(column)
    return buffers_of is not None and (bloom.WORDS in buffers_of.buffers or segment.sidecar is not None)


def _within_budget(
    segments: Sequence[tuple[ImmutableSegment, SegmentMetadata]], column: str
) -> list[SegmentBloom | None]:
    """Return a Bloom filter per segment. The set's copies of them take memory, so the last filters may be left out."""
    filters: list[SegmentBloom | None] = []
    num_bytes = 0
    for segment, footer in segments:
        reader = segment.column(column) if _may_have_bloom(segment, footer, column) else None
        words = None if reader is None else reader.index(bloom.INDEX)
        num_bytes += 0 if words is None else words.nbytes
        is_known = reader is not None and words is not None and len(words) > 0 and num_bytes <= MAX_BLOOM_BYTES
        filters.append(
            SegmentBloom(reader.type, words) if is_known and reader is not None and words is not None else None
        )
    return filters


@dataclass(frozen=True, slots=True)
class PrunedSegments:
    """Segments to run the leaf on, and the numbers of others that the request named."""

    segments: Sequence[Segment]
    positions: Sequence[int] | None = None
    """Positions of the segments in the request; None for all of them in order."""
    num_empty: int = 0
    num_by_value: int = 0
    num_by_limit: int = 0
    total_docs: int = 0
    """Docs of the segments left out."""

    def count(self, partial: Partial) -> Partial:
        """Return the partial answer with figures for all segments of the request."""
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
    """Return the columns by whose statistics segments of a leaf are pruned."""
    names = columns_of(leaf.filter) if leaf.filter is not None else frozenset()
    first = limits.order_column(leaf.work)
    return frozenset([name for name in (names if first is None else {*names, first}) if schema.field(name) is not None])


def _hide_rows(leaf: Leaf, segments: Sequence[Segment]) -> bool:
    """Return True if a segment may have fewer rows than docs: it is then unknown how many docs suffice for a LIMIT."""
    return leaf.work.rows is not UpsertRows.EVERY and any(segment.valid_docs is not EVERY_DOC for segment in segments)


def prune(leaf: Leaf, segments: Sequence[Segment], statistics: SetStatistics, schema: TableSchema) -> PrunedSegments:
    """Prune a request's segments."""
    if len(segments) <= FEW_SEGMENTS or leaf.work.skips_pruning:
        return PrunedSegments(segments)
    judged_by = statistics.of(schema, _columns(leaf, schema))
    verdicts = evaluate(leaf.filter, judged_by, null_handling=leaf.work.null_handling)
    needed = limits.needed(leaf.work, verdicts, judged_by)
    num_left, num_none = int(np.count_nonzero(needed)), int(np.count_nonzero(verdicts == NONE))
    # Asking every segment takes a tenth of a request's time, so it is done only where LIMIT has pruned some.
    if num_left + num_none < len(segments) and _hide_rows(leaf, segments):
        needed = verdicts != NONE
        num_left = len(segments) - num_none
    if num_left == len(segments):
        return PrunedSegments(segments)
    num_empty = 0 if judged_by.is_empty is None else int(np.count_nonzero(judged_by.is_empty))
    assert judged_by.num_docs is not None
    positions = np.flatnonzero(needed).tolist()
    return PrunedSegments(
        [segments[position] for position in positions],
        positions,
        num_empty=num_empty,
        num_by_value=num_none - num_empty,
        num_by_limit=len(segments) - num_none - num_left,
        total_docs=int(judged_by.num_docs[~needed].sum()),
    )
