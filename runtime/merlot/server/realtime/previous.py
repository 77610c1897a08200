"""Read rows of a partition by segment and doc: the rows that an upsert in mode PARTIAL merges new rows into.

A segment's rows are read from the consumed rows as long as these are kept here, else from the sealed file, which has
the same docs. Only the consuming thread calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import UnavailableError
from merlot.segment.arrow_types import arrow_type
from merlot.segment.reader import Segment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.server.realtime.partition_log import PartitionLog
from merlot.spec.schema import FieldSpec

Longs = NDArray[np.int64]
Borrow = Callable[[str], AbstractContextManager[Segment | None]]


class StoredRows:
    """Reader of the rows of a partition that this server holds."""

    def __init__(self, borrow: Borrow, log: PartitionLog, keys: Mapping[int, str]) -> None:
        """`keys` are `name@crc` of sealed segments, by sequence."""
        self._borrow = borrow
        self._log = log
        self._keys = keys

    def of(self, sequences: Longs, docs: Longs, fields: Sequence[FieldSpec]) -> pa.Table:
        """Return the columns `fields` of docs, in the order of `docs`; `sequences` holds the segment of each doc. Raise
        UnavailableError if a segment is not here."""
        order = np.argsort(sequences, kind="stable")
        numbers, firsts = np.unique(sequences[order], return_index=True)
        schema = pa.schema([pa.field(field.name, arrow_type(field)) for field in fields])
        tables = [schema.empty_table()]
        for number, positions in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=False):
            with self._segment(number) as segment:
                chosen = docs[positions].astype(np.uint32)
                columns = [taken_column(column_under(segment, field), chosen) for field in fields]
                tables.append(pa.table(columns, names=schema.names).cast(schema))
        inverse = np.empty(len(order), np.int64)
        inverse[order] = np.arange(len(order))
        return pa.concat_tables(tables).take(pa.array(inverse))

    @contextmanager
    def _segment(self, sequence: int) -> Iterator[Segment]:
        with self._opened(sequence) as segment:
            if segment is None:
                raise UnavailableError(
                    f"rows of a segment are not here, which others are merged into number={sequence}"
                )
            yield segment

    def _opened(self, sequence: int) -> AbstractContextManager[Segment | None]:
        part = self._log.part(sequence)
        if part is not None and part.rows is not None:
            # Not `part.snapshot()`, which stops at the part's end: only the next log has the rows behind it elsewhere.
            return nullcontext(part.rows.snapshot())
        key = self._keys.get(sequence)
        return nullcontext(None) if key is None else self._borrow(key)
