"""Compress records of many similar entries as zlib streams, and bound their size when read. Without a bound, zlib could
expand one node to 1 GB.
"""

from __future__ import annotations

import zlib
from typing import Final

from merlot.errors import CorruptionError, InvalidInputError

MAX_UNPACKED_BYTES: Final = 64 << 20
"""Largest uncompressed record: 256 times the size at which a bucket is split."""


def packed(plain: bytes) -> bytes:
    """Return the stored form of a record; raise InvalidInputError if it is larger than readers accept."""
    if len(plain) > MAX_UNPACKED_BYTES:
        raise InvalidInputError(f"record is too large bytes={len(plain)} limit={MAX_UNPACKED_BYTES}")
    return zlib.compress(plain, level=3)


def unpacked(data: bytes, path: str) -> bytes:
    """Return the record. Raise CorruptionError with the path if the stream is damaged or incomplete, or expands beyond
    the limit."""
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data, MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise CorruptionError(f"record cannot be decompressed path={path}") from error
    if unpacker.unconsumed_tail:
        raise CorruptionError(f"record expands to more than {MAX_UNPACKED_BYTES} bytes path={path}")
    if not unpacker.eof:
        raise CorruptionError(f"record is cut short path={path}")
    return plain
