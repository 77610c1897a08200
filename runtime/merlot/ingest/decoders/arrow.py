"""Decode Arrow messages: each is an IPC stream of any number of rows."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from merlot.errors import InvalidInputError
from merlot.ingest import arrays
from merlot.ingest.decoders.protocol import NO_RECORD, Decoded, Wanted
from merlot.ingest.source import names
from merlot.vectors import arrow_bounds

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
EXPANDS = "the message expands to too much"
MOST_TOGETHER = 128 << 20
"""Bytes of rows after which the messages left in a batch have to wait: each of 20,000 may expand to a megabyte."""


class ArrowDecoder:
    """Decoder of IPC streams. Consecutive streams of one schema become one piece, except if it has dictionaries or runs
    within structs or maps."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def decode(self, values: pa.LargeBinaryArray) -> Sequence[Decoded]:
        """Return the rows of messages. A message is bad if it is no complete stream, if it expands to too much, or if a
        wanted name may mean several of its columns; none of its rows is taken."""
        runs: list[_SchemaRun] = []
        bad: dict[str, list[int]] = {}
        num_bytes = 0
        rest: int | None = None
        for position in range(len(values)):
            if num_bytes > MOST_TOGETHER:
                rest = position
                break
            try:
                rows = self._rows(values[position].as_buffer())
            except arrow_bounds.ExpandsError:
                bad.setdefault(EXPANDS, []).append(position)
            except (pa.ArrowException, OSError, EOFError, struct.error, ValueError, IndexError):
                bad.setdefault(NO_RECORD, []).append(position)
            except InvalidInputError:
                bad.setdefault("several columns may be meant", []).append(position)
            else:
                if not runs or not runs[-1].may_take(rows):
                    runs.append(_SchemaRun(rows.schema))
                runs[-1].add(position, rows)
                num_bytes += rows.nbytes
        faults: Mapping[str, np.ndarray] = {reason: np.array(rows, np.int64) for reason, rows in bad.items()}
        pieces = [run.decoded() for run in runs]
        if not bad and rest is None:
            return pieces
        return [*pieces, Decoded(columns={}, messages=np.zeros(0, np.int64), bad=faults, rest=rest)]

    def _rows(self, message: pa.Buffer) -> pa.Table:
        if message.slice(max(message.size - len(END), 0)).to_pybytes() != END:
            # Arrow would take a stream that was cut between two batches for a complete one.
            raise EOFError("the stream has no end")
        arrow_bounds.check_stream(message)
        with pa.ipc.open_stream(message) as stream:
            rows = stream.read_all()
        rows.validate(full=True)
        actual_names = {name: names.find(name, rows.column_names, "the message") for name in self._wanted.columns}
        chosen = {name: rows.column(actual) for name, actual in actual_names.items() if actual is not None}
        for column in chosen.values():
            arrow_bounds.check_column(column, message.size)
        if not chosen:
            return pa.table({"": pa.nulls(rows.num_rows)})
        return pa.table({name: _united(column) for name, column in chosen.items()})


def _united(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a message's values without dictionaries and runs, except those within structs or maps. Raises what Arrow
    raises if it cannot decode them, or cannot unite those of several batches."""
    return arrays.plain(column) if _is_encoded(column.type) else column


def _is_encoded(kind: pa.DataType) -> bool:
    """Return True if values of the type, or values in them, are of dictionaries or runs."""
    if isinstance(kind, pa.BaseExtensionType):
        return _is_encoded(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return True
    return any(_is_encoded(kind.field(number).type) for number in range(kind.num_fields))


class _SchemaRun:
    """Consecutive messages of one schema; a single message if Arrow may not be able to unite their dictionaries."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._is_single = any(map(_is_encoded, schema.types))
        self._positions: list[int] = []
        self._rows: list[pa.Table] = []

    def may_take(self, rows: pa.Table) -> bool:
        """Return True if a message of these rows may be added."""
        return not self._is_single and bool(self._schema.equals(rows.schema))

    def add(self, position: int, rows: pa.Table) -> None:
        self._positions.append(position)
        self._rows.append(rows)

    def decoded(self) -> Decoded:
        rows = pa.concat_tables(self._rows)
        counts = [part.num_rows for part in self._rows]
        positions = np.repeat(np.array(self._positions, np.int64), counts)
        columns = {name: rows.column(name) for name in rows.column_names if name}
        return Decoded(columns=columns, messages=positions)
