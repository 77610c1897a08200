"""What travels over a connection between broker and server: frames, each with a checksum.

    frame   = crc32 u32 · length u32 · kind u8 · call u64 · payload of `length` bytes        little-endian
    message = PART* LAST, all of one call: its bytes are their payloads, one after the other

The checksum covers everything behind it. Each side first sends HELLO (JSON, `Hello`); the client goes on when it has
the server's. Then the client sends requests as messages under call numbers that it never uses again, and the server
answers each with a message under the same number, in any order; frames of different messages may alternate. CANCEL ends
a call: nobody waits for its answer. REFUSAL (a text) instead of an answer: the request was not carried out and may be
asked elsewhere. PING is answered by PONG. Whoever receives what does not fit this grammar closes the connection; the
calls under way on it have failed. Unfinished messages, calls and connections are limited in number and bytes; a server
says which limit was passed, by a REFUSAL or in its HELLO. How fast it reads is limited too (`pace`).

Later versions may add kinds and members of JSON objects; both sides use the smaller version of the two HELLOs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Final
from zlib import crc32

import orjson

from merlot.errors import CorruptionError

VERSION: Final = 1
OLDEST_VERSION: Final = 1
PROTOCOL: Final = "merlot"

MAX_FRAME_BYTES: Final = 1 << 20
"""A longer frame is taken for garbage."""
PART_BYTES: Final = 256 << 10
"""Longer messages are cut, so that short ones need not wait for them."""
MAX_MESSAGE_BYTES: Final = 256 << 20
"""Largest answer, and the most that one connection keeps of unfinished messages; a server refuses to send more, with an
error that says so."""
MAX_OPEN_MESSAGES: Final = 1_000
MAX_HELD_BYTES: Final = 1 << 30

_HEAD: Final = struct.Struct("<IIBQ")
_BODY_HEAD: Final = struct.Struct("<IBQ")
HEAD_BYTES: Final = _HEAD.size
_CRC_BYTES: Final = 4


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 0
    PART = 1
    LAST = 2
    CANCEL = 3
    REFUSAL = 4
    PING = 5
    PONG = 6


_KINDS: Final = {kind.value: kind for kind in Kind}
Frame = tuple[Kind, int, bytes]
"""Kind, call, payload."""


@dataclass(frozen=True, slots=True)
class Hello:
    """How a side introduces itself. `refusal`: why it will not talk; it closes the connection."""

    version: int = VERSION
    instance: str = ""
    refusal: str = ""
    protocol: str = PROTOCOL

    def to_bytes(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Hello:
        """Raises CorruptionError; members that this version does not know are ignored."""
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise CorruptionError("greeting cannot be read") from error
        if not isinstance(fields, dict) or fields.get("protocol") != PROTOCOL:
            raise CorruptionError("greeting of another protocol")
        if not isinstance(fields.get("version"), int):
            raise CorruptionError("greeting without a version")
        return cls(**{name: fields[name] for name in fields if name in cls.__slots__})


def encode(kind: Kind, call: int, payload: bytes = b"") -> bytes:
    """One frame."""
    body = _BODY_HEAD.pack(len(payload), kind, call) + payload
    return crc32(body).to_bytes(_CRC_BYTES, "little") + body


def cut(call: int, message: bytes) -> Iterator[bytes]:
    """The frames of a message."""
    last = max(0, len(message) - 1) // PART_BYTES * PART_BYTES
    for start in range(0, last, PART_BYTES):
        yield encode(Kind.PART, call, message[start : start + PART_BYTES])
    yield encode(Kind.LAST, call, message[last:])


class FrameReader:
    """Frames from bytes as they arrive."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0

    def add(self, data: bytes) -> None:
        """Take bytes; nothing is looked at yet."""
        if self._start:
            del self._data[: self._start]
            self._start = 0
        self._data += data

    def next(self) -> Frame | None:
        """The next frame; None if it has not come whole. Raises CorruptionError; then nothing more can be read."""
        while len(self._data) - self._start >= HEAD_BYTES:
            start = self._start
            crc, length, kind, call = _HEAD.unpack_from(self._data, start)
            if length > MAX_FRAME_BYTES:
                raise CorruptionError(f"frame is too long bytes={length} limit={MAX_FRAME_BYTES}")
            stop = start + HEAD_BYTES + length
            if stop > len(self._data):
                return None
            with memoryview(self._data) as view:
                if crc32(view[start + _CRC_BYTES : stop]) != crc:
                    raise CorruptionError(f"frame checksum mismatch bytes={length} kind={kind}")
                payload = bytes(view[start + HEAD_BYTES : stop])
            self._start = stop
            if kind in _KINDS:  # a later version's are ignored
                return _KINDS[kind], call, payload
        return None


@dataclass(slots=True)
class Held:
    """Bytes of messages that are kept, of all connections of an end together."""

    num_bytes: int = 0
    limit: int = MAX_HELD_BYTES


class MessageReader:
    """Messages from frames; parts of several messages may alternate."""

    def __init__(self, held: Held, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._held = held
        self._max_bytes = max_bytes
        self._parts: dict[int, list[bytes]] = {}
        self._num_bytes = 0

    def part(self, call: int, payload: bytes) -> None:
        """Keep a part. Raises CorruptionError if the unfinished messages of this connection, or of all, grow too large
        or too many."""
        parts = self._parts.setdefault(call, [])
        parts.append(payload)
        self._num_bytes += len(payload)
        self._held.num_bytes += len(payload)
        if self._num_bytes > self._max_bytes:
            raise CorruptionError(f"unfinished messages are too long limit={self._max_bytes}")
        if len(self._parts) > MAX_OPEN_MESSAGES:
            raise CorruptionError(f"too many unfinished messages limit={MAX_OPEN_MESSAGES}")
        if self._held.num_bytes > self._held.limit:
            raise CorruptionError(f"messages of all peers are too long limit={self._held.limit}")

    def last(self, call: int, payload: bytes) -> bytes:
        """The whole message."""
        if call not in self._parts:
            return payload
        self.part(call, payload)
        message = b"".join(self._parts[call])
        self.drop(call)
        return message

    def drop(self, call: int) -> None:
        """Forget what came of a message."""
        size = sum(map(len, self._parts.pop(call, ())))
        self._num_bytes -= size
        self._held.num_bytes -= size

    def clear(self) -> None:
        """Forget everything."""
        for call in list(self._parts):
            self.drop(call)
