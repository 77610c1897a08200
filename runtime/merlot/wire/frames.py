"""The protobuf messages of `merlot.proto`, declared in code: no generated code, no generator whose version matters."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "merlot"
SERVICE: Final = f"{PACKAGE}.Server"

_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_INT32 = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
_INT64 = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
_STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING

_MESSAGES: Final = {
    "ExecuteRequest": {
        "request_id": (1, _STRING),
        "table": (2, _STRING),
        "query": (3, _BYTES),
        "segments": (4, _STRING),
        "timeout_ms": (5, _INT64),
    },
    "ExecuteResponse": {
        "data": (1, _BYTES),
        "stats": (2, _BYTES),
        "missing": (3, _STRING),
        "error_code": (4, _INT32),
        "error_message": (5, _STRING),
    },
    "PingRequest": {},
    "PingResponse": {"instance": (1, _STRING)},
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="merlot/wire/merlot.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            message.field.add(
                name=field, number=number, type=kind, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
            )
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(_file().SerializeToString())


def _class_of(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


ExecuteRequest: Final[Any] = _class_of("ExecuteRequest")
ExecuteResponse: Final[Any] = _class_of("ExecuteResponse")
PingRequest: Final[Any] = _class_of("PingRequest")
PingResponse: Final[Any] = _class_of("PingResponse")
