"""Decode Arrow messages: each is an IPC stream of any number of rows."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from merlot.errors import InvalidInputError
from merlot.ingest.decoders.protocol import NO_RECORD, Decoded, Wanted
from merlot.ingest.source import names
from merlot.vectors import arrow_bounds

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
EXPANDS = "the message expands to too much"
MOST_TOGETHER = 128 << 20
"""Bytes of rows after which the messages left in a batch have to wait: each of 20,000 may expand to a megabyte."""


class ArrowDecoder:
    """Decoder of IPC streams. Consecutive streams of one schema become one piece."""

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
            except (pa.ArrowException, OSError, EOFError, struct.error, UnicodeDecodeError):
                bad.setdefault(NO_RECORD, []).append(position)
            except InvalidInputError:
                bad.setdefault("several columns may be meant", []).append(position)
            else:
                if not runs or not runs[-1].schema.equals(rows.schema):
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
        return pa.table(chosen) if chosen else pa.table({"": pa.nulls(rows.num_rows)})


class _SchemaRun:
    """Consecutive messages of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._positions: list[int] = []
        self._rows: list[pa.Table] = []

    def add(self, position: int, rows: pa.Table) -> None:
        self._positions.append(position)
        self._rows.append(rows)

    def decoded(self) -> Decoded:
        rows = pa.concat_tables(self._rows)
        counts = [part.num_rows for part in self._rows]
        positions = np.repeat(np.array(self._positions, np.int64), counts)
        columns = {name: rows.column(name) for name in rows.column_names if name}
        return Decoded(columns=columns, messages=positions)
