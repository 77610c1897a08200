"""A segment of which only some docs are rows of the table, as readers of an upsert table get it.

Columns, bounds and docs are the segment's own, invalid docs included. Code that iterates over docs has to ask for
`valid_docs`, as with every segment. Any thread.
"""

from __future__ import annotations

from merlot.ids import SegmentKey
from merlot.segment.reader import Instants, RowReader, Segment, ValidDocs


class SegmentView:
    """A segment and its valid docs; a `segment.reader.Segment`."""

    def __init__(self, segment: Segment, valid_docs: ValidDocs) -> None:
        self._segment = segment
        self.valid_docs = valid_docs
        self.num_docs = segment.num_docs

    @property
    def key(self) -> SegmentKey:
        return self._segment.key

    @property
    def instants(self) -> Instants:
        """Creation time of the segment, and the first and last time of its rows, invalid docs included."""
        return self._segment.instants

    def column(self, name: str) -> RowReader | None:
        """Return the reader of a column; None if the segment lacks it."""
        return self._segment.column(name)

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Return whole numbers between which every value lies, invalid docs included."""
        return self._segment.bounds(name)
