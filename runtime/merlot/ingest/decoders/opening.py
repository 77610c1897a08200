"""The decoder of a declaration."""

from __future__ import annotations

from collections.abc import Mapping

from merlot.errors import InvalidInputError
from merlot.ingest.decoders.json import JsonDecoder
from merlot.ingest.decoders.protocol import Decoder, Wanted
from merlot.spec.stream import DecoderSpec, DecoderType


def open_decoder(declared: DecoderSpec, wanted: Wanted, secrets: Mapping[str, str]) -> Decoder:
    """A decoder for one thread. InvalidInputError if its schema is wrong."""
    match declared.type:
        case DecoderType.JSON:
            return JsonDecoder(wanted)
        case _:
            raise InvalidInputError(f"no such decoder type={declared.type}")
