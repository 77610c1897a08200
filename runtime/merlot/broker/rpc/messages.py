"""The messages of Pinot's `broker.proto`, whose four fields need no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "org.apache.pinot.common.proto"
SERVICE: Final = f"{PACKAGE}.PinotQueryBroker"
SERVICE_OF_SERVERS: Final = f"{PACKAGE}.PinotQueryServer"
METHOD: Final = "Submit"
_FIELD = descriptor_pb2.FieldDescriptorProto


def _field(name: str, number: int, kind: int, entry: str | None = None) -> Any:
    """Describe a field. `entry` is the message of a map's entries, if the field is a map."""
    label = _FIELD.LABEL_REPEATED if entry else _FIELD.LABEL_OPTIONAL
    return _FIELD(name=name, number=number, type=kind, label=label, type_name=entry)


def _message(name: str, *fields: Any) -> Any:
    """Describe a message whose field 1 is `metadata`, a map of texts."""
    entry = descriptor_pb2.DescriptorProto(
        name="MetadataEntry",
        field=[_field("key", 1, _FIELD.TYPE_STRING), _field("value", 2, _FIELD.TYPE_STRING)],
        options=descriptor_pb2.MessageOptions(map_entry=True),
    )
    metadata = _field("metadata", 1, _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{name}.MetadataEntry")
    return descriptor_pb2.DescriptorProto(name=name, field=[metadata, *fields], nested_type=[entry])


def _classes() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="broker.proto",
        package=PACKAGE,
        syntax="proto3",
        message_type=[
            _message("BrokerRequest", _field("sql", 2, _FIELD.TYPE_STRING)),
            _message("BrokerResponse", _field("payload", 2, _FIELD.TYPE_BYTES)),
        ],
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{message.name}"))
        for message in file.message_type
    )


BrokerRequest, BrokerResponse = _classes()


def response(payload: bytes, metadata: Mapping[str, str] | None = None) -> Any:
    """Create a message of an answer."""
    return BrokerResponse(payload=payload, metadata=metadata)
