"""Kernels of decoders are compiled when Merlot is installed, not when the first message comes."""

import json
import struct
from typing import Any

import numba
import pyarrow as pa
import pytest

from merlot.ingest.decoders.avro import AvroDecoder, RegistryDecoder
from merlot.ingest.decoders.json import JsonDecoder
from merlot.ingest.decoders.protocol import Decoder, Wanted
from merlot.kernels import warm

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "T",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "x", "type": ["null", "double"]},
            {"name": "city", "type": "string"},
            {"name": "p", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
)
NESTED = json.dumps({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "string", "long"]}]})
WANTED = Wanted(
    columns={"n": False, "x": False, "city": False, "p": False, "list": True},
    types={"n": pa.int64(), "x": pa.float64()},
    names=(),
)
RECORD = b"\x02\x00\x02a\x02\x05"


class OneSchema:
    def schema(self, number: int) -> str:
        return SCHEMA


def messages(*values: bytes) -> Any:
    return pa.array(values, pa.large_binary())


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled in this run")
def test_no_kernel_is_compiled_for_messages() -> None:
    registry: Any = OneSchema()
    used: list[tuple[Decoder, Any]] = [
        (
            JsonDecoder(WANTED),
            messages(b'{"n": 1, "x": 1.5, "city": "a", "list": ["a"]}', b"?"),
        ),
        (AvroDecoder(WANTED, SCHEMA), messages(RECORD, RECORD[:-1])),
        (RegistryDecoder(WANTED, registry), messages(struct.pack(">bI", 0, 7) + RECORD, b"?")),
    ]
    before = {kernel: set(kernel.signatures) for kernel, _ in warm._messages()}  # type: ignore[attr-defined]
    nested = AvroDecoder(WANTED, NESTED)
    nested.decode(messages(b"\x04\x02", b"?"))
    for decoder, values in used:
        assert decoder.decode(values.slice(0, 1))[0].columns["n"].to_pylist() == [1]
        decoder.decode(values)
        decoder.decode(values.slice(0, 0))
    for kernel, known in before.items():
        warmed = {tuple(numba.typeof(one) for one in given) for found, given in warm._messages() if found is kernel}
        assert set(kernel.signatures) - known <= warmed, kernel  # type: ignore[attr-defined]
