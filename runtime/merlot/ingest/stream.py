"""From messages of a stream to rows as segments take them: decode, derive, conform, filter; a batch at a time.

The same rules as for files: a row is stored whole or is counted as bad, with its reason and samples that name its
offset. Which rows there are depends on the messages alone, never on how polls cut them into batches, so that replicas
come to the same.
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
"""Under this name a sample shows the beginning of a message that is no record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRows:
    """What became of a poll's messages."""

    rows: pa.Table
    """As `segment.build` takes them, in the order of the stream."""
    offsets: NDArray[np.int64]
    """Of the message that each row is from; non-decreasing."""
    next_offset: int
    """Where to go on: all messages before it are in `rows`, or counted below. Others of the poll may follow it: their
    rows would take too much memory beside these."""
    bad: BadRows = field(default_factory=BadRows)
    cut: Mapping[str, int] = field(default_factory=dict)
    """Texts cut to the column's maximum, by column."""
    num_filtered: int = 0
    """Rows that the filter left out."""
    num_tombstones: int = 0
    """Messages without a value."""
    stopped_by: BadRow | None = None
    """The bad message at `next_offset` that the policy lets nothing go past; it is not in `bad`."""


class Pipeline:
    """Makes rows of one partition's messages. For one thread, and one pinned declaration and schema.

    InvalidInputError for an expression or a decoder's schema that is wrong."""

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
        columns = {one.name: one.multi_value for one in schema.fields if one.name not in filled}
        columns |= {name: False for name in self._expressions.names if name not in columns}
        types = {one.name: NUMBERS[one.type] for one in schema.fields if one.name in columns and one.type in NUMBERS}
        for name in self._expressions.texts:
            types.pop(name, None)
        wanted = Wanted(columns=columns, types=types, as_json=self._expressions.json_texts, names=schema.names)
        self._empty = arrow_schema(schema).empty_table()
        self._decoder = open_decoder(declared.decoder, wanted, {**declared.properties, **secrets})

    def rows(self, messages: Messages) -> StreamRows:
        """The rows of a poll. UnavailableError if a registry of schemas does not answer: the same call may be tried
        again."""
        found = self._rows(messages)
        if self._declared.bad_messages is not BadMessages.STOP or not found.bad.count:
            return found
        # It happens once: then nothing more is consumed.
        good, end = 0, len(messages)
        while good < end - 1:
            middle = (good + end) // 2
            good, end = (good, middle) if self._rows(head(messages, middle)).bad.count else (middle, end)
        culprit = self._rows(head(messages, good + 1)).bad.samples[0]
        return replace(self._rows(head(messages, good)), stopped_by=culprit)

    def _rows(self, messages: Messages) -> StreamRows:
        filled, num_tombstones = _filled(messages)
        found = self._decoder.decode(filled.values)
        rest = found[-1].rest if found else None
        if rest is not None:
            messages = head(messages, int(np.searchsorted(messages.offsets, filled.offsets[rest])))
            filled, num_tombstones = _filled(messages)
        pieces = [self._piece(filled, decoded) for decoded in found]
        kept = [piece.kept for piece in pieces]
        return StreamRows(
            rows=kept[0].rows if len(kept) == 1 else pa.concat_tables([self._empty, *(one.rows for one in kept)]),
            offsets=np.concatenate([_NO_OFFSETS, *map(_offsets, kept)]),
            next_offset=messages.next_offset,
            bad=functools.reduce(operator.add, (piece.bad for piece in pieces), BadRows()),
            cut=functools.reduce(operator.add, (Counter(one.cut) for one in kept), Counter()),
            num_filtered=sum(piece.num_filtered for piece in pieces),
            num_tombstones=num_tombstones,
        )

    def _piece(self, messages: Messages, decoded: Decoded) -> _Piece:
        judged = self._expressions.judge(self._source(messages, decoded))
        kept = transform.conform(judged.rows, self._spec)
        bad = _no_records(messages, decoded, self._place) + judged.bad + kept.bad
        if judged.dropped is None:
            return _Piece(kept, bad, 0)
        dropped = transform.conform(judged.dropped, self._spec)
        return _Piece(kept, bad + dropped.bad, dropped.rows.num_rows)

    def _source(self, messages: Messages, decoded: Decoded) -> pa.Table:
        """Decoded columns, and beside them what messages have besides a value."""
        rows = decoded.messages
        columns = dict(decoded.columns)
        for name, source in self._declared.metadata.items():
            column = self._spec.table_schema.field(name)
            is_text = column is not None and column.type is TypeName.STRING
            values = _metadata(messages, source, self._partition, is_text=is_text)
            columns[name] = values if len(rows) == len(messages) else values.take(pa.array(rows))
        zeros = np.zeros(len(rows), dtype=np.int8)
        columns[SOURCE_FILE] = pa.DictionaryArray.from_arrays(pa.array(zeros), pa.array([self._place]))
        columns[SOURCE_ROW] = pa.array(messages.offsets[rows])
        return pa.table(columns)


@dataclass(frozen=True, slots=True)
class _Piece:
    kept: Conformed
    bad: BadRows
    num_filtered: int


def head(messages: Messages, count: int) -> Messages:
    """The first messages; what comes next begins with the one behind them."""
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
    """The messages without the first ones."""
    return replace(
        messages,
        values=messages.values.slice(count),
        offsets=messages.offsets[count:],
        timestamps_ms=messages.timestamps_ms[count:],
        keys=None if messages.keys is None else messages.keys.slice(count),
        headers=None if messages.headers is None else messages.headers[count:],
    )


def _filled(messages: Messages) -> tuple[Messages, int]:
    """The messages that have a value, and how many have none."""
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
    """Values of every message; instants are milliseconds where they become texts, as in Pinot."""
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
    """Of headers of one name, the last counts."""
    if headers is None:
        return pa.nulls(num_rows, pa.binary())
    return pa.array([dict(one).get(name) for one in headers], pa.binary())


def _offsets(conformed: Conformed) -> NDArray[np.int64]:
    assert conformed.origin is not None, "every row has its offset beside it"
    offsets: NDArray[np.int64] = conformed.origin.column(SOURCE_ROW).to_numpy()
    return offsets


def _no_records(messages: Messages, decoded: Decoded, place: str) -> BadRows:
    """What the decoder could make nothing of."""
    counts = {reason: len(found) for reason, found in decoded.bad.items()}
    samples = [
        BadRow(
            reason,
            ((MESSAGE, _shown(messages.values[int(row)].as_buffer().to_pybytes())),),
            file=place,
            row_number=int(messages.offsets[row]),
        )
        for reason, found in decoded.bad.items()
        for row in found[:SAMPLES_PER_REASON]
    ]
    return BadRows(dict(sorted(counts.items())), tuple(samples))


def _shown(payload: bytes) -> str:
    """The beginning of a message as text, or in hex if it is none."""
    start = payload[:LONGEST_SAMPLE]
    try:
        text = start.decode(errors="strict")
    except UnicodeDecodeError:
        return start.hex()
    return text if text.isprintable() else repr(text)[1:-1]
