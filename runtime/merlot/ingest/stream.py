"""Turn messages of a stream into rows as segments take them: decode, derive, conform and filter, a batch at a time.

The rules are those of files: a row is stored whole, or is counted as bad with its reason and with samples that name its
offset. The rows depend on the messages alone, never on how polls divide them into batches, so that replicas get the
same rows.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.ingest import transform
from merlot.ingest.bad_rows import SAMPLES_PER_REASON, BadRow, BadRows
from merlot.ingest.decoders.opening import open_decoder
from merlot.ingest.decoders.protocol import Decoded, Wanted
from merlot.ingest.row_expressions import RowExpressions
from merlot.ingest.transform import SOURCE_FILE, SOURCE_ROW, Conformed
from merlot.segment.arrow_types import arrow_schema
from merlot.spec.stream import HEADER_PREFIX, BadMessages, StreamIngestion
from merlot.spec.table import TableSpec
from merlot.streams.protocol import Messages
from merlot.values.types import TypeName

NO_SECRETS: Mapping[str, str] = {}
LONGEST_SAMPLE = 200
NUMBERS = {
    TypeName.INT: pa.int64(),
    TypeName.LONG: pa.int64(),
    TypeName.TIMESTAMP: pa.int64(),
    TypeName.DOUBLE: pa.float64(),
}
"""Types whose casts make the same of numbers as of their texts."""
_NO_OFFSETS = np.zeros(0, dtype=np.int64)
MESSAGE = "message"
"""Name under which a sample shows the beginning of a message that is no record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRows:
    """Rows of a poll's messages."""

    rows: pa.Table
    """Rows as `segment.build` takes them, in the order of the stream."""
    offsets: NDArray[np.int64]
    """Offsets of the messages that the rows are from; non-decreasing."""
    next_offset: int
    """Offset to go on from: all messages before it are in `rows`, or are counted below. Later messages of the poll may
    be left, because their rows would take too much memory beside these."""
    bad: BadRows = field(default_factory=BadRows)
    cut: Mapping[str, int] = field(default_factory=dict)
    """Number of texts cut to the column's maximum, by column."""
    num_filtered: int = 0
    """Number of rows that the filter dropped."""
    num_tombstones: int = 0
    """Number of messages without a value."""
    stopped_by: BadRow | None = None
    """Bad message at `next_offset`, which the policy does not allow to pass; it is not in `bad`."""


