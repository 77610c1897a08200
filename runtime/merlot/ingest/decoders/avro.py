"""Decode Avro messages: one record each, plain or in the form of Confluent's registry (a zero byte, the schema's
number, the record). A record is read by the schema that it was written with.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.ingest.decoders import avro_values
from merlot.ingest.decoders.avro_schema import AvroField, RecordSchema, read_schema
from merlot.ingest.decoders.protocol import NO_RECORD, Decoded, Wanted, bytes_of
from merlot.ingest.decoders.registry import SchemaRegistry
from merlot.ingest.message_values import JSON
from merlot.kernels import avro_scan
from merlot.kernels.jit import read_only
from merlot.streams.protocol import NotYetError

PREFIX_BYTES = 5
NO_SCHEMA = "the message names no schema"
OTHER_SCHEMAS = "other unknown or unusable schemas"
MAX_REASONS = 20
"""Limit for the reasons of a batch, each of which names a schema."""
HOLD_S = 5.0
"""Seconds that messages wait for a schema that the registry does not know, because the followers of a registry lag
behind it."""
HOLD_AGAIN_S = 60.0
"""Seconds from one such wait to the next, so that a producer of unknown numbers does not hold up a partition more
often."""
HOLD_ASK_S = 0.5
ASK_AGAIN_S = 5.0
"""Seconds between two requests for an unknown schema, after messages have waited; HOLD_ASK_S while they wait."""
MAX_UNKNOWN = 10_000
"""Limit for the numbers that are remembered as unknown."""
_BROKEN = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, RecursionError)
"""Errors that fastavro raises at bytes that are no record."""


class AvroDecoder:
    """Decoder of records of one declared schema. Raises InvalidInputError if the schema is wrong."""

    def __init__(self, wanted: Wanted, schema: str) -> None:
        self._schema = read_schema(schema, wanted)

    def decode(self, values: pa.LargeBinaryArray) -> Sequence[Decoded]:
        """Return the records. A message that does not end where its record does is bad."""
        data, starts = bytes_of(values)
        return (_decoded(self._schema, _AvroRecords(data, starts[:-1], starts[1:], np.arange(len(values)))),)


class RegistryDecoder:
    """Decoder of records that name their schemas.

    A schema that the registry does not know may be new: its messages are held up for a moment, and are bad if it does
    not come. It is requested again now and then, so that later messages are read."""

    def __init__(
        self, wanted: Wanted, registry: SchemaRegistry, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wanted = wanted
        self._registry = registry
        self._monotonic = monotonic
        self._schemas: dict[int, RecordSchema | str] = {}
        self._asked_at: dict[int, float] = {}
        """Times of the last requests for unknown schemas."""
        self._held_since = -math.inf

    def decode(self, values: pa.LargeBinaryArray) -> Sequence[Decoded]:
        """Return the records, a piece for each schema, and those that cannot be read."""
        data, starts = bytes_of(values)
        numbers = _schema_numbers(data, starts)
        order = np.argsort(numbers, kind="stable")
        pieces: list[Decoded] = []
        bad: dict[str, list[NDArray[np.int64]]] = {}
        for positions in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            schema = self._schema(int(numbers[positions[0]])) if len(positions) else NO_SCHEMA
            if isinstance(schema, str):
                reason = schema if len(bad) < MAX_REASONS else OTHER_SCHEMAS
                bad.setdefault(reason, []).append(positions)
            else:
                begins, ends = starts[positions] + PREFIX_BYTES, starts[positions + 1]
                pieces.append(_decoded(schema, _AvroRecords(data, read_only(begins), read_only(ends), positions)))
        if bad:
            unreadable = {reason: np.concatenate(parts) for reason, parts in bad.items() if len(values)}
            pieces.append(Decoded(columns={}, messages=order[:0], bad=unreadable))
        return pieces

    def _schema(self, number: int) -> RecordSchema | str:
        """Return the schema of a number, or the reason why there is none."""
        if number < 0:
            return NO_SCHEMA
        if number not in self._schemas:
            text = self._text(number)
            if text is None:
                return f"unknown schema number={number}"
            try:
                self._schemas[number] = read_schema(text, self._wanted)
            except InvalidInputError as error:
                self._schemas[number] = f"unusable schema number={number}: {error}"
        return self._schemas[number]

    def _text(self, number: int) -> str | None:
        """Return the registry's text for a number; None if the registry does not know it, or did not at a request
        shortly before. Raises NotYetError while messages wait for it."""
        now = self._monotonic()
        if now - self._asked_at.get(number, -math.inf) < (HOLD_ASK_S if self._is_holding(now) else ASK_AGAIN_S):
            return self._none_yet(now, number)
        text = self._registry.schema(number)
        if text is not None:
            self._asked_at.pop(number, None)
            return text
        if len(self._asked_at) >= MAX_UNKNOWN:
            self._asked_at.clear()
        self._asked_at[number] = now
        if now - self._held_since >= HOLD_AGAIN_S:
            self._held_since = now
        return self._none_yet(now, number)

    def _is_holding(self, now: float) -> bool:
        return now - self._held_since < HOLD_S

    def _none_yet(self, now: float, number: int) -> str | None:
        if self._is_holding(now):
            raise NotYetError(f"the schema registry does not know a schema yet number={number}")
        return None


@dataclass(frozen=True, slots=True)
class _AvroRecords:
    """Records of one schema, and the positions of their messages in the batch."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    positions: NDArray[np.int64]


