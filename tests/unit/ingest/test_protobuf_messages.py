"""Protobuf messages are read by the descriptor that the table brings."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

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
    timestamps = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamps)
    return descriptor_pb2.FileDescriptorSet(file=[timestamps, file])


TEXT = base64.b64encode(descriptors().SerializeToString()).decode()


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
