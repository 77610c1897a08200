"""Decode Protobuf messages of one type, whose descriptor the table declares.

The library parses a message at a time, in C. Columns are taken from the parsed messages, a field at once. A field that
a message does not set is null if the type can tell (optional, oneof, messages), else its default.
"""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import SerializeToJsonError
from google.protobuf.message import DecodeError, Message

from merlot.errors import InvalidInputError
from merlot.ingest.decoders.protocol import Decoded, Wanted, split_good
from merlot.ingest.message_values import JSON
from merlot.ingest.source import names
from merlot.ingest.text_casts import json_text

TIMESTAMP = "google.protobuf.Timestamp"
_TYPES = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
_NO_VALUE = (SerializeToJsonError, DecodeError, TypeError, ValueError, OverflowError, RecursionError)
"""Errors of the library and of Arrow at a message that parses and holds a value that no column can have: an instant
beyond 64 bits, a text that is not UTF-8, an Any of an undeclared type, an infinite google.protobuf.Value."""


class ProtobufDecoder:
    """Decoder of messages of one type. Raises InvalidInputError if the descriptor set does not define it."""

    def __init__(self, wanted: Wanted, descriptor_set: str, message: str) -> None:
        self._message = _message_class(descriptor_set, message)
        fields = {field.name: field for field in self._message.DESCRIPTOR.fields}
        field_names = {name: names.find(name, list(fields), message) for name in wanted.columns}
        self._as_json = wanted.as_json
        self._fields = {name: fields[field_name] for name, field_name in field_names.items() if field_name is not None}

    def decode(self, values: pa.LargeBinaryArray) -> Sequence[Decoded]:
        """Return the messages; those that the library cannot parse, or whose values no column can have, are bad."""
        parse = self._message.FromString
        payloads = values.to_pylist()
        bad: list[int] = []
        try:
            parsed = list(map(parse, payloads))
        except DecodeError:
            parsed = []
            for position, payload in enumerate(payloads):
                try:
                    parsed.append(parse(payload))
                except DecodeError:
                    bad.append(position)
        try:
            columns = self._columns(parsed)
        except _NO_VALUE:
            has_columns = list(map(self._has_columns, parsed))
            positions = np.delete(np.arange(len(values)), bad)
            bad = sorted([*bad, *positions[~np.array(has_columns)].tolist()])
            columns = self._columns(list(itertools.compress(parsed, has_columns)))
        messages, faults = split_good(np.array(bad, dtype=np.int64), len(values))
        return (Decoded(columns=columns, messages=messages, bad=faults),)

    def _columns(self, parsed: Sequence[Message]) -> Mapping[str, pa.Array]:
        columns = {name: _column(parsed, field) for name, field in self._fields.items()}
        return columns | {name: _as_json(columns[name], self._fields[name]) for name in self._as_json & columns.keys()}

    def _has_columns(self, message: Message) -> bool:
        try:
            self._columns([message])
        except _NO_VALUE:
            return False
        return True


def _message_class(descriptor_set: str, message: str) -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(descriptor_set, validate=True))
        for file in files.file:
            pool.Add(file)
        message_class: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except (ValueError, DecodeError, TypeError) as error:
        raise InvalidInputError(f"wrong descriptor set of Protobuf reason={error}") from error
    except KeyError as error:
        raise InvalidInputError(f"no such message in the descriptor set message={message} reason={error}") from error
    return message_class


def _column(parsed: Sequence[Message], field: FieldDescriptor) -> pa.Array:
    values = list(map(attrgetter(field.name), parsed))
    if field.is_repeated:
        return _repeated(values, field)
    kind, value_of = _element(field)
    if value_of is not None:
        values = list(map(value_of, values))
    if field.has_presence:
        is_set = [message.HasField(field.name) for message in parsed]
        values = [value if there else None for value, there in zip(values, is_set, strict=True)]
    return pa.array(values, kind)


def _as_json(values: pa.Array, field: FieldDescriptor) -> pa.Array:
    """Return messages and maps, whose texts are JSON, as Arrow's JSON; other values as they are, because their types
    say what they are."""
    is_json = field.message_type is not None and field.message_type.full_name != TIMESTAMP
    if not is_json:
        return values
    if pa.types.is_list(values.type):
        values = pa.array(
            [None if items is None else f"[{','.join(items)}]" for items in values.to_pylist()], pa.string()
        )
    return pa.ExtensionArray.from_storage(JSON, values)


def _repeated(values: Sequence[Any], field: FieldDescriptor) -> pa.Array:
    """Return lists; maps as the text of a JSON object."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return pa.array([_map_text(value) for value in values], pa.string())
    kind, value_of = _element(field)
    return pa.array(
        [list(value) if value_of is None else list(map(value_of, value)) for value in values], pa.list_(kind)
    )


def _element(field: FieldDescriptor) -> tuple[pa.DataType, Callable[[Any], Any] | None]:
    """Return the type of a value, and the function that makes it of the library's value."""
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_ENUM:
            symbols = {value.number: value.name for value in field.enum_type.values}
            return pa.string(), lambda number: symbols.get(number, str(number))
        case FieldDescriptor.CPPTYPE_MESSAGE if field.message_type.full_name == TIMESTAMP:
            return pa.timestamp("us"), lambda stamp: stamp.seconds * 1_000_000 + stamp.nanos // 1_000
        case FieldDescriptor.CPPTYPE_MESSAGE:
            return pa.string(), _message_text
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return pa.binary(), None
        case kind:
            return _TYPES[kind], None


def _message_text(message: Message) -> str:
    pool = message.DESCRIPTOR.file.pool  # declares the types that an Any may hold
    text = json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True, descriptor_pool=pool)
    return str(text)


def _map_text(values: Any) -> str:
    return json_text({key: _plain(value) for key, value in values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        pool = value.DESCRIPTOR.file.pool
        return json_format.MessageToDict(value, preserving_proto_field_name=True, descriptor_pool=pool)
    if isinstance(value, float) and not math.isfinite(value):
        return json_text(value).strip('"')
    return value
