"""Views that queries have of an upsert table of batches: editions of its partitions, each with its valid docs.

A request names the edition of each partition that it asks for, `upsert/3@<digest>`, beside those segments of it that
its filter may need. So its whole answer is of one set of segments, the set that its broker routes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import Segment, SomeDocs
from merlot.segment.segment_view import SegmentView
from merlot.server.realtime.partition_log import ResolvedRows
from merlot.server.realtime.views import fitted
from merlot.upsert.valid_docs import ValidDocsView

NOTHING: Final = ResolvedRows(keys=(), rows=())
"""Rows of an edition beside those of its segments: none."""


@dataclass(frozen=True)
class EditionView:
    """Valid docs of one edition of a partition. Any thread."""

    key: str
    numbers: Mapping[str, int]
    """Numbers of the segments in the cut, by `name@crc`."""
    cut: ValidDocsView
    _valid_docs: dict[str, SomeDocs] = field(default_factory=dict)

    def masked(self, segment: Segment) -> Segment:
        """Return a segment of the edition masked with its valid docs."""
        key = str(segment.key)
        valid = self._valid_docs.get(key)
        if valid is None:
            valid = self._valid_docs[key] = self._valid(self.numbers[key], segment.num_docs)
        return SegmentView(segment, valid)

    def _valid(self, number: int, num_docs: int) -> SomeDocs:
        newest, every = self.cut.queryable(number), self.cut.valid(number)
        return SomeDocs(fitted(newest, num_docs), None if every is newest else fitted(every, num_docs))


class EditionReadView:
    """Read view for one request; implements `server.tables.ReadView`. Segments are handed out by the editions that the
    request has named."""

    def __init__(self, views: Mapping[str, EditionView]) -> None:
        self._views = views
        self._named: list[EditionView] = []

    def resolve(self, key: str) -> ResolvedRows | None:
        """Take an edition; None if it is not known here."""
        view = self._views.get(key)
        if view is None:
            return None
        self._named.append(view)
        return NOTHING

    def behind(self, keys: Iterable[str]) -> Sequence[tuple[str, ResolvedRows | None]]:
        """Return nothing: an edition is complete."""
        return ()

    def masked(self, segment: ImmutableSegment) -> Segment | None:
        """Return a segment masked with its valid docs; None if it is in no edition that was named."""
        key = str(segment.key)
        return next((view.masked(segment) for view in self._named if key in view.numbers), None)
