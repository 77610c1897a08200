"""A checksum behind each record, so that a bit that rots is found when the record is read.

    stored := record mark digit*16

The mark and the digits are white space, one of four characters for two bits each. Readers of JSON skip white space, and
zlib ends before it, so versions without checksums read such records and write their own as ever. The checksum is the
CRC-32 of the record, of its path, and of `facts` that a store keeps beside it.

Records of those versions have no checksum. They are taken if they are whole JSON, a whole zlib stream, or a plain name,
as long as there is no second version of the metastore's layout; a record gets its checksum when it is written again.
Empty records have none, unless there are facts. ADR 71. Pure.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Final

from merlot.errors import CorruptionError

_DIGITS: Final = b" \t\n\r"
_MARK: Final = b"\n\t \n"
_LENGTH: Final = len(_MARK) + 16
_VALUES: Final = {character: value for value, character in enumerate(_DIGITS)}
_NAME: Final = re.compile(rb"[A-Za-z0-9_.:-]+")
_ZLIB: Final = 0x78
"""First byte of a zlib stream with a window of 32 KB."""
_PIECE_BYTES: Final = 1 << 20


def sealed(data: bytes, path: str, facts: str = "") -> bytes:
    """Return what is stored of a record."""
    return data + _MARK + _written(_checksum(data, path, facts)) if data or facts else data


def opened(stored: bytes, path: str, facts: str = "") -> bytes:
    """Return the record of what was stored; raise CorruptionError, naming the path, if it is not what was written."""
    if not stored:
        return stored
    data, tail = stored[:-_LENGTH], stored[-_LENGTH:]
    if tail.startswith(_MARK) and not tail.strip(_DIGITS):
        if _read(tail[len(_MARK) :]) != _checksum(data, path, facts):
            raise CorruptionError(f"record has a wrong checksum path={path}")
        return data
    if not _is_whole(stored):
        raise CorruptionError(f"record is damaged path={path}")
    return stored


def _checksum(data: bytes, path: str, facts: str) -> int:
    return zlib.crc32(data, zlib.crc32(f"{path}\n{facts}\n".encode()))


def _written(checksum: int) -> bytes:
    return bytes(_DIGITS[checksum >> shift & 3] for shift in range(30, -2, -2))


def _read(digits: bytes) -> int:
    checksum = 0
    for character in digits:
        checksum = checksum << 2 | _VALUES[character]
    return checksum


def _is_whole(record: bytes) -> bool:
    """Return True if a record without a checksum is whole. A record whose checksum is damaged ends with the rest of
    it."""
    if record[0] == _ZLIB and _ends_as_zlib(record):
        return True
    if _NAME.fullmatch(record):
        return True
    if record.strip(_DIGITS) != record:
        return False
    try:
        json.loads(record)
    except ValueError:
        return False
    return True


def _ends_as_zlib(stream: bytes) -> bool:
    unpacker = zlib.decompressobj()
    try:
        while stream:
            unpacker.decompress(stream, _PIECE_BYTES)
            stream = unpacker.unconsumed_tail
    except zlib.error:
        return False
    return unpacker.eof and not unpacker.unused_data
