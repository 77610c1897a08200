"""A segment of which some docs are no rows of the table: what readers of an upsert table are handed.

Columns, bounds and docs are the segment's own. Whoever goes through its docs asks `valid_docs`, as of every segment;
there is no other way to the segment, so nothing that reads it can forget them. Any thread.
"""

from __future__ import annotations

from merlot.ids import SegmentKey
from merlot.segment.reader import Instants, RowReader, Segment, ValidDocs


class PartlyValid:
    """A segment with the docs of it that count; a `segment.reader.Segment`."""

    def __init__(self, segment: Segment, valid_docs: ValidDocs) -> None:
        self._segment = segment
        self.valid_docs = valid_docs
        self.num_docs = segment.num_docs

    @property
    def key(self) -> SegmentKey:
        return self._segment.key

    @property
    def instants(self) -> Instants:
        """When it was made, and of when its rows are: of docs that do not count as well."""
        return self._segment.instants

    def column(self, name: str) -> RowReader | None:
        """Reader of a column; None if the segment lacks it."""
        return self._segment.column(name)

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Whole numbers between which every value lies, of docs that do not count as well."""
        return self._segment.bounds(name)
