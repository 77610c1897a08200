"""Whatever a peer sends to a server's query port, the server answers others: no bug, no hang, no word in the log.

Frames and messages are spoiled above their checksums too, so that what is behind them sees the garbage.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random

from tests.fuzz.fuzzing import CASE_S, Loud, cases, spoiled_bytes, spoiled_json

from merlot.errors import CorruptionError
from merlot.ids import TableName
from merlot.wire.client import TcpChannel
from merlot.wire.codec import decode_request, decode_response, encode_request, encode_response
from merlot.wire.endpoint import TcpEndpoint
from merlot.wire.frames import FrameKind, FrameReader, Hello, encode
from merlot.wire.messages import ServerRequest, ServerResponse

REQUEST = ServerRequest(
    request_id="7", table=TableName("t_OFFLINE"), query=b'{"v":1}', segments=("a@1", "b@2"), timeout_ms=900, where=b"[]"
)
ANSWER = ServerResponse(missing=("a@1",), error=(1, "x"))


def spoiled_message(rng: random.Random, message: bytes) -> bytes:
    """Members of its header of other kinds, or its bytes changed."""
    if rng.random() < 0.4:
        return spoiled_bytes(rng, message)
    size = int.from_bytes(message[:4], "little")
    header = json.loads(message[4 : 4 + size])
    changed = spoiled_json(rng, {name: header[name] for name in header})
    text = json.dumps(changed).encode()
    return len(text).to_bytes(4, "little") + text + message[4 + size :]


def frames_of(rng: random.Random) -> bytes:
    """Some frames, most with right checksums."""
    hello = {"protocol": "merlot", "version": 1, "instance": "x"}
    pieces = [encode(FrameKind.HELLO, 0, json.dumps(spoiled_json(rng, hello)).encode())]
    if rng.random() < 0.8:
        pieces = [encode(FrameKind.HELLO, 0, Hello().to_bytes())]
    for _ in range(rng.randrange(1, 6)):
        call = rng.choice((0, 1, 2, 2**64 - 1))
        message = encode_request(REQUEST)
        if rng.random() < 0.7:
            message = spoiled_message(rng, message)
        kind = rng.choice((FrameKind.LAST, FrameKind.LAST, FrameKind.LAST, FrameKind.PART, *FrameKind))
        pieces.append(encode(kind, call, message if rng.random() < 0.9 else b""))
    data = b"".join(pieces)
    return spoiled_bytes(rng, data) if rng.random() < 0.3 else data


async def answer(request: ServerRequest) -> ServerResponse:
    await asyncio.sleep(request.timeout_ms % 3 / 1000)
    return ServerResponse(missing=request.segments)


async def test_a_query_port_survives_whatever_is_sent(loud: Loud) -> None:
    server = TcpEndpoint(answer, lambda: "x", answer_now=lambda _: None)
    port = server.bind("127.0.0.1", 0)
    await server.start()
    channel = TcpChannel("127.0.0.1", port)
    for rng in cases("frames", quick=300, every=1500):
        data = frames_of(rng)
        async with asyncio.timeout(CASE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                cut = rng.randrange(len(data) + 1)
                for piece in (data[:cut], data[cut:]):
                    writer.write(piece)
                    await asyncio.sleep(0)
                writer.write_eof()
                await reader.read()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        assert not loud.said, data
        if rng.random() < 0.05:
            assert await channel.execute(REQUEST, CASE_S) == ServerResponse(missing=REQUEST.segments)
    await channel.close()
    await server.stop(1.0)
    async with asyncio.timeout(CASE_S):
        while server.unfinished.num_bytes or server.running_bytes or server.connections:
            await asyncio.sleep(0.001)


def test_messages_are_read_or_refused() -> None:
    for rng in cases("messages", quick=300, every=1500):
        for message, decode in ((encode_request(REQUEST), decode_request), (encode_response(ANSWER), decode_response)):
            spoiled = spoiled_message(rng, message)
            with contextlib.suppress(CorruptionError):
                decode(spoiled)  # type: ignore[operator]
        with contextlib.suppress(CorruptionError):
            frames = FrameReader()
            frames.add(frames_of(rng))
            while frames.next() is not None:
                pass
