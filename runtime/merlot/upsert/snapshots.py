"""Bytes of a snapshot of a segment's valid docs: two portable roaring bitmaps behind a header with the segment's key.

A snapshot belongs to one version of a segment, `name@crc`. A snapshot of another version is refused, and so is a
damaged snapshot, or a snapshot with another `REVISION`.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from typing import Final

from merlot.errors import CorruptionError
from merlot.upsert.checkpoint import SegmentSnapshot

MAGIC: Final = b"MVALID\r\n"
REVISION: Final = 1
_FRONT: Final = struct.Struct("<8sII")
"""Magic, CRC-32 of everything after these three fields, length of the header."""
SUFFIX: Final = ".valid"


def encode(key: str, snapshot: SegmentSnapshot) -> bytes:
    """Encode a snapshot of the segment `name@crc`. Equal bits give equal bytes."""
    facts = {
        "revision": REVISION,
        "segment": key,
        "docs": snapshot.num_docs,
        "live": len(snapshot.live),
        "deleted": len(snapshot.tombstones),
    }
    header = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    body = header + snapshot.live + snapshot.tombstones
    return _FRONT.pack(MAGIC, zlib.crc32(body), len(header)) + body


def decode(key: str, data: bytes) -> SegmentSnapshot:
    """Decode the bytes of `encode`; raise CorruptionError if they are not a whole snapshot of this version of the
    segment."""
    if len(data) < _FRONT.size:
        raise CorruptionError(f"snapshot is cut off segment={key} bytes={len(data)}")
    magic, checksum, size = _FRONT.unpack_from(data)
    body = data[_FRONT.size :]
    if magic != MAGIC or zlib.crc32(body) != checksum:
        raise CorruptionError(f"snapshot has a wrong checksum segment={key} bytes={len(data)}")
    try:
        facts = json.loads(body[:size])
        revision, segment, num_docs = facts["revision"], facts["segment"], int(facts["docs"])
        live, deleted = int(facts["live"]), int(facts["deleted"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"snapshot has no header segment={key}") from error
    if revision != REVISION:
        raise CorruptionError(f"snapshot is of another revision segment={key} expected={REVISION} got={revision}")
    if segment != key:
        raise CorruptionError(f"snapshot is another segment's expected={key} got={segment}")
    if size + live + deleted != len(body):
        raise CorruptionError(f"snapshot has a wrong length segment={key} bytes={len(data)}")
    middle = size + live
    return SegmentSnapshot(num_docs=num_docs, live=body[size:middle], tombstones=body[middle:])


def file_name(key: str, data: bytes) -> str:
    """Return the name of a snapshot's file. Different bits have different names, so no file is ever overwritten."""
    return f"{key}.{hashlib.blake2b(data, digest_size=8).hexdigest()}{SUFFIX}"
