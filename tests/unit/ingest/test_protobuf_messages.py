"""Protobuf messages are read by the descriptor that the table brings."""

import base64
import json
import math
import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
)
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message import Message

from merlot.errors import InvalidInputError
from merlot.ingest.decoders.protobuf import ProtobufDecoder
from merlot.ingest.decoders.protocol import Decoded, Wanted
from merlot.ingest.message_values import as_json

NAMES = ("city", "rides", "fare", "big", "note", "color", "tags", "props", "inner", "at", "raw", "missing")


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    file = descriptor_pb2.FileDescriptorProto(
        name="trips.proto", package="acme", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    color = file.enum_type.add(name="Color")
    for number, name in enumerate(("RED", "BLUE")):
        color.value.add(name=name, number=number)
    trip = file.message_type.add(name="Trip")
    inner = trip.nested_type.add(name="Inner")
    inner.field.add(name="x_y", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    entry = trip.nested_type.add(name="PropsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    one, many = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
    for number, (name, kind, label, type_name) in enumerate(
        [
            ("City", Field.TYPE_STRING, one, None),
            ("rides", Field.TYPE_SINT32, one, None),
            ("fare", Field.TYPE_DOUBLE, one, None),
            ("big", Field.TYPE_UINT64, one, None),
            ("color", Field.TYPE_ENUM, one, ".acme.Color"),
            ("tags", Field.TYPE_STRING, many, None),
            ("props", Field.TYPE_MESSAGE, many, ".acme.Trip.PropsEntry"),
            ("inner", Field.TYPE_MESSAGE, one, ".acme.Trip.Inner"),
            ("at", Field.TYPE_MESSAGE, one, ".google.protobuf.Timestamp"),
            ("raw", Field.TYPE_BYTES, one, None),
        ],
        1,
    ):
        trip.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)
    trip.oneof_decl.add(name="_note")
    trip.field.add(name="note", number=20, type=Field.TYPE_STRING, label=one, proto3_optional=True, oneof_index=0)
    return descriptor_pb2.FileDescriptorSet(file=[*well_known(), file, extras()])


def well_known() -> list[descriptor_pb2.FileDescriptorProto]:
    files = []
    for module in (any_pb2, duration_pb2, struct_pb2, timestamp_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return files


def extras() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="extras.proto",
        package="acme",
        syntax="proto2",
        dependency=[f"google/protobuf/{name}.proto" for name in ("any", "duration", "struct", "timestamp")],
    )
    extra = file.message_type.add(name="Extra")
    entry = extra.nested_type.add(name="WeightsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_DOUBLE, label=Field.LABEL_OPTIONAL)
    for number, name in enumerate(("Any", "Duration", "Value", "Timestamp"), 1):
        extra.field.add(
            name=f"the_{name.lower()}",
            number=number,
            type=Field.TYPE_MESSAGE,
            label=Field.LABEL_OPTIONAL,
            type_name=f".google.protobuf.{name}",
        )
    extra.field.add(name="name", number=5, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    weights = ".acme.Extra.WeightsEntry"
    extra.field.add(name="weights", number=6, type=Field.TYPE_MESSAGE, label=Field.LABEL_REPEATED, type_name=weights)
    return file


TEXT = base64.b64encode(descriptors().SerializeToString()).decode()


def any_of(type_name: str, value: bytes) -> any_pb2.Any:
    return any_pb2.Any(type_url=f"type.googleapis.com/{type_name}", value=value)


def field_bytes(number: int, value: bytes | Message) -> bytes:
    payload = value if isinstance(value, bytes) else value.SerializeToString()
    return bytes([number << 3 | 2, len(payload)]) + payload


def decoded_extras(*payloads: bytes) -> Decoded:
    columns = ("the_any", "the_duration", "the_value", "the_timestamp", "name", "weights")
    wanted = Wanted(columns=dict.fromkeys(columns, False), names=())
    [found] = ProtobufDecoder(wanted, TEXT, "acme.Extra").decode(pa.array(payloads, pa.large_binary()))
    return found


def trip(**values: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors().file:
        pool.Add(file)
    made: bytes = message_factory.GetMessageClass(pool.FindMessageTypeByName("acme.Trip"))(**values).SerializeToString()
    return made


def decoded(*payloads: bytes) -> Decoded:
    wanted = Wanted(columns=dict.fromkeys(NAMES, False), names=())
    [found] = ProtobufDecoder(wanted, TEXT, "acme.Trip").decode(pa.array(payloads, pa.large_binary()))
    return found


def test_fields_are_columns() -> None:
    found = decoded(
        trip(
            City="a", rides=-5, fare=1.5, big=2**64 - 1, color=1, tags=["x", "y"], props={"k": 2**60}, note="",
            inner={"x_y": 3}, at=datetime(2020, 1, 1, tzinfo=UTC), raw=b"\xff",
        ),
        trip(),
    )  # fmt: skip
    columns = {name: column.to_pylist() for name, column in found.columns.items() if name != "at"}
    assert columns == {
        "city": ["a", ""],
        "rides": [-5, 0],
        "fare": [1.5, 0.0],
        "big": [2**64 - 1, 0],
        "note": ["", None],
        "color": ["BLUE", "RED"],
        "tags": [["x", "y"], []],
        "props": ['{"k":1152921504606846976}', "{}"],
        "inner": ['{"x_y": 3}', None],
        "raw": [b"\xff", b""],
    }
    assert found.columns["at"].cast(pa.int64()).to_pylist() == [1_577_836_800_000_000, None]


def test_message_that_cannot_be_parsed_is_found() -> None:
    whole = trip(City="abc", rides=1)
    found = decoded(whole, whole[:3], b"\xff\xff", whole)
    assert found.columns["city"].to_pylist() == ["abc", "abc"]
    assert found.messages.tolist() == [0, 3]
    assert {reason: rows.tolist() for reason, rows in found.bad.items()} == {"the message is no record": [1, 2]}


@pytest.mark.parametrize(
    "payload",
    [
        field_bytes(1, any_of("acme.Unknown", b"")),
        field_bytes(1, any_of("acme.Trip", b"\xff")),
        field_bytes(2, duration_pb2.Duration(seconds=10**15)),
        field_bytes(3, struct_pb2.Value(number_value=math.nan)),
        field_bytes(4, timestamp_pb2.Timestamp(seconds=2**60)),
        field_bytes(5, b"\xff"),
    ],
)
def test_message_with_a_value_that_no_column_can_have_is_bad(payload: bytes) -> None:
    good = field_bytes(5, b"a")
    found = decoded_extras(b"\xff", good, payload, good)
    assert found.columns["name"].to_pylist() == ["a", "a"]
    assert found.messages.tolist() == [1, 3]
    assert {reason: rows.tolist() for reason, rows in found.bad.items()} == {"the message is no record": [0, 2]}


def test_any_of_a_declared_type_is_its_message() -> None:
    found = decoded_extras(field_bytes(1, any_of("acme.Trip", trip(City="a"))))
    [text] = found.columns["the_any"].to_pylist()
    assert json.loads(text) == {"@type": "type.googleapis.com/acme.Trip", "City": "a"}


def test_infinite_number_of_a_map_is_a_text() -> None:
    entry = b"\x0a\x01k" + b"\x11" + struct.pack("<d", -math.inf)
    assert decoded_extras(field_bytes(6, entry)).columns["weights"].to_pylist() == ['{"k":"-Infinity"}']


def test_enum_of_an_unknown_number_is_its_number() -> None:
    assert decoded(b"\x28\x07").columns["color"].to_pylist() == ["7"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("?", "acme.Trip"),
        ("ä", "acme.Trip"),
        (TEXT, "acme.Trop"),
        (base64.b64encode(b"\xff").decode(), "acme.Trip"),
        (TEXT[:40], "x"),
    ],
)
def test_wrong_descriptor_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError):
        ProtobufDecoder(Wanted(columns={"city": False}, names=()), text, message)


def test_messages_are_the_json_that_they_are_where_that_is_wanted() -> None:
    wanted = Wanted(columns=dict.fromkeys(NAMES, False), as_json=frozenset(NAMES), names=())
    payload = trip(City='a"', rides=1, tags=["x"], props={"k": 1}, inner={"x_y": 3}, color=1)
    [found] = ProtobufDecoder(wanted, TEXT, "acme.Trip").decode(pa.array([payload], pa.large_binary()))
    rows = pa.table(dict(found.columns))
    read = {name: as_json(rows, name).to_pylist()[0] for name in ("city", "rides", "tags", "props", "inner", "color")}
    assert {name: json.loads(text) for name, text in read.items()} == {
        "city": 'a"', "rides": 1, "tags": ["x"], "props": {"k": 1}, "inner": {"x_y": 3}, "color": "BLUE",
    }  # fmt: skip
