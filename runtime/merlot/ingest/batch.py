"""Ingest a batch without Spark: a source that fits into memory becomes one segment per partition and per day (or
`daysPerSegment` days).

It serves tests and small tables. The rules are those of the Spark job, in `transform` and `grouping`. Rows keep the
source's order within a segment, unless the table declares sorted columns.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa

from merlot.errors import InvalidInputError
from merlot.ids import PART_MARK, SegmentPart
from merlot.ingest import grouping, transform
from merlot.ingest.bad_rows import BadRows
from merlot.ingest.grouping import Grouped, SegmentGroup
from merlot.ingest.source import plan, reader
from merlot.ingest.source.plan import SourcePlan
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.build.slices import even_slices
from merlot.segment.metadata import CreationFacts
from merlot.spec.ingestion import UNNAMED, BatchIngestion
from merlot.spec.table import PushType, Table
from merlot.uris import redact
from merlot.values.periods import DAY_MS

NO_BOUND_MS = 1 << 62
"""Value for a missing bound of a window: as its end, or negated as its start."""


class BadRowsError(InvalidInputError):
    """Raised if more rows are bad than the source allows; nothing was published. `bad` has their counts and samples."""

    def __init__(self, message: str, bad: BadRows) -> None:
        super().__init__(message)
        self.bad = bad


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """Built segments in the order of their names, and counts of rows."""

    segments: tuple[BuiltSegment, ...]
    rows_in: int
    bad: BadRows
    cut: Mapping[str, int] = field(default_factory=dict)
    """Number of texts cut to the column's maxLength, by column."""
    outside: int = 0
    """Number of rows left out because their time is outside the requested window."""

    @property
    def unpartitioned(self) -> Mapping[str, Mapping[str, str]]:
        """Segments whose rows are not partitioned as the table declares, with the reason by column. They are never
        pruned by partition."""
        return {segment.metadata.name: segment.unpartitioned for segment in self.segments if segment.unpartitioned}


@dataclass(frozen=True, kw_only=True)
class RowSelection:
    """Rows to take, and a suffix for the names of their segments, so that a backfill's segments do not replace
    others."""

    window: transform.Window | None = None
    name_suffix: str = ""


EVERYTHING = RowSelection()


def beside(stretch: RowSelection, table: Table, source: BatchIngestion | None) -> RowSelection:
    """Return the selection with the source's name as its suffix, if the table is an upsert table, the source has a
    name, and there is no suffix yet. So rows replace those of other sources by their keys, not a whole day of
    theirs."""
    is_own = table.spec.upsert is not None and source is not None and source.name != UNNAMED
    if source is None or not is_own or stretch.name_suffix:
        return stretch
    return replace(stretch, name_suffix=f"_{source.name}")


def check_stretch(stretch: RowSelection, table: Table) -> None:
    """Raise InvalidInputError if segments of these rows, once published, would replace other rows too, if the table has
    no time column for the window, or if the suffix contains PART_MARK."""
    if PART_MARK in stretch.name_suffix:
        raise InvalidInputError(
            f"a name's suffix cannot contain {PART_MARK}, which numbers the parts of a day suffix={stretch.name_suffix}"
        )
    if stretch.window is None:
        return
    if table.spec.time_column is None:
        raise InvalidInputError(f"a window of time needs a table with a time column table={table.raw_name}")
    if table.spec.push_type is PushType.REFRESH:
        raise InvalidInputError(
            f"a batch replaces all of a REFRESH table, and cannot hold a window of time alone table={table.raw_name}"
        )
    days = table.spec.ingestion.days_per_segment
    if not stretch.name_suffix and any(_cuts(bound_ms, days * DAY_MS) for bound_ms in stretch.window):
        span, where = (
            ("a UTC day", "at midnight") if days == 1 else (f"{days} days of one segment", "where segments do")
        )
        raise InvalidInputError(
            f"a window that cuts {span} would replace all of it by a part "
            f"table={table.raw_name} window={stretch.window[0]}..{stretch.window[1]}; let it begin and end "
            f"{where}, give --name-suffix to add the rows, or replace the window alone: merlot backfill"
        )


def _cuts(bound_ms: int, size_ms: int) -> bool:
    return abs(bound_ms) < NO_BOUND_MS and bound_ms % size_ms != 0


def source_text(source: BatchIngestion) -> str:
    """Return the text by which segments' records name the source of their rows: the files and the filter. It holds no
    secrets, because every client may read it."""
    uri = redact(source.source_uri) if "://" in source.source_uri else str(Path(source.source_uri).absolute())
    return uri if source.filter is None else f"{uri} where {source.filter}"


def build_from_files(
    table: Table,
    source: BatchIngestion,
    folder: Path,
    creation: CreationFacts | None = None,
    *,
    stretch: RowSelection = EVERYTHING,
) -> BatchResult:
    """Read a batch source and build its segments in `folder`. Raise BadRowsError if the share of bad rows exceeds the
    source's limit, InvalidInputError if the source needs Spark."""
    if source.filter is not None or source.derived_columns:
        raise InvalidInputError("filter and derivedColumns need Spark: python -m merlot_spark.build_segments")
    planned = plan.make(source, table.spec)
    return build_from_tables(
        table, _rows(planned), folder, max_bad_row_share=source.max_bad_row_share, creation=creation, stretch=stretch
    )


