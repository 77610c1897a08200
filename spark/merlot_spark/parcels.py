"""Parcels of prepared rows between the tasks that read and the tasks that build: Arrow batches as binary values. ADR
26.

A row of Spark is a parcel: rows of a few groups, as Arrow's bytes. The JVM moves it whole; otherwise it would make rows
of its own, sort them, and make Arrow of them again. A group's key alone decides which task builds it and which lot it
travels in; a builder holds one lot at a time. Spark hands parcels to Python 64 MB at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import lz4.block
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import CorruptionError
from merlot.ingest import arrays, grouping
from merlot.ingest.grouping import Grouped
from merlot.segment.arrow_types import arrow_schema
from merlot.spec.table import Table

TASK = "task"
LOT = "lot"
ROWS = "rows"
COUNTS = "counts"
SCHEMA = pa.schema([(TASK, pa.int32()), (LOT, pa.int32()), (ROWS, pa.binary()), (COUNTS, pa.string())])
LOTS_PER_TASK = 64
MAX_ROWS = 250_000
MAX_BYTES = 64 << 20
"""Rows and bytes that wait before they are packed: many small parcels cost more than their contents."""
PARCEL_BYTES = 1 << 20
"""Size in bytes above which a parcel is cut."""
MAX_EXPANSION = 255
"""Largest number of bytes that one byte of LZ4 stands for. The first four bytes of a parcel say how many bytes it
becomes."""
PARCELS_PER_BATCH = 64
"""Number of parcels in an Arrow batch between Python and the JVM."""
KEY = "$key{}"
"""Name of a key column, which no column of a table can have."""
_SPREAD = 1_000_003


def key_names(table: Table) -> list[str]:
    """Return the names of the key columns of rows in parcels: the day, then one partition per column."""
    return [KEY.format(position) for position in range(1 + len(grouping.repartitioned_columns(table.spec)))]


def rows_schema(table: Table) -> pa.Schema:
    """Return the schema of rows in parcels: the columns that a builder takes, then the key."""
    return pa.schema([*arrow_schema(table.spec.table_schema), *((name, pa.int32()) for name in key_names(table))])


@dataclass(slots=True)
class Packer:
    """Packer of groups' rows into parcels, for one task."""

    schema: pa.Schema
    num_keys: int
    num_tasks: int
    _waiting: list[pa.Table] = field(default_factory=list)
    _num_rows: int = 0
    _num_bytes: int = 0

    def add(self, grouped: Grouped) -> Iterator[pa.RecordBatch]:
        """Add rows; yield parcels once there are enough rows for them."""
        columns = [arrays.plain(column) for column in (*grouped.rows.columns, *grouped.keys)]
        rows = pa.Table.from_arrays(columns, schema=self.schema)
        if not rows.num_rows:
            return
        self._waiting.append(rows)
        self._num_rows += rows.num_rows
        self._num_bytes += rows.nbytes
        if self._num_rows >= MAX_ROWS or self._num_bytes >= MAX_BYTES:
            yield from self.pack()

    def pack(self) -> Iterator[pa.RecordBatch]:
        """Yield parcels of all rows that wait."""
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting).combine_chunks()
        most = max(1, PARCEL_BYTES * rows.num_rows // max(1, rows.nbytes))
        self._waiting, self._num_rows, self._num_bytes = [], 0, 0
        numbers = _lots(rows.columns[-self.num_keys :], self.num_tasks)
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        (batch,) = rows.take(pa.array(order)).combine_chunks().to_batches()
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        pieces = [
            (int(numbers[start]), batch.slice(start, min(most, end - start)))
            for first, end in itertools.pairwise(starts)
            for start in range(first, end, most)
        ]
        for start in range(0, len(pieces), PARCELS_PER_BATCH):
            yield _parcels(pieces[start : start + PARCELS_PER_BATCH])


def counts_row(text: str) -> pa.RecordBatch:
    """Return a row with the counts of a task, for the driver."""
    return _batch([0], [0], [None], [text])


class TakesRows(Protocol):
    """A lot that is being filled."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        ...


L = TypeVar("L", bound=TakesRows)


def opened(batches: Iterable[pa.RecordBatch], schema: pa.Schema, new_lot: Callable[[], L]) -> Iterator[L | str]:
    """Yield the contents of parcels that are sorted by their lot: lots with all their rows, and the counts of tasks."""
    current: int | None = None
    rows_of: L | None = None
    for batch in batches:
        columns = (batch.column(LOT).to_pylist(), batch.column(ROWS), batch.column(COUNTS).to_pylist())
        for lot, rows, counts in zip(*columns, strict=True):
            if counts is not None:
                yield counts
                continue
            if rows_of is not None and lot != current:
                yield rows_of
                rows_of = None
            current = lot
            rows_of = new_lot() if rows_of is None else rows_of
            rows_of.add(pa.ipc.read_record_batch(pa.py_buffer(_decompressed(rows.as_buffer())), schema))
    if rows_of is not None:
        yield rows_of


def _decompressed(parcel: pa.Buffer) -> bytes:
    """Return a parcel's bytes. Raise CorruptionError before memory is taken for more than the parcel can hold."""
    size_bytes = int.from_bytes(parcel[:4].to_pybytes(), "little")
    if size_bytes > MAX_EXPANSION * parcel.size:
        raise CorruptionError(f"parcel of rows claims too much size={parcel.size} claimed={size_bytes}")
    try:
        return bytes(lz4.block.decompress(parcel))
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise CorruptionError(f"parcel of rows is damaged size={parcel.size} cause={error}") from error


def _lots(keys: Iterable[pa.ChunkedArray], num_tasks: int) -> NDArray[np.unsignedinteger]:
    """Return the task and the lot of each row, as one number. Consecutive days go to different tasks, and so do
    weeks."""
    code = np.zeros(1, np.int64)
    for key in keys:
        code = code * _SPREAD + key.to_numpy().astype(np.int64)
    turn, place = np.divmod(code, num_tasks)
    numbers: NDArray[np.int64] = (place + turn) % num_tasks * LOTS_PER_TASK + turn % LOTS_PER_TASK
    # numpy sorts numbers of 16 bits by radix: 1 ns each instead of 70.
    return numbers.astype(np.min_scalar_type(num_tasks * LOTS_PER_TASK))


def _parcels(pieces: Sequence[tuple[int, pa.RecordBatch]]) -> pa.RecordBatch:
    tasks, lots = np.divmod(np.array([number for number, _ in pieces]), LOTS_PER_TASK)
    rows = [lz4.block.compress(piece.serialize()) for _, piece in pieces]
    return _batch(tasks.tolist(), lots.tolist(), rows, [None] * len(pieces))


def _batch(*columns: Sequence[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )
