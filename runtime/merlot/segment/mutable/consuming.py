"""A consuming segment: rows of a stream's partition from an offset on, which queries see as soon as they are appended.

One thread appends and splits; any thread takes snapshots and seals. Readers and the writer never wait for each other: a
row counts once all of its columns are written, and rows that count never change.
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
    """Number of rows, next offset and time of the newest message; replaced as a whole."""

    num_docs: int
    next_offset: int
    newest_ms: int


class ConsumingSegment:
    """Rows of a consuming segment so far."""

    def __init__(self, request: BuildRequest, start_offset: int) -> None:
        self.request = request
        """Request to seal the segment. Its owner may change the name, and nothing else."""
        self.start_offset = start_offset
        indexing, fields = request.indexing, request.schema.fields
        self._columns = {field.name: ConsumingColumn(field, indexing.encoding_of(field.name)) for field in fields}
        self._offsets = RowOffsets()
        self._extent = _Extent(0, start_offset, 0)

    @property
    def key(self) -> SegmentKey:
        """Key `name@0`: the segment has no content crc while its rows arrive."""
        return SegmentKey(SegmentName(self.request.name), 0)

    @property
    def num_docs(self) -> int:
        """Number of rows that readers see."""
        return self._extent.num_docs

    @property
    def next_offset(self) -> int:
        """Offset at which the stream goes on after these rows."""
        return self._extent.next_offset

    @property
    def newest_ms(self) -> int:
        """Time of the newest message in milliseconds, or the time at which it was read if the stream has no times; 0
        without messages, or if not known."""
        return self._extent.newest_ms

    @property
    def memory_bytes(self) -> int:
        """Memory of what was written, without the room that is reserved for more."""
        num_docs = self.num_docs
        return self._offsets.nbytes + sum([column.nbytes(num_docs) for column in self._columns.values()])

    def append(self, rows: pa.Table, offsets: NDArray[np.int64], next_offset: int, newest_ms: int = 0) -> None:
        """Add rows of the schema, as `build_segment` takes them. `offsets` has the stream's offset of each row, and
        never descends. `newest_ms` is the time of the last message, 0 if that is not known.

        At the end of the call either all of them become visible, or none. Raise InvalidInputError if they do not fit
        the schema or the segment."""
        extent = self._extent
        self._check(rows, offsets, next_offset)
        stored = [stored_column(field, rows.column(field.name)) for field in self.request.schema.fields]
        for column in stored:
            self._columns[column.field.name].append(extent.num_docs, column)
        self._offsets.append(extent.num_docs, offsets)
        self._extent = _Extent(extent.num_docs + rows.num_rows, next_offset, newest_ms or extent.newest_ms)

    def snapshot(self, num_docs: int | None = None) -> ConsumingSnapshot:
        """Return the rows so far, or the first `num_docs`: once the segment has an end, later rows belong to another
        segment. Any thread."""
        so_far = self.num_docs
        return ConsumingSnapshot(self, self.key, so_far if num_docs is None else min(num_docs, so_far))

    def column(self, name: str) -> ConsumingColumn | None:
        """Return a column, for readers of a prefix of it."""
        return self._columns.get(name)

    def docs_before(self, offset: int) -> int:
        """Return the number of rows before an offset."""
        return self._offsets.docs_before(offset, self.num_docs)

    def offset_of(self, doc: int) -> int:
        """Return the stream's offset of a row."""
        return self._offsets.of(doc)

    def split(self, offset: int, request: BuildRequest) -> ConsumingSegment:
        """Return the rows from an offset on, as a segment of their own; this segment keeps them too."""
        num_docs, next_offset, newest_ms = self._extent
        doc = self.docs_before(offset)
        tail = ConsumingSegment(request, offset)
        rows, offsets = rows_since(self._columns, doc, num_docs), self._offsets.since(doc, num_docs)
        tail.append(rows, offsets, max(offset, next_offset), newest_ms)
        return tail

    def rows(self, num_docs: int) -> pa.Table:
        """Return the first `num_docs` rows, in the order in which they arrived."""
        rows = PrefixRows(self._columns, num_docs)
        return pa.table({name: rows.column(name) for name in rows.column_names})

    def seal(self, folder: Path, num_docs: int, creation: CreationFacts | None = None) -> BuiltSegment:
        """Write the first `num_docs` rows as a batch would: equal rows make the same file, whoever seals them
        and however they arrived. A star-tree that cannot be made of the rows is left out. Any thread: readers and the
        writer go on meanwhile. Sealing takes as much memory as one column and the columns of star-trees. Raise what
        `build_segment` raises."""
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
    """Unknown times, because rows still arrive."""

    def __init__(self, segment: ConsumingSegment, key: SegmentKey, num_docs: int) -> None:
        self._segment = segment
        self.key = key
        self.num_docs = num_docs

    def column(self, name: str) -> ColumnPrefix | None:
        """Return the reader of a column; None if the segment lacks it."""
        column = self._segment.column(name)
        return None if column is None else column.prefix(self.num_docs)

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Return whole numbers between which every value of the column lies; None if not known."""
        column = self._segment.column(name)
        return None if column is None else column.bounds
