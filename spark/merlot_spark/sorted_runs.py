"""External merge sort of a lot's rows: rows that do not fit into memory wait on disk in sorted runs.

Runs are merged a block at a time. Each step takes all rows up to the least of the runs' last rows in memory: no row
that is still on disk can come before them. Memory is RUN_BYTES while runs are written, then about two blocks per
run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from merlot.errors import UnavailableError
from merlot.spec.table import TableSpec
from merlot_spark import lots
from merlot_spark.lots import GroupRows, Key

RUN_BYTES = 256 << 20
"""Size in bytes at which a lot's rows in memory are sorted and written to disk as a run."""
BLOCK_BYTES = 1 << 20
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(slots=True)
class Lot:
    """Rows of one lot, as they arrive; used by one thread."""

    spec: TableSpec
    key_names: Sequence[str]
    folder: Path
    """Folder of the runs, which are deleted when they have been read."""
    run_bytes: int = RUN_BYTES
    block_bytes: int = BLOCK_BYTES
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _num_bytes: int = 0
    _runs: list[Path] = field(default_factory=list)
    _counts: Counter[Key] = field(default_factory=Counter)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raise UnavailableError if the disk takes no more."""
        self._waiting.append(batch)
        self._num_bytes += batch.nbytes
        if self._num_bytes >= self.run_bytes:
            self._write_run()

    def groups(self) -> Iterator[GroupRows]:
        """Yield the rows of each segment, in order. A lot can be read once."""
        if not self._runs:
            if self._waiting:
                yield from lots.groups(pa.Table.from_batches(self._waiting), self.spec, self.key_names)
            return
        if self._waiting:
            self._write_run()
        sizes = lots.sizes(self._counts, self.spec)
        for size, rows in zip(sizes, _split_by_sizes(self._merged(), [size.num_rows for size in sizes]), strict=True):
            yield lots.part_of(size, rows, self.spec)

    def _write_run(self) -> None:
        rows = lots.in_order(pa.Table.from_batches(self._waiting), self.spec, self.key_names)
        self._waiting, self._num_bytes = [], 0
        self._counts.update(lots.counts(rows, self.key_names))
        path = self.folder / f"run-{len(self._runs)}"
        self._runs.append(path)
        block_rows = max(1, self.block_bytes * rows.num_rows // max(1, rows.nbytes))
        try:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema, options=_OPTIONS) as writer:
                writer.write_table(rows.combine_chunks(), max_chunksize=block_rows)
        except OSError as error:
            raise UnavailableError(f"cannot sort on disk path={path} reason={error}") from error

    def _merged(self) -> Iterator[pa.Table]:
        """Yield all rows, in order, in pieces."""
        runs = [_SortedRun(path) for path in self._runs]
        try:
            while runs := [run for run in runs if run.read_ahead()]:
                yield self._step(runs)
        finally:
            for run in runs:
                run.close()
            for path in self._runs:
                path.unlink(missing_ok=True)

    def _step(self, runs: Sequence[_SortedRun]) -> pa.Table:
        """Return the next rows of all runs, in order."""
        taking, limit = self._before_limit(runs)
        pieces = [run.rows for run in taking]
        together = pa.concat_tables(pieces if limit is None else [*pieces, limit])
        order = lots.order_of_rows(together, self.spec, self.key_names)
        ranks = np.empty(together.num_rows, np.int64)
        ranks[order] = np.arange(together.num_rows)
        # Rows that equal the limit may be on either side of it: equal rows are stored alike.
        end = together.num_rows if limit is None else int(ranks[-1])
        start = 0
        for run in taking:
            stop = start + run.rows.num_rows
            run.drop(int(np.searchsorted(ranks[start:stop], end)))
            start = stop
        return together.take(pa.array(order[:end]))

    def _before_limit(self, runs: Sequence[_SortedRun]) -> tuple[Sequence[_SortedRun], pa.Table | None]:
        """Return the limit of a step and the runs that have rows before it. The limit is the least of the last rows in
        memory of the runs with more rows on disk; None if all rows are in memory."""
        unfinished = [run for run in runs if run.is_on_disk]
        if not unfinished:
            return runs, None
        ends = pa.concat_tables(
            [*(run.rows.slice(run.rows.num_rows - 1) for run in unfinished), *(run.rows.slice(0, 1) for run in runs)]
        )
        order = lots.order_of_rows(ends, self.spec, self.key_names)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        least = int(ranks[: len(unfinished)].argmin())
        firsts = ranks[len(unfinished) :]
        taking = [run for run, first in zip(runs, firsts, strict=True) if first < ranks[least]]
        # The run whose last row is the limit takes part even if all its rows in memory are equal.
        taking = taking if unfinished[least] in taking else [*taking, unfinished[least]]
        return taking, ends.slice(least, 1)


class _SortedRun:
    """A sorted run, of which a few blocks are in memory."""

    def __init__(self, path: Path) -> None:
        self._file = pa.OSFile(str(path), "rb")
        self._reader = pa.ipc.open_file(self._file)
        self._next = 0
        self._least_rows = self._reader.get_batch(0).num_rows
        self.rows: pa.Table = self._reader.schema.empty_table()

    @property
    def is_on_disk(self) -> bool:
        """Return True if there are more rows on disk."""
        return self._next < int(self._reader.num_record_batches)

    def read_ahead(self) -> bool:
        """Read more rows if few are in memory; return True if any are left, and close the run if not."""
        while self.is_on_disk and self.rows.num_rows < self._least_rows:
            block = pa.Table.from_batches([self._reader.get_batch(self._next)])
            self.rows = pa.concat_tables([self.rows, block])
            self._next += 1
        if not self.rows.num_rows:
            self.close()
        return int(self.rows.num_rows) > 0

    def drop(self, num_rows: int) -> None:
        """Drop the first `num_rows` rows."""
        self.rows = self.rows.slice(num_rows)

    def close(self) -> None:
        self._file.close()


def _split_by_sizes(pieces: Iterable[pa.Table], sizes: Sequence[int]) -> Iterator[pa.Table]:
    """Yield the rows of the pieces as tables of these sizes."""
    waiting: list[pa.Table] = []
    remaining_pieces = iter(pieces)
    for size in sizes:
        missing = size - sum(piece.num_rows for piece in waiting)
        while missing > 0:
            waiting.append(next(remaining_pieces))
            missing -= waiting[-1].num_rows
        rows = pa.concat_tables(waiting)
        yield rows.slice(0, size)
        waiting = [rows.slice(size)]
