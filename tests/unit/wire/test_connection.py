"""One end of a connection, over a link that a test controls."""

from __future__ import annotations

import asyncio

import pytest

from merlot.wire.connection import Connection
from merlot.wire.frames import FrameKind, Hello, MessageReader, UnfinishedBytes, encode
from merlot.wire.pace import FRAME_BYTES


class FullLink(asyncio.Transport):
    """A link whose buffer is full whenever somebody looks, since writers fill it as fast as the peer reads."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("peer", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 1 << 20

    def is_reading(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def abort(self) -> None:
        pass


class PlainEnd(Connection):
    """An end that handles nothing. It keeps what its peer was charged."""

    def __init__(self) -> None:
        super().__init__(MessageReader(UnfinishedBytes()), tick_s=3600)
        self.charged: list[int] = []
        self.reason = ""

    def greeted(self, hello: Hello) -> None:
        pass

    def received(self, call: int, message: bytes) -> None:
        pass

    def spend(self, weight: int) -> None:
        self.charged.append(weight)

    def lost(self, reason: str) -> None:
        self.reason = reason


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_peer_that_reads_from_a_full_link_is_not_taken_for_one_that_does_not(is_read: bool) -> None:
    end = PlainEnd()
    end.connection_made(FullLink())
    end.data_received(encode(FrameKind.HELLO, 0, Hello().to_bytes()))
    end.send(FrameKind.LAST, 1, bytes(2 << 20))
    for _ in range(20):
        if is_read:
            end.send(FrameKind.LAST, 1, bytes(1_000))
        end.data_received(encode(FrameKind.PONG, 0))
        end._tick()
    assert end.is_open == is_read
    end.connection_lost(None)
    assert end.reason == ("closed by peer" if is_read else "peer is not reading")


async def test_frames_of_a_later_version_are_ignored_and_charged() -> None:
    end = PlainEnd()
    end.connection_made(FullLink())
    later = encode(99, 0)  # type: ignore[arg-type]
    end.data_received(later + encode(FrameKind.HELLO, 0, Hello().to_bytes()) + 100 * later)
    assert end.is_open
    assert end.charged.count(FRAME_BYTES) == 102
    end.connection_lost(None)