def _schema_numbers(data: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the schema of each message, -1 for a message that names none."""
    numbers = np.full(len(starts) - 1, -1, dtype=np.int64)
    rows = np.flatnonzero(np.diff(starts) >= PREFIX_BYTES)
    prefixes = data[starts[:-1][rows][:, np.newaxis] + np.arange(PREFIX_BYTES)]
    rows, prefixes = rows[prefixes[:, 0] == 0], prefixes[prefixes[:, 0] == 0]
    numbers[rows] = np.ascontiguousarray(prefixes[:, 1:]).view(">u4").ravel()
    return numbers


def _decoded(schema: RecordSchema, records: _AvroRecords) -> Decoded:
    columns, is_bad = _one_by_one(schema, records) if schema.program is None else _at_once(schema, records)
    for field in schema.fields:
        if field.is_decimal:
            columns[field.column], has_none = _decimals(columns[field.column], field.arrow)
            is_bad |= has_none
    if not is_bad.any():
        return Decoded(columns=columns, messages=records.positions)
    good = np.flatnonzero(~is_bad)
    good_columns = {name: column.take(pa.array(good)) for name, column in columns.items()}
    return Decoded(columns=good_columns, messages=records.positions[good], bad={NO_RECORD: records.positions[is_bad]})


def _at_once(schema: RecordSchema, records: _AvroRecords) -> tuple[dict[str, pa.Array], NDArray[np.bool_]]:
    assert schema.program is not None, "for records that are not flat"
    num_records, shape = len(records.begins), (len(schema.fields), len(records.begins))
    numbers, lengths = np.zeros(shape, np.int64), np.zeros(shape, np.int32)
    valid, is_bad = np.zeros(shape, np.uint8), np.zeros(num_records, np.bool_)
    avro_scan.find_values(
        records.data, records.begins, records.ends, schema.program, numbers, lengths, valid, is_bad.view(np.uint8)
    )
    valid[:, is_bad] = 0
    columns = {}
    for position, field in enumerate(schema.fields):
        column = _Column(records.data, numbers[position], lengths[position], valid[position])
        columns[field.column] = column.to_arrow(field)
    return columns, is_bad


@dataclass(frozen=True, slots=True)
class _Column:
    """Values of one field, as the kernel found them."""

    data: NDArray[np.uint8]
    numbers: NDArray[np.int64]
    lengths: NDArray[np.int32]
    valid: NDArray[np.uint8]

    def to_arrow(self, field: AvroField) -> pa.Array:
        match field.kind:
            case "null":
                return pa.nulls(len(self.numbers))
            case "string" | "bytes" | "fixed":
                return _typed(self._texts(field.raw), field)
            case "enum":
                symbols = pa.array(field.symbols, pa.string())
                return pa.DictionaryArray.from_arrays(pa.array(self.numbers, mask=self._nulls()), symbols)
            case "boolean":
                return pa.array(self.numbers != 0, mask=self._nulls())
            case "float":
                return pa.array(self.numbers.astype(np.uint32).view(np.float32), mask=self._nulls())
            case "double":
                return pa.array(self.numbers.view(np.float64), mask=self._nulls())
            case "int":
                return _typed(pa.array(self.numbers.astype(np.int32), mask=self._nulls()), field)
            case _:
                return _typed(pa.array(self.numbers, mask=self._nulls()), field)

    def _texts(self, kind: pa.DataType) -> pa.Array:
        used = int(self.lengths.sum(dtype=np.int64, where=self.valid != 0))
        offsets, out = np.empty(len(self.numbers) + 1, np.int32), np.empty(used, np.uint8)
        avro_scan.copy_bytes(self.data, self.numbers, self.lengths, self.valid, offsets, out)
        nulls = self._nulls()
        mask = None if nulls is None else pa.array(~nulls).buffers()[1]
        return pa.Array.from_buffers(kind, len(self.numbers), [mask, pa.py_buffer(offsets), pa.py_buffer(out)])

    def _nulls(self) -> NDArray[np.bool_] | None:
        return None if self.valid.all() else self.valid == 0


def _one_by_one(schema: RecordSchema, records: _AvroRecords) -> tuple[dict[str, pa.Array], NDArray[np.bool_]]:
    """Read records as `_at_once` does, by fastavro. A message that is no record gives no values."""
    is_bad = schema.shape.unbounded(records.data, records.begins, records.ends)
    rows: list[Mapping[str, Any]] = []
    for position, (begin, end) in enumerate(zip(records.begins.tolist(), records.ends.tolist(), strict=True)):
        if is_bad[position]:
            rows.append({})
            continue
        source = io.BytesIO(records.data[begin:end].tobytes())
        try:
            row = fastavro.schemaless_reader(source, schema.parsed, None)
            is_bad[position] = source.tell() != end - begin
        except _BROKEN:
            is_bad[position], row = True, {}
        rows.append(row if isinstance(row, dict) else {})
    columns = {}
    for field in schema.fields:
        columns[field.column], has_none = _of_objects([row.get(field.name) for row in rows], field)
        is_bad |= has_none
    return columns, is_bad


def _of_objects(values: Sequence[Any], field: AvroField) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return a column, and True for the values that it cannot hold."""
    is_bad = np.zeros(len(values), np.bool_)
    if field.raw is None:
        write = avro_values.json_of if field.as_json else avro_values.text_of
        texts = pa.array([None if value is None else write(value) for value in values], pa.string())
        return pa.ExtensionArray.from_storage(JSON, texts) if field.as_json else texts, is_bad
    storage = _storage(field.raw)
    try:
        return _typed(pa.array(values, storage), field), is_bad
    except pa.ArrowInvalid:
        # A decimal has more digits than Arrow's decimals.
        for row, value in enumerate(values):
            try:
                pa.array([value], storage)
            except pa.ArrowInvalid:
                is_bad[row] = True
    representable = [None if bad else value for value, bad in zip(values, is_bad.tolist(), strict=True)]
    return _typed(pa.array(representable, storage), field), is_bad


def _typed(values: pa.Array, field: AvroField) -> pa.Array:
    """Return the values in their logical type, except decimals, which are converted later."""
    if field.arrow is None or values.type == field.arrow or field.is_decimal:
        return values
    if pa.types.is_nested(field.arrow):
        return _with_uuids(values, field.arrow)
    if isinstance(field.arrow, pa.UuidType):
        return pa.ExtensionArray.from_storage(field.arrow, values.cast(field.arrow.storage_type))
    return values.cast(field.arrow)


def _storage(kind: pa.DataType) -> pa.DataType:
    """Return the type of which Arrow makes arrays: it does not make UUIDs within other types."""
    if isinstance(kind, pa.UuidType):
        return kind.storage_type
    if pa.types.is_list(kind):
        return pa.list_(_storage(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _storage(kind.item_type))
    return pa.struct([(member.name, _storage(member.type)) for member in kind]) if pa.types.is_struct(kind) else kind


def _with_uuids(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array of `_storage(kind)`, which is not sliced, in the type itself."""
    if values.type == kind:
        return values
    if isinstance(kind, pa.UuidType):
        return pa.ExtensionArray.from_storage(kind, values)
    nulls = values.is_null()
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, _with_uuids(values.values, kind.value_type), mask=nulls)
    if pa.types.is_map(kind):
        items = _with_uuids(values.items, kind.item_type)
        return pa.MapArray.from_arrays(values.offsets, values.keys, items, mask=nulls)
    members = [_with_uuids(values.field(position), member.type) for position, member in enumerate(kind)]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=nulls)


def _decimals(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return decimals made of their bytes, and True where the bytes are none that Arrow has."""
    values = values.cast(pa.binary())
    _, offsets, payloads = values.buffers()
    begins = np.frombuffer(offsets, np.int32)[: len(values) + 1].astype(np.int64)
    data = np.frombuffer(payloads, np.uint8) if payloads is not None else np.zeros(0, np.uint8)
    valid = np.asarray(values.is_valid()).astype(np.uint8)
    words, is_bad = np.zeros((len(values), 2), np.uint64), np.zeros(len(values), np.bool_)
    lengths = np.diff(begins).astype(np.int32)
    avro_scan.read_decimals(read_only(data), begins[:-1], lengths, valid, words, is_bad.view(np.uint8))
    mask = pa.array(valid != 0).buffers()[1]
    return pa.Array.from_buffers(kind, len(values), [mask, pa.py_buffer(words)]), is_bad
