"""Layout of a segment file: header, buffers, footer, facts, trailer. FORMAT.md §2 and §3.

This module knows bytes and numbers only; `segment.metadata` and `segment.index` know the meaning of a buffer.
`read_layout` raises CorruptionError for everything that is not a complete file of this version, whatever the bytes
are.
"""

import struct
import zlib
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import zstandard

from merlot.errors import CorruptionError, InvalidInputError
from merlot.segment import compression

FORMAT_VERSION: Final = 1
SUFFIX: Final = ".mseg"
SIDECAR_SUFFIX: Final = ".midx"
ALIGNMENT: Final = 64
HEADER_BYTES: Final = 64
TRAILER_BYTES: Final = 64
FACTS_BYTES: Final = 256
"""Size of the creation facts. It is fixed, so that files of equal content have equal sizes, whoever wrote them."""
HEADER_MAGIC: Final = b"\x89MSEG\r\n\x1a"
"""First bytes of a file. As in PNG, a high bit, a CR LF and a DOS end of file reveal transfers that damage bytes."""
TRAILER_MAGIC: Final = b"MSEGEND\n"
MAX_FOOTER_BYTES: Final = 16 << 20
"""Limit for the length of an expanded footer: 5,000 columns of the longest bounds take three quarters of it. A multiple
of the stored bytes would not do, because columns that are alike compress to a six-hundredth."""
MAX_FOOTER_VALUES: Final = 1_000_000
"""Limit for the values in a footer: each may take 100 bytes in memory, and as few as 2 as JSON. A column has about
50."""

_HEADER = struct.Struct("<8sI52x")
_TRAILER = struct.Struct("<QQQQIIIII4x8s")
_FOOTER_PARTS = struct.Struct("<III")


class StoredBuffer(NamedTuple):
    """Place of a buffer in the file, with its crc and codec."""

    offset: int
    length: int
    crc: int
    codec: str


class Footer(NamedTuple):
    """Statements of a writer about a file, except for the directory of its buffers."""

    content: bytes
    """JSON, with sorted keys."""
    identity: dict[str, Any]
    creation: dict[str, Any]
    """Facts about the file's origin, no longer than FACTS_BYTES as JSON."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A parsed footer."""

    content_crc: int
    content: dict[str, Any]
    identity: dict[str, Any]
    creation: dict[str, Any]
    buffers: list[StoredBuffer]
    footer_offset: int
    footer_length: int


def padding(length: int) -> int:
    """Return the number of zero bytes that follow `length` bytes up to the alignment."""
    return -length % ALIGNMENT


def header_bytes() -> bytes:
    """Return the first 64 bytes of a file."""
    return _HEADER.pack(HEADER_MAGIC, FORMAT_VERSION)


def footer_bytes(footer: Footer, directory: list[StoredBuffer], offset: int, *, has_limits: bool = True) -> bytes:
    """Return footer, facts and trailer, for a footer that starts at `offset`. Raises InvalidInputError if no reader
    would accept it; without `has_limits`, which is for tests of readers, it is written anyway."""
    content = footer.content
    stored = orjson.dumps([list(buffer) for buffer in directory])
    who = orjson.dumps(footer.identity, option=orjson.OPT_SORT_KEYS)
    raw = _FOOTER_PARTS.pack(len(content), len(stored), len(who)) + content + stored + who
    # Level 3 takes 21 columns from 6 KB to 1.7 KB in 60 µs: of a segment of 900 rows that is a tenth of the file.
    stored_footer = zstandard.ZstdCompressor(level=3).compress(raw)
    problem = _length_problem(len(raw)) or _values_problem(raw)
    if has_limits and problem is not None:
        raise InvalidInputError(f"a segment has too many columns, or too much about them: {problem}")
    facts = orjson.dumps(footer.creation, option=orjson.OPT_SORT_KEYS).ljust(FACTS_BYTES)
    assert len(facts) == FACTS_BYTES
    lengths = (offset, len(stored_footer), len(raw), offset + len(stored_footer) + FACTS_BYTES + TRAILER_BYTES)
    crcs = (zlib.crc32(stored_footer), zlib.crc32(content), FORMAT_VERSION, zlib.crc32(facts))
    trailer_crc = zlib.crc32(_TRAILER.pack(*lengths, *crcs, 0, TRAILER_MAGIC))
    return stored_footer + facts + _TRAILER.pack(*lengths, *crcs, trailer_crc, TRAILER_MAGIC)


def read_layout(view: memoryview, path: Path | str) -> Layout:
    """Check all bytes of a file except its buffers and their padding, and parse the footer. Raises CorruptionError."""
    trailer = _read_trailer(view, path)
    stored = view[trailer.footer_offset : trailer.footer_offset + trailer.footer_length]
    if zlib.crc32(stored) != trailer.footer_crc:
        raise damaged(path, "footer crc mismatch")
    facts = view[-TRAILER_BYTES - FACTS_BYTES : -TRAILER_BYTES]
    if zlib.crc32(facts) != trailer.facts_crc:
        raise damaged(path, "creation facts crc mismatch")
    content, directory, identity = _footer_parts(bytes(stored), trailer.footer_raw_length, path)
    if zlib.crc32(content) != trailer.content_crc:
        raise damaged(path, "content crc mismatch")
    try:
        layout = Layout(
            content_crc=trailer.content_crc,
            content=_members(content),
            identity=_members(identity),
            creation=_members(facts),
            buffers=list(starmap(StoredBuffer, orjson.loads(directory))),
            footer_offset=trailer.footer_offset,
            footer_length=trailer.footer_length,
        )
        _check_buffers(layout, path)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise damaged(path, f"footer is not what it should be: {error}") from error
    return layout


