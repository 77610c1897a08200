"""The grammar of frames: whole from any pieces, and nothing garbled passes."""

import random

import pytest

from merlot.errors import CorruptionError
from merlot.wire import frames
from merlot.wire.frames import PART_BYTES, FrameKind, FrameReader, Hello, MessageReader, UnfinishedBytes, cut, encode


def frames_in(*pieces: bytes) -> list[frames.Frame]:
    reader = FrameReader()
    found = []
    for piece in pieces:
        reader.add(piece)
        found += iter(reader.next, None)
    return found


def test_frames_come_whole_however_the_bytes_are_cut() -> None:
    sent = [(FrameKind.LAST, number, bytes(range(number))) for number in range(20)] + [(FrameKind.PING, 0, b"")]
    data = b"".join(encode(*frame) for frame in sent)
    rng = random.Random(7)
    for _ in range(50):
        cuts = sorted(rng.sample(range(len(data)), 5))
        pieces = [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert frames_in(*pieces) == sent
    assert frames_in(*(data[place : place + 1] for place in range(len(data)))) == sent


@pytest.mark.parametrize("place", range(len(encode(FrameKind.LAST, 3, b"payload"))))
def test_a_frame_with_any_byte_changed_does_not_pass(place: int) -> None:
    data = bytearray(encode(FrameKind.LAST, 3, b"payload"))
    data[place] ^= 0x41
    with pytest.raises(CorruptionError):
        frames_in(bytes(data), bytes(1 << 20))  # if the length grew, more bytes are waited for


def test_a_frame_longer_than_allowed_is_refused_by_its_head() -> None:
    data = encode(FrameKind.LAST, 1, bytes(frames.MAX_FRAME_BYTES + 1))
    with pytest.raises(CorruptionError, match="too long"):
        frames_in(data[:20])


def test_another_protocol_is_refused() -> None:
    with pytest.raises(CorruptionError, match="too long"):
        frames_in(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


def test_kinds_of_a_later_version_are_ignored() -> None:
    later = encode(99, 1, b"?")  # type: ignore[arg-type]
    assert frames_in(later + encode(FrameKind.PONG, 0)) == [(None, 1, b"?"), (FrameKind.PONG, 0, b"")]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
def test_a_message_comes_together_from_its_parts(size: int) -> None:
    message = random.Random(size).randbytes(size)
    reader = MessageReader(UnfinishedBytes())
    *parts, last = frames_in(*cut(5, message))
    for kind, call, payload in parts:
        assert (kind, call) == (FrameKind.PART, 5)
        reader.part(call, payload)
    assert last[0] is FrameKind.LAST
    assert reader.last(5, last[2]) == message


def test_unfinished_messages_are_bounded_together_and_finished_ones_are_not() -> None:
    held = UnfinishedBytes(limit=15_000)
    reader, other = MessageReader(held, max_bytes=10_000), MessageReader(held, max_bytes=10_000)
    for call in range(50):
        reader.part(call, bytes(6_000))
        assert len(reader.last(call, bytes(3_000))) == 9_000
    assert held.num_bytes == 0
    reader.part(1, bytes(6_000))
    with pytest.raises(CorruptionError, match="limit=10000"):
        reader.part(2, bytes(6_000))
    reader.clear()
    reader.part(1, bytes(9_000))
    with pytest.raises(CorruptionError, match="limit=15000"):
        other.part(1, bytes(7_000))
    other.drop(1)
    reader.drop(1)
    assert held.num_bytes == 0
    reader = MessageReader(held, max_messages=3)
    for call in range(3):
        reader.part(call, b"")
    with pytest.raises(CorruptionError, match="limit=3"):
        reader.part(3, b"")


def test_empty_parts_of_a_message_are_bounded_too() -> None:
    reader = MessageReader(UnfinishedBytes(), max_bytes=10_000)
    for _ in range(20):
        reader.part(1, b"")
    with pytest.raises(CorruptionError, match="limit=10000"):
        any(reader.part(1, b"") for _ in range(1_000))


def test_a_greeting_comes_back_and_later_members_are_ignored() -> None:
    hello = Hello(instance="Server_x_1")
    assert Hello.from_bytes(hello.to_bytes()) == hello
    assert Hello.from_bytes(b'{"protocol":"merlot","version":2,"colour":"red"}') == Hello(version=2)


@pytest.mark.parametrize("data", [b"", b"[7]", b"7", b'{"protocol":"other"}', b'{"version":"x","protocol":"merlot"}'])
def test_what_is_no_greeting_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        Hello.from_bytes(data)