def build_from_tables(
    table: Table,
    tables: Iterable[pa.Table],
    folder: Path,
    *,
    max_bad_row_share: float = 0.0,
    creation: CreationFacts | None = None,
    stretch: RowSelection = EVERYTHING,
) -> BatchResult:
    """Build segments from Arrow tables, as `build_from_files` does from files."""
    rows_in = outside = 0
    cut: Counter[str] = Counter()
    grouped: list[Grouped] = []
    for rows in tables:
        conformed, num_outside = transform.inside(transform.conform(rows, table.spec), stretch.window)
        outside += num_outside
        grouped.append(grouping.group(conformed, table.spec))
        rows_in += rows.num_rows
        cut.update(conformed.cut)
    bad = functools.reduce(operator.add, (batch.bad for batch in grouped), BadRows())
    check_bad_rows(bad, rows_in, max_bad_row_share, table)
    creation = creation or CreationFacts()
    segments = [
        build_segment(request_of(table, group, creation, stretch.name_suffix, part), part_rows, folder)
        for group, rows in _by_group(grouped, table)
        for part, part_rows in _parts(rows, table)
    ]
    return BatchResult(segments=tuple(segments), rows_in=rows_in, bad=bad, cut=dict(cut), outside=outside)


WHOLE = (1, 1)
"""Number and count of parts of a group that is one segment."""


def request_of(
    table: Table, group: SegmentGroup, creation: CreationFacts, name_suffix: str = "", part: tuple[int, int] = WHOLE
) -> BuildRequest:
    """Return the request to build a segment from the rows of a group, or from a part of them. `part`: its number, from
    1, and the number of parts."""
    spec = table.spec
    return BuildRequest(
        name=SegmentPart(group.name(table.raw_name) + name_suffix, *part).name,
        table=table.raw_name,
        schema=spec.table_schema,
        indexing=spec.indexing,
        time_column=spec.time_column,
        partitioning=spec.partitioning,
        creation=creation,
    )


def check_bad_rows(bad: BadRows, rows_in: int, max_share: float, table: Table) -> None:
    """Raise BadRowsError if the share of bad rows is too large. The first line of its message has the most frequent
    reasons, each with its first row. After that come the number of bad rows, and a line per reason and sample."""
    # repr gives the shortest text of a double, which is what was declared; 0.29 * 100 is 28.999... in doubles.
    if bad.count > Fraction(repr(float(max_share))) * rows_in:
        raise BadRowsError(
            f"too many bad rows, nothing was published table={table.raw_name} bad={bad.count} rows={rows_in} "
            f"maxBadRowShare={max_share!r}: {bad.in_one_line()}\n" + "\n".join(bad.to_lines()),
            bad,
        )


def _rows(planned: SourcePlan) -> Iterator[pa.Table]:
    """Yield all rows in batches. Raise InvalidInputError at the end if there were rows, but no column of the table."""
    seen = set(planned.types)
    count = 0
    for rows in reader.read(planned.request, planned.pieces):
        seen.update(planned.request.columns.keys() & set(rows.column_names))
        count += rows.num_rows
        yield rows
    if count and not seen:
        raise plan.no_column(planned.request)


def _by_group(grouped: list[Grouped], table: Table) -> Iterator[tuple[SegmentGroup, pa.Table]]:
    if not any(batch.rows.num_rows for batch in grouped):
        return
    rows = pa.concat_tables([batch.rows for batch in grouped])
    keys = [np.concatenate([_numbers(batch.keys[part]) for batch in grouped]) for part in range(len(grouped[0].keys))]
    order = np.lexsort(keys[::-1])
    changed = functools.reduce(operator.or_, (np.diff(key[order]) != 0 for key in keys))
    # One take of all rows, then slices of it: a take per group from a table of chunks looks at all chunks each time.
    ordered = rows.take(pa.array(order)).combine_chunks()
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), len(order)]
    for start, stop in itertools.pairwise(bounds):
        key = tuple(int(column[order[start]]) for column in keys)
        yield grouping.group_of(key, table.spec), ordered.slice(start, stop - start)


def _parts(rows: pa.Table, table: Table) -> Iterator[tuple[tuple[int, int], pa.Table]]:
    """Divide a group's rows into parts that fit into segments, in the source's order."""
    slices = even_slices(rows.num_rows, table.spec.ingestion.max_rows_per_segment)
    for number, bounds in enumerate(slices, 1):
        yield (number, len(slices)), rows.slice(bounds.start, bounds.stop - bounds.start)


def _numbers(key: pa.Array | pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    numbers: np.ndarray[tuple[int], np.dtype[np.int32]] = np.asarray(key.to_numpy(), dtype=np.int32)
    return numbers
