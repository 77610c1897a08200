"""Buffers in compressed chunks. FORMAT.md §3.3.

    u32 chunk_bytes  u32 num_chunks  u64 ends[num_chunks]  chunk*

Every chunk but the last expands to `chunk_bytes`; `ends` count from the end of the table.
"""

import struct
import threading
from collections.abc import Sequence
from typing import Any, Final

import lz4.block
import numpy as np
import zstandard
from numpy.typing import NDArray

CHUNK_BYTES: Final = 1 << 18
"""Bytes of a chunk: enough that zstd finds repeats, and few enough that a point lookup expands it in 0.2 ms."""
MAX_CHUNK_BYTES: Final = 1 << 20
"""Limit for chunks: a table that claims larger ones is refused before memory is taken for one."""
ZSTD_LEVEL: Final = 3

NONE: Final = ""
LZ4: Final = "lz4"
ZSTD: Final = "zstd"

AUTO_SHARE: Final = 0.25
"""Share to which a buffer has to shrink to be compressed without being asked to. At this share, expanding and unpacking
took 0.9 to 3.5 ns a value in real columns, unpacking alone 0.75; columns that shrink less took up to 10. ADR 1."""
AUTO_BYTES: Final = 4096
"""Size below which buffers are compressed only on request, because expanding them costs more than reading a page."""

_HEADER = struct.Struct("<II")


class ChunkError(ValueError):
    """Raised if chunks do not expand to what their table says. A caller that knows the path turns it into
    CorruptionError."""


def compress(data: memoryview, codec: str, chunk_bytes: int = CHUNK_BYTES) -> bytes:
    """Return `data` as chunks of `codec`."""
    chunks = [_compress_chunk(data[start : start + chunk_bytes], codec) for start in range(0, len(data), chunk_bytes)]
    return _joined(chunks, chunk_bytes)


def _joined(chunks: Sequence[bytes], chunk_bytes: int) -> bytes:
    ends = np.cumsum([len(chunk) for chunk in chunks], dtype="<u8")
    return b"".join([_HEADER.pack(chunk_bytes, len(chunks)), ends.tobytes(), *chunks])


def compress_if_small(data: memoryview) -> bytes | None:
    """Return `data` in zstd chunks if it shrinks enough to be worth expanding, else None. If the first chunk shrinks
    too little, no other is tried."""
    if len(data) < AUTO_BYTES:
        return None
    sample = data[:CHUNK_BYTES]
    first = _compress_chunk(sample, ZSTD)
    if len(first) > 2 * AUTO_SHARE * len(sample):
        return None
    rest = (
        _compress_chunk(data[start : start + CHUNK_BYTES], ZSTD) for start in range(CHUNK_BYTES, len(data), CHUNK_BYTES)
    )
    stored = _joined([first, *rest], CHUNK_BYTES)
    return stored if len(stored) <= AUTO_SHARE * len(data) else None


_THREAD = threading.local()


def expand(frame: memoryview | bytes, length: int) -> bytes:
    """Return the content of a zstd frame, `length` bytes at most. Raises zstandard.ZstdError.

    A thread keeps its decompressor: to make one took longer than to expand the footer of a day's segment."""
    size = zstandard.frame_content_size(frame)
    if size > length:  # the decompressor would allocate what the frame says, whatever its limit
        raise zstandard.ZstdError(f"frame holds {size} bytes instead of {length}")
    decompressor: zstandard.ZstdDecompressor | None = getattr(_THREAD, "decompressor", None)
    if decompressor is None:
        decompressor = _THREAD.decompressor = zstandard.ZstdDecompressor()
    return decompressor.decompress(frame, max_output_size=length)


class ChunkTable:
    """Random access to the chunks of a compressed buffer."""

    def __init__(self, stored: memoryview, codec: str, length: int) -> None:
        if len(stored) < _HEADER.size:
            raise ChunkError("chunk table is cut short")
        self.chunk_bytes, self.num_chunks = _HEADER.unpack_from(stored)
        self._codec = codec
        self._length = length
        self._start = _HEADER.size + 8 * self.num_chunks
        if self.chunk_bytes > MAX_CHUNK_BYTES:
            raise ChunkError(f"chunks of {self.chunk_bytes} bytes are larger than {MAX_CHUNK_BYTES}")
        if self.chunk_bytes == 0 or self.num_chunks != -(-length // self.chunk_bytes) or self._start > len(stored):
            raise ChunkError("chunk table disagrees with the length of the buffer")
        self._stored = stored
        self._ends: NDArray[Any] = np.frombuffer(stored[_HEADER.size : self._start], dtype="<u8")

    def expand(self, out: NDArray[np.uint8]) -> None:
        """Expand all chunks into an array of their total size. Raises ChunkError."""
        for number in range(self.num_chunks):
            chunk = self.chunk(number)
            start = number * self.chunk_bytes
            out[start : start + len(chunk)] = np.frombuffer(chunk, np.uint8)

    def chunk(self, number: int) -> bytes:
        """Return the bytes of chunk `number`. Raises ChunkError."""
        start = int(self._ends[number - 1]) if number else 0
        stop = int(self._ends[number])
        expected = min(self.chunk_bytes, self._length - number * self.chunk_bytes)
        if not start <= stop <= len(self._stored) - self._start:
            raise ChunkError(f"chunk {number} lies outside its buffer")
        data = _expand_chunk(self._stored[self._start + start : self._start + stop], self._codec, expected)
        if len(data) != expected:
            raise ChunkError(f"chunk {number} has {len(data)} bytes instead of {expected}")
        return data


def _compress_chunk(chunk: memoryview, codec: str) -> bytes:
    if codec == ZSTD:
        compressor: zstandard.ZstdCompressor | None = getattr(_THREAD, "compressor", None)
        if compressor is None:
            compressor = _THREAD.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        return compressor.compress(chunk)
    return bytes(lz4.block.compress(chunk, store_size=False))


def _expand_chunk(chunk: memoryview, codec: str, length: int) -> bytes:
    try:
        if codec == ZSTD:
            return expand(chunk, length)
        if codec == LZ4:
            return bytes(lz4.block.decompress(chunk, uncompressed_size=length))
    except (zstandard.ZstdError, lz4.block.LZ4BlockError) as error:
        raise ChunkError(str(error)) from error
    raise ChunkError(f"unknown codec {codec!r}")
