"""Rows of input segments by column: the rows in a window, and their values under the present schema.

Columns are those of `segment.under_schema`, as a query sees them. Decoded values are dropped once a column has been
read: memory holds one column.
"""

import gc
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.merge.columns import MergeColumn, Rows, concat, fixed_dtype
from merlot.merge.plan import MergePlan, Window
from merlot.merge.times import rounded, rows_by_window
from merlot.merge.together import read_together
from merlot.segment import lost_pages
from merlot.segment.arrow_types import is_fixed_width, stored_arrow_type
from merlot.segment.concat import Values
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.dictionary import OrderedDictionary
from merlot.segment.reader import EveryDoc, RowReader
from merlot.segment.under_schema import column_under
from merlot.spec.schema import FieldSpec
from merlot.vectors.decimals import plain_text

_SMALL_DICTIONARY: Final = 1024
Docs = Rows | slice
"""Docs of a segment, ascending."""


@dataclass(frozen=True, slots=True)
class InputPart:
    """Docs of one input."""

    segment: ImmutableSegment
    docs: Docs

    @property
    def num_rows(self) -> int:
        return self.docs.stop - self.docs.start if isinstance(self.docs, slice) else len(self.docs)

    @property
    def is_whole(self) -> bool:
        return self.num_rows == self.segment.num_docs

    def sub(self, rows: Rows | slice) -> "InputPart":
        """Return the part's rows at these positions, ascending."""
        if not isinstance(self.docs, slice):
            return InputPart(self.segment, self.docs[rows])
        if isinstance(rows, slice):
            return InputPart(self.segment, slice(self.docs.start + rows.start, self.docs.start + rows.stop))
        return InputPart(self.segment, (rows + np.uint32(self.docs.start)).astype(np.uint32))


Selection = Sequence[InputPart]
"""Rows of inputs, one part after another; no part is empty."""


def num_rows(selection: Selection) -> int:
    """Return the number of rows in a selection."""
    return sum(part.num_rows for part in selection)


def sub_selection(selection: Selection, rows: Rows) -> Selection:
    """Return the selection's rows at these positions, ascending."""
    parts, start = [], 0
    for part in selection:
        stop = start + part.num_rows
        first, last = np.searchsorted(rows, [start, stop])
        if last > first:
            parts.append(part.sub((rows[first:last] - np.uint32(start)).astype(np.uint32)))
        start = stop
    return parts


def slice_selection(selection: Selection, start: int, stop: int) -> Selection:
    """Return rows [start, stop) of a selection."""
    parts, base = [], 0
    for part in selection:
        first, last = max(start - base, 0), min(stop - base, part.num_rows)
        if first < last:
            parts.append(part.sub(slice(first, last)))
        base += part.num_rows
    return parts


def split_selection(selection: Selection, numbers: Sequence[Rows], number: int) -> Iterator[Selection]:
    """Group rows by their number, 0 to `number` - 1; a group may be empty. numbers: an array for each part."""
    for wanted in range(number):
        picked = [
            part.sub(np.flatnonzero(of_part == wanted).astype(np.uint32))
            for part, of_part in zip(selection, numbers, strict=True)
        ]
        yield [part for part in picked if part.num_rows]


class MergeSource:
    """Inputs of one merge. Used by one thread."""

    def __init__(self, plan: MergePlan, segments: Sequence[ImmutableSegment]) -> None:
        self._plan = plan
        self.segments = sorted(segments, key=_by_time)

    def everything(self) -> Selection:
        """Return all rows: inputs by time, rows in the order of their docs."""
        parts = [InputPart(segment, _valid(segment)) for segment in self.segments]
        return [part for part in parts if part.num_rows]

    def select(self, windows: Sequence[Window]) -> Sequence[Selection]:
        """Return the rows of each window, in the order of `everything`. windows: disjoint, in order. A segment's times
        are read once, however many windows it reaches into."""
        parts: list[list[InputPart]] = [[] for _ in windows]
        for part in self.everything():
            for place, rows in self._by_window(part, windows):
                parts[place].append(rows)
        return parts

    def _by_window(self, part: InputPart, windows: Sequence[Window]) -> Iterator[tuple[int, InputPart]]:
        """Yield the index of each window that has rows of a part from `everything`, with these rows."""
        first, last = 0, len(windows)
        least, greatest = part.segment.metadata.start_time_ms, part.segment.metadata.end_time_ms
        if least is not None and greatest is not None:
            first = bisect_right(windows, least, key=itemgetter(1))
            last = bisect_right(windows, greatest, key=itemgetter(0))
            if last - first == 1 and windows[first][0] <= least and greatest < windows[first][1]:
                yield first, part
                return
        if first >= last:
            return
        time = _read(part, self._plan.time_field())
        part.segment.close()
        for place, rows in enumerate(rows_by_window(time, windows[first:last]), first):
            if len(rows):
                yield place, part.sub(rows)

    def column(self, field: FieldSpec, selection: Selection) -> MergeColumn:
        """Read a column of the selected rows, erased and rounded as the plan says."""
        if field.name in self._plan.erased:
            return constant_column(field, num_rows(selection), is_null=True)
        column = _read_small(field, selection) or _read_each(field, selection)
        if field.name == self._plan.time_column and self._plan.round_period is not None:
            return rounded(column, self._plan.round_period)
        return column

    def nulls(self, field: FieldSpec, selection: Selection) -> NDArray[np.bool_] | None:
        """Mark the selected rows that are null in a column, without reading its values; None if none is."""
        pieces = []
        for part in selection:
            is_null = _nulls(column_under(part.segment, field), part.docs)
            pieces.append(np.zeros(part.num_rows, np.bool_) if is_null is None else is_null)
        whole = np.concatenate(pieces) if pieces else np.zeros(0, np.bool_)
        return whole if whole.any() else None


