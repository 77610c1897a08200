"""A checksum behind each record, so that bit rot is found when the record is read.

    stored := record mark digit*16

The mark and the digits are white space: each digit is one of four characters and stands for two bits. JSON parsers skip
white space, and a zlib stream ends before it. So versions without checksums can read such records; they write records
without. The checksum is the CRC-32 of the record, of its path, and of `facts` that a store keeps beside it.

Records of those versions have no checksum. They are accepted if they are whole JSON, a whole zlib stream, or a plain
name, as long as there is no second version of the metastore's layout. A record gets its checksum when it is written
again. Empty records have none, unless there are facts. ADR 71. Pure.
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
    """Return the record as it is stored, followed by its checksum."""
    return data + _MARK + _digits_of(_checksum(data, path, facts)) if data or facts else data


def opened(stored: bytes, path: str, facts: str = "") -> bytes:
    """Return the record without its checksum. Raise CorruptionError, naming the path, if it is not as written."""
    if not stored:
        return stored
    data, tail = stored[:-_LENGTH], stored[-_LENGTH:]
    if tail.startswith(_MARK) and not tail.strip(_DIGITS):
        if _number_of(tail[len(_MARK) :]) != _checksum(data, path, facts):
            raise CorruptionError(f"record has a wrong checksum path={path}")
        return data
    if not _is_whole(stored):
        raise CorruptionError(f"record is damaged path={path}")
    return stored


def _checksum(data: bytes, path: str, facts: str) -> int:
    return zlib.crc32(data, zlib.crc32(f"{path}\n{facts}\n".encode()))


def _digits_of(checksum: int) -> bytes:
    return bytes(_DIGITS[checksum >> shift & 3] for shift in range(30, -2, -2))


def _number_of(digits: bytes) -> int:
    checksum = 0
    for character in digits:
        checksum = checksum << 2 | _VALUES[character]
    return checksum


def _is_whole(record: bytes) -> bool:
    """Return True if a record without a checksum is whole. A record whose checksum is damaged is not: white space or
    other bytes of the checksum follow it."""
    if record[0] == _ZLIB and _is_whole_zlib(record):
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


def _is_whole_zlib(stream: bytes) -> bool:
    decompressor = zlib.decompressobj()
    try:
        while stream:
            decompressor.decompress(stream, _PIECE_BYTES)
            stream = decompressor.unconsumed_tail
    except zlib.error:
        return False
    return decompressor.eof and not decompressor.unused_data
