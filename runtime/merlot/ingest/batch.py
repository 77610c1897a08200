"""Batch ingestion without Spark: a source that fits into memory becomes one segment per day (or `daysPerSegment`) and
partition.

For tests and small tables; the same rules as the Spark job, in `transform` and `grouping`. Rows keep the source's order
within a segment, as far as the table declares no sorted columns.
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
"""As a window's start, negated, or its end: none."""


class BadRowsError(InvalidInputError):
    """More rows are bad than the source allows; nothing was published. `bad` tells which."""

    def __init__(self, message: str, bad: BadRows) -> None:
        super().__init__(message)
        self.bad = bad


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """Segments in the order of their names, and what became of the rows."""

    segments: tuple[BuiltSegment, ...]
    rows_in: int
    bad: BadRows
    cut: Mapping[str, int] = field(default_factory=dict)
    """Texts cut to the column's maxLength, by column."""
    outside: int = 0
    """Rows that were left out, since their time is not in the window that was asked for."""

    @property
    def unpartitioned(self) -> Mapping[str, Mapping[str, str]]:
        """Segments whose rows are not partitioned as the table declares, and why, by column. They are never pruned by
        partition."""
        return {one.metadata.name: one.unpartitioned for one in self.segments if one.unpartitioned}


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Which rows to take, and what the names of their segments end with: a backfill's are not to be mistaken."""

    window: transform.Window | None = None
    name_suffix: str = ""


EVERYTHING = Stretch()


def beside(stretch: Stretch, table: Table, source: BatchIngestion | None) -> Stretch:
    """With names of the source's own in an upsert table: its rows replace those of other sources by their keys, not a
    day of theirs."""
    is_own = table.spec.upsert is not None and source is not None and source.name != UNNAMED
    if source is None or not is_own or stretch.name_suffix:
        return stretch
    return replace(stretch, name_suffix=f"_{source.name}")


def check_stretch(stretch: Stretch, table: Table) -> None:
    """InvalidInputError if segments of these rows, published, would take the place of more than these rows."""
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
        whole, where = (
            ("a UTC day", "at midnight") if days == 1 else (f"{days} days of one segment", "where segments do")
        )
        raise InvalidInputError(
            f"a window that cuts {whole} would replace all of it by a part "
            f"table={table.raw_name} window={stretch.window[0]}..{stretch.window[1]}; let it begin and end "
            f"{where}, give --name-suffix to add the rows, or replace the window alone: merlot backfill"
        )


def _cuts(bound_ms: int, size_ms: int) -> bool:
    return abs(bound_ms) < NO_BOUND_MS and bound_ms % size_ms != 0


def source_text(source: BatchIngestion) -> str:
    """What the segments' records say that their rows are read from: the files, and which of their rows. Without
    secrets, since every client may read it."""
    uri = redact(source.source_uri) if "://" in source.source_uri else str(Path(source.source_uri).absolute())
    return uri if source.filter is None else f"{uri} where {source.filter}"


def build_from_files(
    table: Table,
    source: BatchIngestion,
    folder: Path,
    creation: CreationFacts | None = None,
    *,
    stretch: Stretch = EVERYTHING,
) -> BatchResult:
    """Read a batch source and build its segments in `folder`; raises BadRowsError past the source's share."""
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
    stretch: Stretch = EVERYTHING,
) -> BatchResult:
    """As `build_from_files`, of Arrow tables."""
    rows_in = outside = 0
    cut: Counter[str] = Counter()
    grouped: list[Grouped] = []
    for rows in tables:
        conformed, num_outside = transform.inside(transform.conform(rows, table.spec), stretch.window)
        outside += num_outside
        grouped.append(grouping.group(conformed, table.spec))
        rows_in += rows.num_rows
        cut.update(conformed.cut)
    bad = functools.reduce(operator.add, (one.bad for one in grouped), BadRows())
    check_bad_rows(bad, rows_in, max_bad_row_share, table)
    creation = creation or CreationFacts()
    segments = [
        build_segment(request_of(table, group, creation, stretch.name_suffix, part), part_rows, folder)
        for group, rows in _by_group(grouped, table)
        for part, part_rows in _parts(rows, table)
    ]
    return BatchResult(segments=tuple(segments), rows_in=rows_in, bad=bad, cut=dict(cut), outside=outside)


WHOLE = (1, 1)
"""The only part of one."""


def request_of(
    table: Table, group: SegmentGroup, creation: CreationFacts, name_suffix: str = "", part: tuple[int, int] = WHOLE
) -> BuildRequest:
    """What to build of the rows of a group, or of a part of them: its number, from 1, and how many parts there are."""
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
    """BadRowsError if the share of bad rows is too large. Its first line has the commonest faults with a place of each,
    the others a line per reason and sample."""
    # The shortest text of a double is what was declared; 0.29 * 100 is 28.999... in doubles.
    if bad.count > Fraction(repr(float(max_share))) * rows_in:
        raise BadRowsError(
            f"too many bad rows, nothing was published table={table.raw_name} bad={bad.count} rows={rows_in} "
            f"maxBadRowShare={max_share!r}: {bad.in_one_line()}\n" + "\n".join(bad.to_lines()),
            bad,
        )


def _rows(planned: SourcePlan) -> Iterator[pa.Table]:
    """All batches; InvalidInputError at their end if none had a column of the table."""
    seen = set(planned.types)
    count = 0
    for rows in reader.read(planned.request, planned.pieces):
        seen.update(planned.request.columns.keys() & set(rows.column_names))
        count += rows.num_rows
        yield rows
    if count and not seen:
        raise plan.no_column(planned.request)


def _by_group(grouped: list[Grouped], table: Table) -> Iterator[tuple[SegmentGroup, pa.Table]]:
    if not any(one.rows.num_rows for one in grouped):
        return
    rows = pa.concat_tables([one.rows for one in grouped])
    keys = [np.concatenate([_numbers(one.keys[part]) for one in grouped]) for part in range(len(grouped[0].keys))]
    order = np.lexsort(keys[::-1])
    changed = functools.reduce(operator.or_, (np.diff(key[order]) != 0 for key in keys))
    # One take of all rows and slices of it: a take per group from a table of chunks looks at all chunks each time.
    ordered = rows.take(pa.array(order)).combine_chunks()
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), len(order)]
    for start, stop in itertools.pairwise(bounds):
        key = tuple(int(column[order[start]]) for column in keys)
        yield grouping.group_of(key, table.spec), ordered.slice(start, stop - start)


def _parts(rows: pa.Table, table: Table) -> Iterator[tuple[tuple[int, int], pa.Table]]:
    """A group's rows as they fit into segments, in the source's order."""
    slices = even_slices(rows.num_rows, table.spec.ingestion.max_rows_per_segment)
    for number, place in enumerate(slices, 1):
        yield (number, len(slices)), rows.slice(place.start, place.stop - place.start)


def _numbers(key: pa.Array | pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    numbers: np.ndarray[tuple[int], np.dtype[np.int32]] = np.asarray(key.to_numpy(), dtype=np.int32)
    return numbers
