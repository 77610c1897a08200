"""Frames, each with a checksum: the units that a connection between broker and server carries.

    frame   = crc32 u32 · length u32 · kind u8 · call u64 · payload of `length` bytes        little-endian
    message = PART* LAST, all of one call: its bytes are their payloads, one after the other

The checksum covers everything behind it. Each side first sends HELLO (JSON, `Hello`); the client goes on when it has
the server's. Then the client sends requests as messages under call numbers that it never uses again. The server answers
each with a message under the same number, in any order; frames of different messages may alternate. CANCEL ends a call
whose answer is no longer awaited. REFUSAL (a text) replaces an answer: the request was not carried out and may be sent
to another server. PING is answered by PONG. A side that receives bytes outside this grammar closes the connection, and
the calls under way on it have failed. Unfinished messages, calls and connections are limited in number and bytes; a
server says which limit was exceeded, by a REFUSAL or in its HELLO. Its reading rate is limited too (`pace`).

Later versions may add kinds and members of JSON objects; both sides use the smaller version of the two HELLOs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
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
"""Longest payload of a frame; a longer one is taken for garbage."""
PART_BYTES: Final = 256 << 10
"""Length above which a message is split, so that short messages need not wait for it."""
MAX_MESSAGE_BYTES: Final = 256 << 20
"""Largest answer: a server answers with an error instead of a larger result. Also the default of the bytes of
unfinished messages that one connection keeps."""
MAX_OPEN_MESSAGES: Final = 1_000
MAX_HELD_BYTES: Final = 1 << 30
KEPT_PART_BYTES: Final = 64
"""Memory of a kept part beside its payload: a peer may send many without any."""

_HEAD: Final = struct.Struct("<IIBQ")
_BODY_HEAD: Final = struct.Struct("<IBQ")
HEAD_BYTES: Final = _HEAD.size
_CRC_BYTES: Final = 4


class FrameKind(IntEnum):
    """Kind of a frame."""

    HELLO = 0
    PART = 1
    LAST = 2
    CANCEL = 3
    REFUSAL = 4
    PING = 5
    PONG = 6


_KINDS: Final = {kind.value: kind for kind in FrameKind}
Frame = tuple[FrameKind | None, int, bytes]
"""Kind, call, payload. A kind of a later version is None; such a frame is ignored, but looking at it has its cost."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Introduction of one side. `refusal` says why it will not talk; it then closes the connection."""

    version: int = VERSION
    instance: str = ""
    refusal: str = ""
    protocol: str = PROTOCOL

    def to_bytes(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Hello:
        """Decode an introduction; raise CorruptionError. Members that this version does not know are ignored."""
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise CorruptionError("greeting cannot be read") from error
        if not isinstance(fields, dict) or fields.get("protocol") != PROTOCOL:
            raise CorruptionError("greeting of another protocol")
        if not isinstance(fields.get("version"), int):
            raise CorruptionError("greeting without a version")
        return cls(**{name: fields[name] for name in fields if name in cls.__slots__})


def encode(kind: FrameKind, call: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    body = _BODY_HEAD.pack(len(payload), kind, call) + payload
    return crc32(body).to_bytes(_CRC_BYTES, "little") + body


def cut(call: int, message: bytes) -> Iterator[bytes]:
    """Yield the frames of a message."""
    last = max(0, len(message) - 1) // PART_BYTES * PART_BYTES
    for start in range(0, last, PART_BYTES):
        yield encode(FrameKind.PART, call, message[start : start + PART_BYTES])
    yield encode(FrameKind.LAST, call, message[last:])


class FrameReader:
    """Splits arriving bytes into frames."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0

    def add(self, data: bytes) -> None:
        """Append bytes, without parsing them yet."""
        if self._start:
            del self._data[: self._start]
            self._start = 0
        self._data += data

    def next(self) -> Frame | None:
        """Return the next frame; None if it is not whole yet. Raise CorruptionError; nothing more can be read then."""
        start = self._start
        if len(self._data) - start < HEAD_BYTES:
            return None
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
        return _KINDS.get(kind), call, payload


def _has_no_room(_: MessageReader) -> bool:
    return False


@dataclass(slots=True)
class UnfinishedBytes:
    """Bytes of unfinished messages, over all connections of an end."""

    num_bytes: int = 0
    limit: int = MAX_HELD_BYTES
    make_room: Callable[[MessageReader], bool] = _has_no_room
    """Function that is called if there is no room for the parts of a connection. It drops those of another one, or
    returns False if none holds more."""


class MessageReader:
    """Joins frames to messages; parts of several messages may alternate."""

    def __init__(
        self, held: UnfinishedBytes, *, max_bytes: int = MAX_MESSAGE_BYTES, max_messages: int = MAX_OPEN_MESSAGES
    ) -> None:
        self._held = held
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._parts: dict[int, list[bytes]] = {}
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the unfinished messages."""
        return self._num_bytes

    def part(self, call: int, payload: bytes) -> None:
        """Keep a part. Raise CorruptionError if the unfinished messages of this connection, or of all, grow too large
        or too many."""
        parts = self._parts.setdefault(call, [])
        parts.append(payload)
        self._num_bytes += len(payload) + KEPT_PART_BYTES
        self._held.num_bytes += len(payload) + KEPT_PART_BYTES
        if self._num_bytes > self._max_bytes:
            raise CorruptionError(f"unfinished messages are too long limit={self._max_bytes}")
        if len(self._parts) > self._max_messages:
            raise CorruptionError(f"too many unfinished messages limit={self._max_messages}")
        while self._held.num_bytes > self._held.limit:
            if self._held.make_room(self):
                continue
            raise CorruptionError(f"messages of all peers are too long limit={self._held.limit}")

    def last(self, call: int, payload: bytes) -> bytes:
        """Return the whole message."""
        if call not in self._parts:
            return payload
        self.part(call, payload)
        message = b"".join(self._parts[call])
        self.drop(call)
        return message

    def drop(self, call: int) -> None:
        """Forget the parts of a message."""
        size = sum(len(part) + KEPT_PART_BYTES for part in self._parts.pop(call, ()))
        self._num_bytes -= size
        self._held.num_bytes -= size

    def clear(self) -> None:
        """Forget the parts of all messages."""
        for call in list(self._parts):
            self.drop(call)
