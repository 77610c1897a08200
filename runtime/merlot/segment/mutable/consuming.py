"""A consuming segment: rows of a stream's partition from an offset on, which queries see as soon as they are appended.

One thread appends, splits and seals. Any thread takes snapshots; nothing it does makes the writer wait, nor the other
way round: a row counts once all of its columns are written, and what counts is never changed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.ids import SegmentKey, SegmentName
from merlot.segment.build.builder import build_segment, check_columns
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.build.rows import stored_column
from merlot.segment.metadata import MAX_DOCS, CreationFacts
from merlot.segment.mutable.column import ColumnPrefix, ConsumingColumn
from merlot.segment.mutable.offsets import RowOffsets
from merlot.segment.mutable.rows import PrefixRows, rows_since
from merlot.segment.reader import EVERY_DOC, Instants, ValidDocs


class _Extent(NamedTuple):
    """How far the segment has come; replaced as a whole."""

    num_docs: int
    next_offset: int
    newest_ms: int


class ConsumingSegment:
    """Rows so far."""

    def __init__(self, request: BuildRequest, start_offset: int) -> None:
        self.request = request
        """What the segment will be sealed as. Its owner may give it another name, and nothing else."""
        self.start_offset = start_offset
        indexing, fields = request.indexing, request.schema.fields
        self._columns = {field.name: ConsumingColumn(field, indexing.encoding_of(field.name)) for field in fields}
        self._offsets = RowOffsets()
        self._extent = _Extent(0, start_offset, 0)

    @property
    def key(self) -> SegmentKey:
        """`name@0`: it has no content crc while its rows arrive."""
        return SegmentKey(SegmentName(self.request.name), 0)

    @property
    def num_docs(self) -> int:
        """Rows that readers see."""
        return self._extent.num_docs

    @property
    def next_offset(self) -> int:
        """Where the stream goes on behind these rows."""
        return self._extent.next_offset

    @property
    def newest_ms(self) -> int:
        """When the newest message was made, or read if the stream does not say; 0: there is none, or nobody said."""
        return self._extent.newest_ms

    @property
    def memory_bytes(self) -> int:
        """Memory that the rows take: what was written, not the room that is kept for more."""
        num_docs = self.num_docs
        return self._offsets.nbytes + sum([column.nbytes(num_docs) for column in self._columns.values()])

    def append(self, rows: pa.Table, offsets: NDArray[np.int64], next_offset: int, newest_ms: int = 0) -> None:
        """Add rows of the schema, as `build_segment` takes them, with the stream's offset of each, never descending;
        `newest_ms` is when the last message was made, 0 if that is not known.

        All of them are seen from the end of the call on, or none: raises InvalidInputError if they do not fit the
        schema or the segment."""
        extent = self._extent
        self._check(rows, offsets, next_offset)
        stored = [stored_column(field, rows.column(field.name)) for field in self.request.schema.fields]
        for column in stored:
            self._columns[column.field.name].append(extent.num_docs, column)
        self._offsets.append(extent.num_docs, offsets)
        self._extent = _Extent(extent.num_docs + rows.num_rows, next_offset, newest_ms or extent.newest_ms)

    def snapshot(self, num_docs: int | None = None) -> ConsumingSnapshot:
        """The rows so far, or the first ones: once the segment has an end, what comes after is another one's. Any
        thread."""
        so_far = self.num_docs
        return ConsumingSnapshot(self, self.key, so_far if num_docs is None else min(num_docs, so_far))

    def column(self, name: str) -> ConsumingColumn | None:
        """A column, for readers of a prefix of it."""
        return self._columns.get(name)

    def docs_before(self, offset: int) -> int:
        """How many rows come from before an offset."""
        return self._offsets.docs_before(offset, self.num_docs)

    def offset_of(self, doc: int) -> int:
        """The stream's offset of a row."""
        return self._offsets.of(doc)

    def split(self, offset: int, request: BuildRequest) -> ConsumingSegment:
        """The rows from an offset on, as a segment of their own; this one keeps them too."""
        num_docs, next_offset, newest_ms = self._extent
        doc = self.docs_before(offset)
        tail = ConsumingSegment(request, offset)
        rows, offsets = rows_since(self._columns, doc, num_docs), self._offsets.since(doc, num_docs)
        tail.append(rows, offsets, max(offset, next_offset), newest_ms)
        return tail

    def rows(self, num_docs: int) -> pa.Table:
        """The first rows, as they came."""
        rows = PrefixRows(self._columns, num_docs)
        return pa.table({name: rows.column(name) for name in rows.column_names})

    def seal(self, folder: Path, num_docs: int, creation: CreationFacts | None = None) -> BuiltSegment:
        """Write the first rows as a batch would: equal rows make the same file whoever seals them, however they came.

        Any thread: readers and the writer go on meanwhile. Takes the memory of a column. Raises as `build_segment`."""
        request = replace(self.request, creation=creation or self.request.creation, leaves_out_large_trees=True)
        return build_segment(request, PrefixRows(self._columns, num_docs), folder)

    def _check(self, rows: pa.Table, offsets: NDArray[np.int64], next_offset: int) -> None:
        check_columns(self.request, rows)
        num_docs, expected, _ = self._extent
        name = self.request.name
        if num_docs + rows.num_rows > MAX_DOCS:
            raise InvalidInputError(f"too many rows for a segment segment={name} rows={num_docs + rows.num_rows}")
        if len(offsets) != rows.num_rows:
            raise InvalidInputError(f"rows without offsets segment={name} rows={rows.num_rows} offsets={len(offsets)}")
        if next_offset < expected or (len(offsets) and not _are_between(offsets, expected, next_offset)):
            raise InvalidInputError(f"offsets go back segment={name} expected={expected} next={next_offset}")


def _are_between(offsets: NDArray[np.int64], first: int, stop: int) -> bool:
    is_inside = int(offsets[0]) >= first and int(offsets[-1]) < stop
    return is_inside and bool(np.all(offsets[1:] >= offsets[:-1]))


class ConsumingSnapshot:
    """The first rows of a consuming segment, for one query; a `segment.reader.Segment`. Any thread."""

    is_open: Final = True
    valid_docs: Final[ValidDocs] = EVERY_DOC
    instants: Final = Instants()
    """Not known: rows still come."""

    def __init__(self, segment: ConsumingSegment, key: SegmentKey, num_docs: int) -> None:
        self._segment = segment
        self.key = key
        self.num_docs = num_docs

    def column(self, name: str) -> ColumnPrefix | None:
        """Reader of a column; None if the segment lacks it."""
        column = self._segment.column(name)
        return None if column is None else column.prefix(self.num_docs)

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Whole numbers between which every value of the column lies, if known."""
        column = self._segment.column(name)
        return None if column is None else column.bounds
