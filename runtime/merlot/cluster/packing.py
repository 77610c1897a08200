"""Records of many alike entries as zlib streams, bounded in what they expand to: zlib would expand a node to 1 GB."""

from __future__ import annotations

import zlib
from typing import Final

from merlot.errors import CorruptionError, InvalidInputError

MAX_UNPACKED_BYTES: Final = 64 << 20
"""256 times the size at which a bucket is split."""


def packed(plain: bytes) -> bytes:
    """Return what is stored; raise InvalidInputError if no reader would take it."""
    if len(plain) > MAX_UNPACKED_BYTES:
        raise InvalidInputError(f"record is too large bytes={len(plain)} limit={MAX_UNPACKED_BYTES}")
    return zlib.compress(plain, level=3)


def unpacked(data: bytes, path: str) -> bytes:
    """Return the record; raise CorruptionError, naming the path, for what is no whole stream or expands to too much."""
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