@contextmanager
def open_source(plan: MergePlan, paths: Sequence[Path]) -> Iterator[MergeSource]:
    """Open the inputs; raise CorruptionError, NotFoundError or UnavailableError if an input cannot be read."""
    segments: list[ImmutableSegment] = []
    try:
        with no_collections():
            segments += [ImmutableSegment.open(path) for path in paths]
        with lost_pages.watched("merge"):
            yield MergeSource(plan, segments)
    finally:
        for segment in segments:
            segment.close()


@contextmanager
def no_collections() -> Iterator[None]:
    """Pause garbage collection: hundreds of footers are many objects and no garbage. Collections took two thirds of the
    time to open them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _valid(segment: ImmutableSegment) -> Docs:
    """Return the docs that queries see."""
    valid = segment.valid_docs
    if isinstance(valid, EveryDoc):
        return slice(0, segment.num_docs)
    bits = np.unpackbits(valid.words.view(np.uint8), count=segment.num_docs, bitorder="little")
    return np.flatnonzero(bits).astype(np.uint32)


def constant_column(field: FieldSpec, rows: int, *, is_null: bool) -> MergeColumn:
    """Return a column with the default value in every row."""
    return MergeColumn(
        field=field,
        num_rows=rows,
        values=_default(field) if rows else _default(field)[:0],
        ids=np.zeros(rows, np.uint8),
        offsets=np.arange(rows + 1, dtype=np.int64) if field.multi_value else None,
        nulls=np.ones(rows, np.bool_) if is_null else None,
        every_value_occurs=True,
    )


def _default(field: FieldSpec) -> Values:
    dtype, value = fixed_dtype(field), field.default_value
    if dtype is not None:
        return np.array([value], dtype)
    return pa.array([plain_text(value) if isinstance(value, Decimal) else value], stored_arrow_type(field.type))


def _by_time(segment: ImmutableSegment) -> tuple[bool, int, str]:
    start = segment.metadata.start_time_ms
    return start is None, start or 0, segment.metadata.name


def _read_small(field: FieldSpec, selection: Selection) -> MergeColumn | None:
    """Read the selected rows together, if the inputs are small enough; else None."""
    whole = read_together(field, [part.segment for part in selection])
    if whole is None or all(part.is_whole for part in selection):
        return whole
    rows, start = [], 0
    for part in selection:
        docs = part.docs
        of_part = np.arange(docs.start, docs.stop, dtype=np.uint32) if isinstance(docs, slice) else docs
        rows.append(of_part + np.uint32(start))
        start += part.segment.num_docs
    return whole.take(np.concatenate(rows))


def _read_each(field: FieldSpec, selection: Selection) -> MergeColumn:
    """Read the selected rows, one input after another."""
    pieces = [_read(part, field) for part in selection]
    for part in selection:
        part.segment.close()
    return concat(pieces) if pieces else constant_column(field, 0, is_null=False)


def _read(part: InputPart, field: FieldSpec) -> MergeColumn:
    reader = column_under(part.segment, field)
    column = _read_lists(part, field, reader) if field.multi_value else _read_values(part, field, reader)
    # For a few rows of a large segment, its whole dictionary would take most of the memory.
    return column if part.is_whole or len(column.values) <= _SMALL_DICTIONARY else column.compact()


def _read_values(part: InputPart, field: FieldSpec, reader: RowReader) -> MergeColumn:
    docs, dictionary = part.docs, _dictionary(reader)
    nulls = _nulls(reader, docs)
    if dictionary is None:
        return MergeColumn(field=field, num_rows=part.num_rows, values=_plain_values(reader, docs), nulls=nulls)
    return MergeColumn(
        field=field,
        num_rows=part.num_rows,
        values=dictionary.arrow() if dictionary.ascending is None else dictionary.ascending,
        ids=reader.dict_ids()[docs] if isinstance(docs, slice) else reader.take_dict_ids(docs),
        nulls=nulls,
        every_value_occurs=part.is_whole,
    )


def _dictionary(reader: RowReader) -> OrderedDictionary | None:
    """Return the dictionary of a sealed segment's column: `MergeColumn` takes ascending values."""
    dictionary = reader.dictionary
    assert dictionary is None or isinstance(dictionary, OrderedDictionary)
    return dictionary


def _plain_values(reader: RowReader, docs: Docs) -> Values:
    if is_fixed_width(reader.type):
        return reader.values()[docs] if isinstance(docs, slice) else reader.take_values(docs)
    return reader.strings()[docs] if isinstance(docs, slice) else reader.take_strings(docs)


def _read_lists(part: InputPart, field: FieldSpec, reader: RowReader) -> MergeColumn:
    dictionary = _dictionary(reader)
    if dictionary is not None:
        values: Values = dictionary.arrow() if dictionary.ascending is None else dictionary.ascending
    else:
        values = reader.values() if is_fixed_width(reader.type) else reader.strings()
    whole = MergeColumn(
        field=field,
        num_rows=reader.num_docs,
        values=values,
        ids=None if dictionary is None else reader.dict_ids(),
        offsets=reader.offsets().astype(np.int64),
        nulls=_nulls(reader, slice(0, reader.num_docs)),
        every_value_occurs=True,
    )
    return whole.take(part.docs)


def _nulls(reader: RowReader, docs: Docs) -> NDArray[np.bool_] | None:
    words = reader.nulls
    if words is None:
        return None
    every = np.unpackbits(words.view(np.uint8), count=reader.num_docs, bitorder="little").view(np.bool_)
    return every[docs]
