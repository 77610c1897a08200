"""Rules of `spec.ingestion.stream` of a Table."""

from __future__ import annotations

from typing import Final

from merlot.spec.rules.language import OLD, SELF, RuleCondition, any_of, every, has, unchanged
from merlot.spec.rules.rule import Rule
from merlot.spec.stream import HOST_PROPERTIES, OWN_PROPERTIES, SECRET_PROPERTIES, STREAM_TYPES, DecoderType

_TYPE: Final = SELF.field("type")
_PROPERTIES: Final = SELF.field("properties")
_BROKERS: Final = ("bootstrap.servers", "metadata.broker.list")
_DECODER: Final = SELF.part("decoder").field("type", default="JSON", allowed=tuple(DecoderType))
_OWNERS: Final = {
    "csv": DecoderType.CSV,
    "schemaRegistry": DecoderType.AVRO,
    "avroSchema": DecoderType.AVRO,
    "descriptorSet": DecoderType.PROTOBUF,
    "message": DecoderType.PROTOBUF,
}
"""Parts of a decoder, with the type that each belongs to."""


def _part(name: str) -> RuleCondition:
    return has(SELF.part("decoder").field(name))


def _no_property(names: frozenset[str]) -> RuleCondition:
    return ~has(_PROPERTIES) | every(_PROPERTIES, "p", lambda p: ~p.is_in(*sorted(names)))


STREAM: Final = (
    *(
        Rule(name, is_same, f"{name} cannot change, since segments hold offsets; create another table")
        for name, is_same in (
            ("type", _TYPE.equals(OLD.field("type"))),
            ("topic", unchanged(SELF.field("topic"), OLD.field("topic"))),
            ("start", SELF.field("start", default="earliest").equals(OLD.field("start", default="earliest"))),
        )
    ),
    Rule(
        "type",
        _TYPE.is_in(*STREAM_TYPES) | _TYPE.contains("."),
        "a stream is kafka or files, or a package's, which has a dot in its name",
        choices=STREAM_TYPES,
    ),
    Rule(
        "secretRef",
        has(SELF.field("secretRef")) >> ~_TYPE.equals("files"),
        "a stream of files takes no Secret; remove it",
    ),
    Rule("topic", ~_TYPE.is_in(*STREAM_TYPES) | has(SELF.field("topic")), "kafka needs a topic, files a folder"),
    Rule(
        "properties",
        ~_TYPE.equals("kafka") | (has(_PROPERTIES) & any_of([_PROPERTIES.holds_item(name) for name in _BROKERS])),
        "kafka needs the property bootstrap.servers: host:port of brokers",
    ),
    Rule("properties", _no_property(SECRET_PROPERTIES), "secrets belong into the Secret that secretRef names"),
    Rule(
        "properties",
        _no_property(HOST_PROPERTIES),
        "a property that names programs, libraries or files of a machine, or uses its identity, is not for a table to"
        " set; keys and certificates belong into the Secret, as *.pem",
    ),
    Rule(
        "properties",
        _no_property(OWN_PROPERTIES),
        "a property that is Merlot's is not for a table to set: its segments' records hold offsets",
    ),
    *(
        Rule(
            f"decoder.{name}",
            _part(name) >> _DECODER.equals(str(owner)),
            f"{name} goes with type: {owner} only; remove it, or write that type",
        )
        for name, owner in _OWNERS.items()
    ),
    Rule(
        "decoder",
        ~_DECODER.equals("AVRO") | ~_part("schemaRegistry").same_as(_part("avroSchema")),
        "AVRO needs schemaRegistry or avroSchema, and not both",
    ),
    *(
        Rule(f"decoder.{name}", ~_DECODER.equals("PROTOBUF") | _part(name), f"PROTOBUF needs {name}")
        for name in ("descriptorSet", "message")
    ),
)
