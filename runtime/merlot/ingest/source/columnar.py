"""Parquet and ORC: what is in a file, and its row groups or stripes in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyarrow import fs, orc
from pyarrow import parquet as pq

from merlot.spec.formats import BatchFormat

BATCH_ROWS = 65_536
INSTANTS = "us"
"""Unit of Parquet's old INT96 instants: with nanoseconds, years before 1678 and after 2262 would be other ones."""


def open_parquet(filesystem: fs.FileSystem, path: str) -> pq.ParquetFile:
    """The file by its footer; the caller closes it."""
    return pq.ParquetFile(path, filesystem=filesystem, coerce_int96_timestamp_unit=INSTANTS)


def describe(filesystem: fs.FileSystem, path: str, file_format: BatchFormat) -> tuple[pa.Schema, list[int | None]]:
    """The columns of a file, and the number of rows of each row group (None for a stripe, which does not say)."""
    if file_format is BatchFormat.PARQUET:
        with closing(open_parquet(filesystem, path)) as file:
            counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
            return file.schema_arrow, counts
    with filesystem.open_input_file(path) as opened:
        stripes = orc.ORCFile(opened)
        return stripes.schema, [None] * stripes.nstripes


def read(
    filesystem: fs.FileSystem,
    path: str,
    file_format: BatchFormat,
    part: int,
    choose: Callable[[Sequence[str]], Sequence[str]],
) -> Iterator[pa.RecordBatch]:
    """Rows of one row group or stripe, with the columns chosen of those that the file has. If none is, batches tell
    their number of rows all the same."""
    if file_format is BatchFormat.PARQUET:
        with closing(open_parquet(filesystem, path)) as file:
            columns = list(choose(file.schema_arrow.names))
            yield from file.iter_batches(BATCH_ROWS, row_groups=[part], columns=columns, use_threads=False)
        return
    with filesystem.open_input_file(path) as opened:
        stripes = orc.ORCFile(opened)
        columns = list(choose(stripes.schema.names))
        # A stripe of no columns has no rows, as pyarrow reads it.
        stripe = stripes.read_stripe(part, columns=columns or stripes.schema.names[:1])
        yield from (stripe.slice(start, BATCH_ROWS) for start in range(0, stripe.num_rows, BATCH_ROWS))
