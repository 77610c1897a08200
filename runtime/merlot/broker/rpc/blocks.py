"""Encode and compress blocks of rows as Pinot's gRPC clients read them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import lz4.block
import orjson
import pyarrow as pa
import zstandard

from merlot.errors import InvalidInputError
from merlot.values.types import TypeName

BLOCK_ROWS: Final = 10_000
MAX_BLOCK_ROWS: Final = 1_000_000
MAX_BLOCK_BYTES: Final = 3 << 20
"""Most bytes of a block before it is compressed: by default, clients refuse messages of more than 4 MiB. A block that
would be larger gets fewer rows."""
_COUNT: Final = struct.Struct(">i")
_ARRAY: Final = "_ARRAY"

Values = Sequence[Any]
"""JSON values of a column."""


def schema(names: Sequence[str], types: Sequence[str]) -> bytes:
    """Encode a schema: number of columns, their names, then their types; each text follows its length."""
    texts = [text.encode() for text in (*names, *types)]
    return b"".join([_COUNT.pack(len(names)), *(_COUNT.pack(len(text)) + text for text in texts)])


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockForm:
    """Encoding, compression and size of the blocks that a client wants."""

    rows: int = BLOCK_ROWS
    encoding: str = "JSON"
    compression: str = "ZSTD"

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Self:
        """Read the metadata of a request. Raise InvalidInputError if it asks for an unknown form."""
        text = metadata.get("blockRowSize", str(BLOCK_ROWS))
        encoding, compression = metadata.get("encoding", "JSON").upper(), metadata.get("compression", "ZSTD").upper()
        is_number = text.isascii() and text.isdigit() and len(text) <= 20
        if not is_number or not 1 <= int(text) <= MAX_BLOCK_ROWS:
            raise InvalidInputError(f"blockRowSize is not between 1 and {MAX_BLOCK_ROWS}: {text:.40}")
        if encoding not in _ENCODERS:
            raise InvalidInputError(f"no such encoding: {encoding:.40}; choose one of {', '.join(_ENCODERS)}")
        if compression not in _COMPRESSORS:
            raise InvalidInputError(f"no such compression: {compression:.40}; choose one of {', '.join(_COMPRESSORS)}")
        return cls(rows=int(text), encoding=encoding, compression=compression)

    def blocks(self, names: Sequence[str], types: Sequence[str], columns: Sequence[Values]) -> list[RowBlock]:
        """Encode the rows as one block. If it would be longer than MAX_BLOCK_BYTES, halve the rows until each block
        fits or has one row."""
        encoded = _ENCODERS[self.encoding](names, types, columns)
        count = len(columns[0])
        if len(encoded) > MAX_BLOCK_BYTES and count > 1:
            halves = [[column[: count // 2] for column in columns], [column[count // 2 :] for column in columns]]
            return [block for half in halves for block in self.blocks(names, types, half)]
        packed = _COMPRESSORS[self.compression](encoded)
        about = {
            "originalSize": str(len(encoded)),
            "compressedSize": str(len(packed)),
            "rowSize": str(count),
            "compression": self.compression,
            "encoding": self.encoding,
        }
        return [RowBlock(packed, about)]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Payload and metadata of a message of rows."""

    payload: bytes
    about: dict[str, str]


def _json(_names: Sequence[str], _types: Sequence[str], columns: Sequence[Values]) -> bytes:
    """Encode each row as a JSON array after its length."""
    out = bytearray()
    for row in zip(*columns, strict=True):
        text = orjson.dumps(row)  # a list of these would leave holes of 4 KB a row in the heap: 40 MB a block
        out += _COUNT.pack(len(text))
        out += text
    return bytes(out)


_ARROW: Final = {
    TypeName.BOOLEAN: pa.bool_(),
    TypeName.INT: pa.int32(),
    TypeName.LONG: pa.int64(),
    TypeName.FLOAT: pa.float32(),
    TypeName.DOUBLE: pa.float64(),
}
"""Arrow types by type name; columns of other types are sent as text."""


def _arrow(names: Sequence[str], types: Sequence[str], columns: Sequence[Values]) -> bytes:
    """Encode the rows as an IPC stream of one batch."""
    arrays = [_array(type_, values) for type_, values in zip(types, columns, strict=True)]
    batch = pa.record_batch(arrays, names=list(names))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _array(type_: str, values: Values) -> pa.Array:
    base = _ARROW.get(TypeName(type_.removesuffix(_ARRAY)), pa.string())
    if pa.types.is_floating(base):
        values = [_number(value) for value in values]
    elif pa.types.is_string(base):
        values = [_text(value) for value in values]
    return pa.array(values, pa.list_(base) if type_.endswith(_ARRAY) else base)


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return [_number(item) for item in value]
    return float(value) if isinstance(value, str) else value  # NaN and infinities are texts in JSON


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(item) for item in value]
    return value if value is None or isinstance(value, str) else str(value)


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return packer.compress(data) + packer.flush()


def _sized(compress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: _COUNT.pack(len(data)) + compress(data)


def _lz4(mode: str) -> Callable[[bytes], bytes]:
    return _sized(lambda data: bytes(lz4.block.compress(data, mode=mode, store_size=False)))


_ZSTD: Final = _sized(lambda data: zstandard.ZstdCompressor().compress(data))
_ENCODERS: Final = {"JSON": _json, "ARROW": _arrow}
_COMPRESSORS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "ZSTD": _ZSTD,
    "ZSTANDARD": _ZSTD,
    "LZ4": _lz4("default"),
    "LZ4_FAST": _lz4("fast"),
    "LZ4_HIGH": _lz4("high_compression"),
    "DEFLATE": zlib.compress,
    "GZIP": _gzip,
    "SNAPPY": lambda data: bytes(pa.compress(data, codec="snappy", asbytes=True)),
    "PASS_THROUGH": bytes,
    "NONE": bytes,
}
