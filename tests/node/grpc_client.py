"""A client of the broker's gRPC port, written from Pinot's broker.proto and its block formats alone."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import lz4.block
import pyarrow as pa
import zstandard

PATH = "/org.apache.pinot.common.proto.PinotQueryBroker/Submit"


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def request(sql: str, metadata: Mapping[str, str]) -> bytes:
    entries = [_field(1, key.encode()) + _field(2, value.encode()) for key, value in metadata.items()]
    return b"".join(_field(1, entry) for entry in entries) + _field(2, sql.encode())


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    found, place = [], 0

    def varint() -> int:
        nonlocal place
        number = shift = 0
        while True:
            byte = data[place]
            place += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while place < len(data):
        tag, size = varint(), varint()
        assert tag & 7 == 2
        found.append((tag >> 3, data[place : place + size]))
        place += size
    return found


@dataclass
class Message:
    metadata: dict[str, str] = field(default_factory=dict)
    payload: bytes = b""

    @classmethod
    def read(cls, data: bytes) -> Message:
        message = cls()
        for number, content in _fields(data):
            if number == 1:
                entry = dict(_fields(content))
                message.metadata[entry.get(1, b"").decode()] = entry.get(2, b"").decode()
            else:
                message.payload = content
        return message


def _lz4(data: bytes) -> bytes:
    return bytes(lz4.block.decompress(data[4:], uncompressed_size=struct.unpack(">i", data[:4])[0]))


def _zstd(data: bytes) -> bytes:
    content = zstandard.ZstdDecompressor().decompress(data[4:])
    assert len(content) == struct.unpack(">i", data[:4])[0]
    return content


UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    "ZSTD": _zstd,
    "ZSTANDARD": _zstd,
    "LZ4": _lz4,
    "LZ4_FAST": _lz4,
    "LZ4_HIGH": _lz4,
    "DEFLATE": zlib.decompress,
    "GZIP": gzip.decompress,
    "NONE": bytes,
    "PASS_THROUGH": bytes,
}


def content_of(message: Message) -> bytes:
    about = message.metadata
    assert int(about["compressedSize"]) == len(message.payload)
    if about["compression"] == "SNAPPY":
        size = int(about["originalSize"])
        return bytes(pa.decompress(message.payload, size, codec="snappy", asbytes=True))
    content = UNPACKERS[about["compression"]](message.payload)
    assert len(content) == int(about["originalSize"])
    return content


def _texts(data: io.BytesIO, count: int) -> list[str]:
    return [data.read(struct.unpack(">i", data.read(4))[0]).decode() for _ in range(count)]


def schema_of(payload: bytes) -> tuple[list[str], list[str]]:
    data = io.BytesIO(payload)
    count = struct.unpack(">i", data.read(4))[0]
    names, types = _texts(data, count), _texts(data, count)
    assert not data.read()
    return names, types


def rows_of(message: Message) -> list[list[Any]]:
    content = content_of(message)
    if message.metadata["encoding"] == "ARROW":
        table = pa.ipc.open_stream(content).read_all()
        rows = [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    else:
        data, count = io.BytesIO(content), int(message.metadata["rowSize"])
        rows = [json.loads(text) for text in _texts(data, count)]
        assert not data.read()
    assert len(rows) == int(message.metadata["rowSize"])
    return rows


@dataclass
class Answer:
    """A whole answer. `sizes`: rows of each block."""

    head: dict[str, Any]
    names: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


def submit(channel: grpc.aio.Channel, sql: str, **metadata: str) -> Any:
    """The call, to read from or to cancel."""
    return channel.unary_stream(PATH)(request(sql, metadata))


async def ask(port: int, sql: str, **metadata: str) -> Answer:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        messages = [Message.read(data) async for data in submit(channel, sql, **metadata)]
    answer = Answer(json.loads(messages[0].payload))
    if len(messages) > 1:
        answer.names, answer.types = schema_of(messages[1].payload)
    for message in messages[2:]:
        rows = rows_of(message)
        answer.rows += rows
        answer.sizes.append(len(rows))
    return answer
