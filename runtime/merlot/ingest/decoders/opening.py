"""Open the decoder that a table declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from merlot.errors import InvalidInputError
from merlot.extras import lacks
from merlot.ingest.decoders.arrow import ArrowDecoder
from merlot.ingest.decoders.csv import CsvDecoder
from merlot.ingest.decoders.json import JsonDecoder
from merlot.ingest.decoders.protocol import Decoder, Wanted
from merlot.spec.stream import DecoderSpec, DecoderType, MessageCsv


def open_decoder(declared: DecoderSpec, wanted: Wanted, properties: Mapping[str, str]) -> Decoder:
    """Return a decoder for one thread. Raises InvalidInputError if its schema is wrong."""
    try:
        return _open(declared, wanted, properties)
    except ModuleNotFoundError as error:
        raise InvalidInputError(lacks(f"a decoder of {declared.type}", "kafka", error)) from error


def _open(declared: DecoderSpec, wanted: Wanted, properties: Mapping[str, str]) -> Decoder:
    match declared.type:
        case DecoderType.JSON:
            return JsonDecoder(wanted)
        case DecoderType.CSV:
            return CsvDecoder(wanted, declared.csv or MessageCsv())
        case DecoderType.ARROW:
            return ArrowDecoder(wanted)
        case DecoderType.AVRO:
            return _avro(declared, wanted, properties)
        case DecoderType.PROTOBUF:
            return _protobuf(declared, wanted)
        case _:
            assert_never(declared.type)


def _avro(declared: DecoderSpec, wanted: Wanted, properties: Mapping[str, str]) -> Decoder:
    from merlot.ingest.decoders.avro import AvroDecoder, RegistryDecoder
    from merlot.ingest.decoders.registry import SchemaRegistry

    if declared.schema_registry is not None:
        return RegistryDecoder(wanted, SchemaRegistry(declared.schema_registry, properties))
    if declared.avro_schema is None:
        raise InvalidInputError("an AVRO decoder needs schemaRegistry or avroSchema")
    return AvroDecoder(wanted, declared.avro_schema)


def _protobuf(declared: DecoderSpec, wanted: Wanted) -> Decoder:
    from merlot.ingest.decoders.protobuf import ProtobufDecoder

    if declared.descriptor_set is None or declared.message is None:
        raise InvalidInputError("a PROTOBUF decoder needs descriptorSet and message")
    return ProtobufDecoder(wanted, declared.descriptor_set, declared.message)