def damaged(path: Path | str, what: str) -> CorruptionError:
    """Return the error for a file that must be quarantined."""
    return CorruptionError(f"segment file is damaged path={path}: {what}")


class _Trailer(NamedTuple):
    footer_offset: int
    footer_length: int
    footer_raw_length: int
    file_length: int
    footer_crc: int
    content_crc: int
    version: int
    facts_crc: int
    crc: int
    magic: bytes


def _read_trailer(view: memoryview, path: Path | str) -> _Trailer:
    if len(view) < HEADER_BYTES + FACTS_BYTES + TRAILER_BYTES:
        raise damaged(path, f"{len(view)} bytes are too few for a segment")
    header = bytes(view[:HEADER_BYTES])
    magic, version = _HEADER.unpack(header)
    if magic != HEADER_MAGIC:
        raise damaged(path, "not a segment file, or its first bytes are damaged")
    if version != FORMAT_VERSION:
        raise damaged(path, f"format version {version} is not {FORMAT_VERSION}, the one that is known here")
    if header != header_bytes():
        raise damaged(path, "header is not followed by zeros")
    trailer = _Trailer(*_TRAILER.unpack(view[-TRAILER_BYTES:]))
    if trailer.magic != TRAILER_MAGIC:
        raise damaged(path, "no trailer: the file is cut short or its last bytes are damaged")
    if zlib.crc32(_TRAILER.pack(*trailer[:-2], 0, TRAILER_MAGIC)) != trailer.crc:
        raise damaged(path, "trailer crc mismatch")
    if bytes(view[-12:-8]) != bytes(4):
        raise damaged(path, "trailer's reserved bytes are not zero")
    end = trailer.footer_offset + trailer.footer_length + FACTS_BYTES + TRAILER_BYTES
    if trailer.file_length != len(view) or end != len(view):
        raise damaged(path, f"file has {len(view)} bytes, its trailer says {trailer.file_length}")
    if trailer.version != version:
        raise damaged(path, "trailer disagrees with the header")
    problem = _length_problem(trailer.footer_raw_length)
    if problem is not None:
        raise damaged(path, problem)
    return trailer


def _length_problem(raw_length: int) -> str | None:
    """Return why a footer of that length is not expanded; None if it is."""
    if raw_length <= MAX_FOOTER_BYTES:
        return None
    return f"footer expands to {raw_length} bytes, more than {MAX_FOOTER_BYTES}"


def _values_problem(raw: bytes) -> str | None:
    """Return why an expanded footer is not parsed; None if it is. Each value but the first follows a comma or a
    bracket, which are counted."""
    count = raw.count(b",") + raw.count(b"[") + raw.count(b"{")
    return None if count <= MAX_FOOTER_VALUES else f"footer has {count} values, more than {MAX_FOOTER_VALUES}"


def _footer_parts(stored: bytes, raw_length: int, path: Path | str) -> tuple[bytes, bytes, bytes]:
    try:
        raw = compression.expand(stored, raw_length)
    except zstandard.ZstdError as error:
        raise damaged(path, f"footer does not decompress: {error}") from error
    if len(raw) != raw_length or raw_length < _FOOTER_PARTS.size:
        raise damaged(path, "footer has another length than the trailer says")
    problem = _values_problem(raw)
    if problem is not None:
        raise damaged(path, problem)
    lengths = _FOOTER_PARTS.unpack_from(raw)
    if _FOOTER_PARTS.size + sum(lengths) != raw_length:
        raise damaged(path, "footer parts do not fill the footer")
    first = _FOOTER_PARTS.size
    second, third = first + lengths[0], first + lengths[0] + lengths[1]
    return raw[first:second], raw[second:third], raw[third:]


def _members(text: bytes | memoryview) -> dict[str, Any]:
    members = orjson.loads(text)
    if not isinstance(members, dict):
        raise TypeError(f"{type(members).__name__} instead of an object")
    return members


def _check_buffers(layout: Layout, path: Path | str) -> None:
    """Raise CorruptionError unless buffers follow each other up to the footer; TypeError, too, if a length is not a
    whole number."""
    expected = HEADER_BYTES
    for number, (offset, length, _, _) in enumerate(layout.buffers):
        if type(offset) is not int or offset != expected or length < 0:
            raise damaged(path, f"buffer {number} is not where the one before it ends")
        expected += length + (-length & (ALIGNMENT - 1))
    if expected != layout.footer_offset:
        raise damaged(path, "buffers do not end where the footer starts")
