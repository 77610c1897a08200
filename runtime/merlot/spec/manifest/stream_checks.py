"""Checks of a Table's stream that need more than one field, on the plain document."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from merlot.spec.manifest.problems import Problem
from merlot.spec.stream import HOST_PROPERTIES, OWN_PROPERTIES, SECRET_PROPERTIES, DecoderType
from merlot.uris import credentials_problem
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
Missing = Callable[[str, object], Iterator[Problem]]
"""A problem if the schema has no column of that name; takes the path too."""

TEXT = (TypeName.STRING, TypeName.BYTES, TypeName.JSON)
METADATA_TYPES: Mapping[str, Collection[TypeName]] = {
    "key": TEXT,
    "headers": TEXT,
    "offset": (TypeName.LONG, TypeName.STRING),
    "timestamp": (TypeName.LONG, TypeName.TIMESTAMP, TypeName.STRING),
    "partition": (TypeName.INT, TypeName.LONG, TypeName.STRING),
}
DECODER_PARTS: Mapping[str, DecoderType] = {
    "csv": DecoderType.CSV,
    "schemaRegistry": DecoderType.AVRO,
    "avroSchema": DecoderType.AVRO,
    "descriptorSet": DecoderType.PROTOBUF,
    "message": DecoderType.PROTOBUF,
}
PATH = "spec.ingestion.stream"


def check(spec: JsonObject, columns: Mapping[str, JsonObject], missing: Missing) -> Iterator[Problem]:
    """The problems between the fields of a stream, and with the table's columns."""
    ingestion = _mapping(spec.get("ingestion"))
    if "stream" not in ingestion:
        return
    stream = _mapping(ingestion["stream"])
    yield from _check_source(stream)
    yield from _check_properties(_mapping(stream.get("properties")))
    yield from _check_decoder(_mapping(stream.get("decoder")))
    yield from _check_columns(stream, columns, missing)
    if spec.get("pushType") == "REFRESH":
        yield Problem("spec.pushType", "a REFRESH table is replaced as a whole; a stream adds to it: write APPEND")


def _check_source(stream: JsonObject) -> Iterator[Problem]:
    type_ = stream.get("type")
    properties = _mapping(stream.get("properties"))
    if type_ in ("kafka", "files") and "topic" not in stream:
        yield Problem(f"{PATH}.topic", "is missing: " + ("the topic" if type_ == "kafka" else "the folder"))
    if type_ == "kafka" and not {"bootstrap.servers", "metadata.broker.list"} & properties.keys():
        yield Problem(f"{PATH}.properties", 'needs "bootstrap.servers": host:port of brokers')
    topic = stream.get("topic")
    if isinstance(topic, str) and (problem := credentials_problem(topic)) is not None:
        yield Problem(f"{PATH}.topic", f"must not hold {problem}")


def _check_properties(properties: JsonObject) -> Iterator[Problem]:
    for name in properties:
        if name in SECRET_PROPERTIES:
            yield Problem(f"{PATH}.properties.{name}", f"is a secret; put it into the Secret of {PATH}.secretRef")
        elif name in HOST_PROPERTIES:
            problem = "names what is on the machine that consumes; put keys and certificates into the Secret, as *.pem"
            yield Problem(f"{PATH}.properties.{name}", problem)
        elif name in OWN_PROPERTIES:
            yield Problem(f"{PATH}.properties.{name}", "is not for a table to set: its segments' records hold offsets")


def _check_decoder(decoder: JsonObject) -> Iterator[Problem]:
    path = f"{PATH}.decoder"
    type_ = decoder.get("type", DecoderType.JSON)
    for part, owner in DECODER_PARTS.items():
        if part in decoder and type_ != owner and type_ in list(DecoderType):
            yield Problem(f"{path}.{part}", f"the type is {type_}; remove it, or write type: {owner}")
    if type_ == DecoderType.AVRO and ("schemaRegistry" in decoder) == ("avroSchema" in decoder):
        yield Problem(path, "AVRO needs schemaRegistry or avroSchema, and not both")
    for part in ("descriptorSet", "message"):
        if type_ == DecoderType.PROTOBUF and part not in decoder:
            yield Problem(f"{path}.{part}", "is missing; PROTOBUF needs it")
    registry = decoder.get("schemaRegistry")
    if isinstance(registry, str) and (problem := credentials_problem(registry)) is not None:
        yield Problem(f"{path}.schemaRegistry", f"must not hold {problem}; write basic.auth.user.info in the Secret")


def _check_columns(stream: JsonObject, columns: Mapping[str, JsonObject], missing: Missing) -> Iterator[Problem]:
    derived, metadata = _mapping(stream.get("derivedColumns")), _mapping(stream.get("metadata"))
    for name in derived:
        yield from missing(f"{PATH}.derivedColumns.{name}", name)
    for name, source in metadata.items():
        path = f"{PATH}.metadata.{name}"
        yield from missing(path, name)
        if name in derived:
            yield Problem(path, f"{PATH}.derivedColumns fills the column too; keep one")
        column = columns.get(name, {})
        allowed = METADATA_TYPES.get(str(source).partition(".")[0], ())
        if allowed and column.get("type") in list(TypeName) and column["type"] not in allowed:
            yield Problem(path, f"{source} fills a column of type {' or '.join(allowed)}, not {column['type']}")
        if column.get("multiValue") is True:
            yield Problem(path, f'column "{name}" is multi-valued; {source} is one value')


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}
