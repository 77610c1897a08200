"""Forge segment files: take them apart, change them, and put them together with correct checksums."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from merlot.segment.compression import ChunkTable
from merlot.segment.layout import HEADER_BYTES, Footer, StoredBuffer, footer_bytes, header_bytes, padding, read_layout


@dataclass
class Parts:
    """Parts of a segment file; each may be changed."""

    content: dict[str, Any]
    identity: dict[str, Any]
    creation: dict[str, Any]
    buffers: list[bytes]
    """Buffers as they are stored."""
    codecs: list[Any]

    @property
    def columns(self) -> list[dict[str, Any]]:
        columns: list[dict[str, Any]] = self.content["columns"]
        return columns

    def column(self, name: str) -> dict[str, Any]:
        """Return the footer's entry of a column."""
        return next(column for column in self.columns if column["name"] == name)


def taken_apart(file: bytes) -> Parts:
    """Return the parts of a file."""
    layout = read_layout(memoryview(file), "forged")
    buffers = [file[offset : offset + length] for offset, length, _, _ in layout.buffers]
    codecs = [buffer.codec for buffer in layout.buffers]
    return Parts(layout.content, layout.identity, layout.creation, buffers, codecs)


def expand(parts: Parts, number: int, length: int) -> None:
    """Store a buffer uncompressed. length: its uncompressed bytes."""
    if parts.codecs[number]:
        table = ChunkTable(memoryview(parts.buffers[number]), parts.codecs[number], length)
        expanded = np.zeros(length, np.uint8)
        table.expand(expanded)
        parts.buffers[number], parts.codecs[number] = expanded.tobytes(), ""


def put_together(parts: Parts) -> bytes:
    """Return a file of these parts, with correct checksums."""
    body = bytearray(header_bytes())
    directory = []
    for stored, codec in zip(parts.buffers, parts.codecs, strict=True):
        directory.append(StoredBuffer(len(body), len(stored), zlib.crc32(stored), codec))
        body += stored + bytes(padding(len(stored)))
    assert len(body) % HEADER_BYTES == 0
    content = orjson.dumps(parts.content, option=orjson.OPT_SORT_KEYS)
    return bytes(body) + footer_bytes(
        Footer(content, parts.identity, parts.creation), directory, len(body), has_limits=False
    )