class Pipeline:
    """Pipeline from one partition's messages to rows. It serves one thread, and one pinned declaration and schema.

    Raises InvalidInputError if an expression or a decoder's schema is wrong."""

    def __init__(
        self, spec: TableSpec, declared: StreamIngestion, partition: int, secrets: Mapping[str, str] = NO_SECRETS
    ) -> None:
        self._spec = spec
        self._declared = declared
        self._partition = partition
        self._place = f"{declared.topic or declared.type}#{partition}"
        schema = spec.table_schema
        self._expressions = RowExpressions(schema, declared.filter, declared.derived_columns)
        filled = {*declared.metadata, *declared.derived_columns}
        columns = {column.name: column.multi_value for column in schema.fields if column.name not in filled}
        columns |= {name: False for name in self._expressions.names if name not in columns}
        types = {
            column.name: NUMBERS[column.type]
            for column in schema.fields
            if column.name in columns and column.type in NUMBERS
        }
        for name in self._expressions.texts:
            types.pop(name, None)
        wanted = Wanted(columns=columns, types=types, as_json=self._expressions.json_texts, names=schema.names)
        self._empty = arrow_schema(schema).empty_table()
        self._decoder = open_decoder(declared.decoder, wanted, {**declared.properties, **secrets})

    def rows(self, messages: Messages) -> StreamRows:
        """Return the rows of a poll. Raises UnavailableError if a schema registry does not answer; the same call may be
        tried again."""
        result = self._rows(messages)
        if self._declared.bad_messages is not BadMessages.STOP or not result.bad.count:
            return result
        # This happens once: nothing more is consumed after it.
        good, end = 0, len(messages)
        while good < end - 1:
            middle = (good + end) // 2
            good, end = (good, middle) if self._rows(head(messages, middle)).bad.count else (middle, end)
        culprit = self._rows(head(messages, good + 1)).bad.samples[0]
        return replace(self._rows(head(messages, good)), stopped_by=culprit)

    def _rows(self, messages: Messages) -> StreamRows:
        filled, num_tombstones = _filled(messages)
        decoded_pieces = self._decoder.decode(filled.values)
        rest = decoded_pieces[-1].rest if decoded_pieces else None
        if rest is not None:
            messages = head(messages, int(np.searchsorted(messages.offsets, filled.offsets[rest])))
            filled, num_tombstones = _filled(messages)
        pieces = [self._piece(filled, decoded) for decoded in decoded_pieces]
        conformed = [piece.conformed for piece in pieces]
        rows, offsets = self._in_order(conformed)
        return StreamRows(
            rows=rows,
            offsets=offsets,
            next_offset=messages.next_offset,
            bad=functools.reduce(operator.add, (piece.bad for piece in pieces), BadRows()),
            cut=functools.reduce(operator.add, (Counter(part.cut) for part in conformed), Counter()),
            num_filtered=sum(piece.num_filtered for piece in pieces),
            num_tombstones=num_tombstones,
        )

    def _in_order(self, pieces: Sequence[Conformed]) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the rows of all pieces and their offsets, in the order of the stream."""
        tables = [piece.rows for piece in pieces]
        rows = tables[0] if len(tables) == 1 else pa.concat_tables([self._empty, *tables])
        offsets = np.concatenate([_NO_OFFSETS, *map(_offsets, pieces)])
        if (np.diff(offsets) >= 0).all():
            return rows, offsets
        order = np.argsort(offsets, kind="stable")
        return rows.take(pa.array(order)), offsets[order]

    def _piece(self, messages: Messages, decoded: Decoded) -> _Piece:
        evaluated = self._expressions.evaluate(self._source(messages, decoded))
        conformed = transform.conform(evaluated.rows, self._spec)
        bad = _no_records(messages, decoded, self._place) + evaluated.bad + conformed.bad
        if evaluated.dropped is None:
            return _Piece(conformed, bad, 0)
        dropped = transform.conform(evaluated.dropped, self._spec)
        return _Piece(conformed, bad + dropped.bad, dropped.rows.num_rows)

    def _source(self, messages: Messages, decoded: Decoded) -> pa.Table:
        """Return the decoded columns, and the metadata of messages as columns beside them."""
        rows = decoded.messages
        columns = dict(decoded.columns)
        for name, source in self._declared.metadata.items():
            column = self._spec.table_schema.field(name)
            is_text = column is not None and column.type is TypeName.STRING
            values = _metadata(messages, source, self._partition, is_text=is_text)
            columns[name] = values if np.array_equal(rows, np.arange(len(messages))) else values.take(pa.array(rows))
        zeros = np.zeros(len(rows), dtype=np.int8)
        columns[SOURCE_FILE] = pa.DictionaryArray.from_arrays(pa.array(zeros), pa.array([self._place]))
        columns[SOURCE_ROW] = pa.array(messages.offsets[rows])
        return pa.table(columns)


@dataclass(frozen=True, slots=True)
class _Piece:
    conformed: Conformed
    bad: BadRows
    num_filtered: int


def head(messages: Messages, count: int) -> Messages:
    """Return the first `count` messages; `next_offset` is that of the message behind them."""
    return replace(
        messages,
        values=messages.values.slice(0, count),
        offsets=messages.offsets[:count],
        timestamps_ms=messages.timestamps_ms[:count],
        keys=None if messages.keys is None else messages.keys.slice(0, count),
        headers=None if messages.headers is None else messages.headers[:count],
        next_offset=int(messages.offsets[count]) if count < len(messages) else messages.next_offset,
    )


def tail(messages: Messages, count: int) -> Messages:
    """Return the messages without the first `count`."""
    return replace(
        messages,
        values=messages.values.slice(count),
        offsets=messages.offsets[count:],
        timestamps_ms=messages.timestamps_ms[count:],
        keys=None if messages.keys is None else messages.keys.slice(count),
        headers=None if messages.headers is None else messages.headers[count:],
    )


def _filled(messages: Messages) -> tuple[Messages, int]:
    """Return the messages that have a value, and the number of those without."""
    count = messages.values.null_count
    if not count:
        return messages, 0
    there = messages.values.is_valid()
    rows = np.flatnonzero(there)
    filled = replace(
        messages,
        values=messages.values.filter(there),
        offsets=messages.offsets[rows],
        timestamps_ms=messages.timestamps_ms[rows],
        keys=None if messages.keys is None else messages.keys.filter(there),
        headers=None if messages.headers is None else [messages.headers[row] for row in rows.tolist()],
    )
    return filled, count


def _metadata(messages: Messages, source: str, partition: int, *, is_text: bool) -> pa.Array:
    """Return metadata of every message. Instants are milliseconds where they become texts, as in Pinot."""
    match source:
        case "offset":
            return pa.array(messages.offsets)
        case "partition":
            return pa.array(np.full(len(messages), partition, dtype=np.int32))
        case "timestamp":
            stamps = messages.timestamps_ms
            return pa.array(stamps, pa.int64() if is_text else pa.timestamp("ms"), mask=stamps < 0)
        case "key":
            return pa.nulls(len(messages), pa.binary()) if messages.keys is None else messages.keys
        case _:
            return _header(messages.headers, source.removeprefix(HEADER_PREFIX), len(messages))


def _header(headers: Sequence[Sequence[tuple[str, bytes | None]]] | None, name: str, num_rows: int) -> pa.Array:
    """Return one header of every message. If a message has several of the name, the last counts."""
    if headers is None:
        return pa.nulls(num_rows, pa.binary())
    return pa.array([dict(message_headers).get(name) for message_headers in headers], pa.binary())


def _offsets(conformed: Conformed) -> NDArray[np.int64]:
    assert conformed.origin is not None, "every row has its offset beside it"
    offsets: NDArray[np.int64] = conformed.origin.column(SOURCE_ROW).to_numpy()
    return offsets


def _no_records(messages: Messages, decoded: Decoded, place: str) -> BadRows:
    """Return the messages that the decoder could not read, as bad rows."""
    counts = {reason: len(rows) for reason, rows in decoded.bad.items()}
    samples = [
        BadRow(
            reason,
            ((MESSAGE, _shown(messages.values[int(row)].as_buffer().to_pybytes())),),
            file=place,
            row_number=int(messages.offsets[row]),
        )
        for reason, rows in decoded.bad.items()
        for row in rows[:SAMPLES_PER_REASON]
    ]
    return BadRows(dict(sorted(counts.items())), tuple(samples))


def _shown(payload: bytes) -> str:
    """Return the beginning of a message as text, or in hex if it is no text."""
    start = payload[:LONGEST_SAMPLE]
    try:
        text = start.decode(errors="strict")
    except UnicodeDecodeError:
        return start.hex()
    return text if text.isprintable() else repr(text)[1:-1]
