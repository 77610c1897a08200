"""Convert Pinot's `streamConfigs` to `spec.ingestion.stream`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from merlot.errors import InvalidInputError
from merlot.pinot.configs.source import ConfigReader, Json, duration, is_count, seconds_of, without_empty
from merlot.spec.stream import SECRET_PROPERTIES, STREAM_TYPES

_DECODERS: Final = (
    (re.compile(r"confluent.*avro|KafkaConfluentSchemaRegistryAvro", re.IGNORECASE), "AVRO"),
    (re.compile(r"avro", re.IGNORECASE), "AVRO"),
    (re.compile(r"proto", re.IGNORECASE), "PROTOBUF"),
    (re.compile(r"csv", re.IGNORECASE), "CSV"),
    (re.compile(r"arrow", re.IGNORECASE), "ARROW"),
    (re.compile(r"json", re.IGNORECASE), "JSON"),
)
_ROWS: Final = ("realtime.segment.flush.threshold.rows", "realtime.segment.flush.threshold.size")
_SEGMENT_BYTES: Final = (
    "realtime.segment.flush.threshold.segment.size",
    "realtime.segment.flush.desired.size",
)
_AGE: Final = "realtime.segment.flush.threshold.time"
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([KMGT]?)B?", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_STARTS: Final = {"smallest": "earliest", "earliest": "earliest", "largest": "latest", "latest": "latest"}
_SET_BY_MERLOT: Final = ("group.id", "enable.auto.commit", "auto.offset.reset")
_JAVA: Final = ("key.deserializer", "value.deserializer", "sasl.jaas.config")
_HEADER: Final = "__header$"
_METADATA_COLUMNS: Final = {"__metadata$offset": "offset", "__metadata$recordTimestamp": "timestamp"}
_JAVA_CLASSES: Final = (".consumer.factory.class.name", ".consumer.type")
"""Suffixes of settings that are dropped: Java classes, and the consumer type, which is always by partition here."""


def stream(source: ConfigReader, columns: Sequence[str]) -> Json:
    """Convert one map of stream configs, whose values are texts, for a table of these columns."""
    kind = source.text("streamType").lower() or "kafka"
    if kind not in STREAM_TYPES:
        source.note("streamType", f"{kind} is no stream of Merlot's; a package may bring it (merlot.streams)")
    prefix = f"stream.{kind}."
    members = {
        "type": kind,
        "topic": source.text(f"{prefix}topic.name"),
        "decoder": _decoder(source, prefix),
        "start": _start(source, prefix),
        "flush": _flush(source),
    }
    for name in source.members():
        if name.endswith(_JAVA_CLASSES):
            source.take(name)
    members["properties"] = _properties(source, prefix)
    members["metadata"] = _metadata(columns, populates=source.flag(f"{prefix}metadata.populate"))
    return without_empty(members)


def _metadata(columns: Sequence[str], *, populates: bool) -> Json:
    """Return the sources of columns with Pinot's special names. The column of the key is always filled, those of
    headers, offset and timestamp only if `populates`."""
    sources = {}
    for column in columns:
        if column == "__key":
            sources[column] = "key"
        elif populates and column.startswith(_HEADER) and column != _HEADER:
            sources[column] = f"headers.{column.removeprefix(_HEADER)}"
        elif populates and column in _METADATA_COLUMNS:
            sources[column] = _METADATA_COLUMNS[column]
    return sources


def _decoder(source: ConfigReader, prefix: str) -> Json:
    name = source.text(f"{prefix}decoder.class.name")
    kind = next((decoder_type for pattern, decoder_type in _DECODERS if pattern.search(name.rpartition(".")[2])), None)
    if name and kind is None:
        source.note(f"{prefix}decoder.class.name", f"{name} is unknown; set decoder.type")
    options = f"{prefix}decoder.prop."
    registry = source.text(f"{options}schema.registry.rest.url")
    written = source.text(f"{options}schema") if kind == "AVRO" else ""
    if kind == "PROTOBUF":
        source.note(f"{prefix}decoder.class.name", "set decoder.descriptorSet and decoder.message")
    members: Json = {"type": kind, "schemaRegistry": registry}
    if written:
        members["avroSchema"] = written
    if kind == "CSV":
        header, delimiter = source.text(f"{options}header"), source.take(f"{options}delimiter", ",") or ","
        members["csv"] = without_empty({"columns": header.split(delimiter) if header else [], "delimiter": delimiter})
    return without_empty(members)


def _start(source: ConfigReader, prefix: str) -> str | None:
    name = f"{prefix}consumer.prop.auto.offset.reset"
    text = source.text(name)
    start = _STARTS.get(text.lower())
    if text and start is None:
        source.note(name, f"{text} is neither smallest nor largest; set start, to an instant if you like")
    return start or "latest"


def _flush(source: ConfigReader) -> Json:
    bounds: Json = {}
    for name in _ROWS:
        rows = source.text(name)
        if is_count(rows) and int(rows):
            bounds["rows"] = int(rows)
    for name in _SEGMENT_BYTES:
        size = source.text(name)
        if size:
            source.note(name, f"{size} of a sealed file in Pinot; flush.bytes is memory before it is sealed")
            bounds["bytes"] = _bytes(size)
    age = source.text(_AGE)
    if age:
        bounds["age"] = duration(int(age) / 1000 if is_count(age) else seconds_of(age))
    return bounds


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"not a size: {text!r:.40}")
    return max(1 << 20, int(float(match[1]) * (1 << _POWERS[match[2].upper()])))


def _properties(source: ConfigReader, prefix: str) -> Json:
    """Return the properties that have the same name in Kafka's Java client and in librdkafka."""
    properties: dict[str, Any] = {}
    servers = source.text(f"{prefix}broker.list")
    if servers:
        properties["bootstrap.servers"] = servers
    for name in source.members():
        plain = name.removeprefix(f"{prefix}consumer.prop.").removeprefix(prefix)
        if name.startswith(f"{prefix}decoder.prop.") or not _is_of_client(name, prefix):
            continue
        value = source.text(name)
        if plain in _JAVA or plain in SECRET_PROPERTIES or plain.startswith(("ssl.keystore", "ssl.truststore")):
            source.note(name, "is a secret or a file: put what librdkafka calls it into the Secret of secretRef")
        elif plain in _SET_BY_MERLOT:
            source.note(name, "is not for a table to set: offsets are in the records of its segments")
        elif (plain, value) != ("isolation.level", "read_committed"):
            properties[plain] = value
    return properties


def _is_of_client(name: str, prefix: str) -> bool:
    starts = (f"{prefix}consumer.prop.", "security.", "sasl.", "ssl.", "client.")
    return name.startswith(starts) or name.removeprefix(prefix) in ("isolation.level", "fetch.timeout.millis")
