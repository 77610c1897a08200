"""Read Parquet and ORC files: their columns, and their row groups or stripes in batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import orc
from pyarrow import parquet as pq

from merlot.ingest.source.blocks import FileOpener
from merlot.spec.formats import BatchFormat

BATCH_ROWS = 65_536
STORED_TYPES = frozenset({"Variant", "Geometry", "Geography", "Interval", "INTERVAL"})
"""Logical types whose values Arrow does not interpret."""
TOP_INDENT = 2
"""Number of blanks before a column in a printed schema."""
_NODE = re.compile(
    r"(?P<indent> *)(?:required|optional|repeated) \w+(?:\(\d+\))? field_id=-?\d+ (?P<name>.*?)"
    r"(?: \((?P<type>\w+)(?:\(.*\))?\))?(?: \{|;)$"
)
INSTANTS = "us"
"""Unit of Parquet's old INT96 instants. Nanoseconds would change years before 1678 and after 2262."""


@dataclass(frozen=True, slots=True)
class Content:
    """Columns and parts of a file."""

    schema: pa.Schema
    counts: list[int | None]
    """Number of rows of each row group; None for a stripe, which does not say."""
    stored: Mapping[str, str] = field(default_factory=dict)
    """Parquet's own type of columns that Arrow returns as bytes which stand for a value. It is the type of the column
    itself, or of something within it."""


@contextmanager
def open_parquet(filesystem: FileOpener, path: str) -> Iterator[pq.ParquetFile]:
    """Open a file by its footer. A page that has a checksum is compared with it, which takes about 1 ms a megabyte."""
    with (
        filesystem.open_input_file(path) as opened,
        closing(pq.ParquetFile(opened, coerce_int96_timestamp_unit=INSTANTS, page_checksum_verification=True)) as file,
    ):
        yield file


def describe(filesystem: FileOpener, path: str, file_format: BatchFormat) -> Content:
    """Return the columns of a file, and its parts."""
    if file_format is BatchFormat.PARQUET:
        with open_parquet(filesystem, path) as file:
            counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
            return Content(file.schema_arrow, counts, _stored_types(str(file.schema)))
    with filesystem.open_input_file(path) as opened:
        stripes = orc.ORCFile(opened)
        return Content(stripes.schema, [None] * stripes.nstripes)


def _stored_types(schema: str) -> dict[str, str]:
    """Read the types from a Parquet schema as it is printed, because pyarrow tells the type of a group nowhere else."""
    types: dict[str, str] = {}
    column = ""
    for line in schema.splitlines():
        matched = _NODE.match(line)
        if matched is None:
            continue
        column = matched["name"] if len(matched["indent"]) == TOP_INDENT else column
        if matched["type"] in STORED_TYPES:
            types.setdefault(column, matched["type"].upper())
    return types


def read(
    filesystem: FileOpener,
    path: str,
    file_format: BatchFormat,
    part: int,
    choose: Callable[[Sequence[str]], Sequence[str]],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one row group or stripe, with the columns that `choose` picks from those of the file. If it
    picks none, batches still have their number of rows."""
    if file_format is BatchFormat.PARQUET:
        with open_parquet(filesystem, path) as file:
            columns = list(choose(file.schema_arrow.names))
            yield from file.iter_batches(BATCH_ROWS, row_groups=[part], columns=columns, use_threads=False)
        return
    with filesystem.open_input_file(path) as opened:
        stripes = orc.ORCFile(opened)
        columns = list(choose(stripes.schema.names))
        # pyarrow reads a stripe of no columns as one without rows.
        stripe = stripes.read_stripe(part, columns=columns or stripes.schema.names[:1])
        yield from (stripe.slice(start, BATCH_ROWS) for start in range(0, stripe.num_rows, BATCH_ROWS))
