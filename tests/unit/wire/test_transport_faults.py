"""What goes wrong between broker and server: each fault ends the calls it meets with UnavailableError, soon."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from merlot.errors import CorruptionError, UnavailableError
from merlot.ids import TableName
from merlot.testing.patience import PATIENCE_S
from merlot.wire import frames
from merlot.wire.client import TcpChannel
from merlot.wire.codec import encode_request
from merlot.wire.endpoint import EndpointLimits, TcpEndpoint
from merlot.wire.frames import FrameKind, FrameReader, Hello, encode
from merlot.wire.messages import ServerRequest, ServerResponse

REQUEST = ServerRequest(request_id="7", table=TableName("t_OFFLINE"), query=b"{}", segments=("a@1",), timeout_ms=5000)
TICK_S = 0.02

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def exits() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as exits:
        yield exits


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server's side of the introduction."""
    await next_frame(reader)
    writer.write(encode(FrameKind.HELLO, 0, Hello(instance="fake").to_bytes()))


async def next_frame(reader: asyncio.StreamReader) -> frames.Frame:
    head = await reader.readexactly(frames.HEAD_BYTES)
    payload = await reader.readexactly(int.from_bytes(head[4:8], "little"))
    frames_in = FrameReader()
    frames_in.add(head + payload)
    frame = frames_in.next()
    assert frame is not None
    return frame


async def fake_server(exits: contextlib.AsyncExitStack, script: Script) -> TcpChannel:
    """A channel to a server that behaves as the script says, then goes silent until the test ends."""
    over = asyncio.Event()
    scripts: set[asyncio.Task[object] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scripts.add(asyncio.current_task())
        try:
            await script(reader, writer)
            await over.wait()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def end() -> None:
        server.close()
        over.set()
        for task in filter(None, scripts):
            task.cancel()
        await asyncio.gather(*filter(None, scripts), return_exceptions=True)
        await asyncio.sleep(0)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    exits.push_async_callback(end)
    channel = TcpChannel("127.0.0.1", server.sockets[0].getsockname()[1], tick_s=TICK_S)
    exits.push_async_callback(channel.close)
    return channel


async def real_server(
    exits: contextlib.AsyncExitStack, answer: bytes = b"", tick_s: float = 5.0, limits: EndpointLimits | None = None
) -> tuple[TcpEndpoint, Peer]:
    """An endpoint that answers everything alike, and a connection of raw bytes to it, introduced."""

    async def handle(request: ServerRequest) -> ServerResponse:
        return ServerResponse(error=(1, answer.decode())) if answer else ServerResponse(missing=request.segments)

    server = TcpEndpoint(handle, lambda: "x", tick_s=tick_s, limits=limits)
    port = server.bind("127.0.0.1", 0)
    await server.start()
    exits.push_async_callback(server.stop, 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    exits.callback(writer.close)
    writer.write(encode(FrameKind.HELLO, 0, Hello().to_bytes()))
    assert (await next_frame(reader))[0] is FrameKind.HELLO
    return server, (reader, writer)


async def test_a_server_that_dies_amid_a_call_fails_it_at_once(exits: contextlib.AsyncExitStack) -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        await next_frame(reader)
        writer.transport.abort()

    channel = await fake_server(exits, die)
    with pytest.raises(UnavailableError, match="connection is lost"):
        await channel.execute(REQUEST, 60.0)


async def test_a_garbled_frame_breaks_the_connection_and_the_next_call_makes_a_new_one(
    exits: contextlib.AsyncExitStack,
) -> None:
    num_connections = 0

    async def garble_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_connections
        num_connections += 1
        await greet(reader, writer)
        _, call, _ = await next_frame(reader)
        data = bytearray(encode(FrameKind.LAST, call, b"\x02\0\0\0{}"))
        if num_connections == 1:
            data[-1] ^= 1
        writer.write(data)

    channel = await fake_server(exits, garble_once)
    with pytest.raises(UnavailableError, match="checksum"):
        await channel.execute(REQUEST, 60.0)
    assert await channel.execute(REQUEST, 60.0) == ServerResponse()


async def test_an_answer_that_is_none_is_corrupt(exits: contextlib.AsyncExitStack) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        _, call, _ = await next_frame(reader)
        writer.write(encode(FrameKind.LAST, call, b"what?"))

    channel = await fake_server(exits, babble)
    with pytest.raises(CorruptionError):
        await channel.execute(REQUEST, 60.0)


async def test_a_frame_that_is_too_long_breaks_the_connection(exits: contextlib.AsyncExitStack) -> None:
    async def boast(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        _, call, _ = await next_frame(reader)
        writer.write(encode(FrameKind.LAST, call, bytes(frames.MAX_FRAME_BYTES + 1)))

    channel = await fake_server(exits, boast)
    with pytest.raises(UnavailableError, match="too long"):
        await channel.execute(REQUEST, 60.0)


@pytest.mark.parametrize("is_greeting", [True, False])
async def test_a_silent_server_is_found_out_before_the_calls_time_is_over(
    exits: contextlib.AsyncExitStack, *, is_greeting: bool
) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_greeting:
            await greet(reader, writer)

    channel = await fake_server(exits, say_nothing)
    with pytest.raises(UnavailableError, match="silent"):
        await channel.execute(REQUEST, 60.0)


async def test_a_server_that_only_answers_pings_is_waited_for(exits: contextlib.AsyncExitStack) -> None:
    async def live(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        while True:
            kind, _, _ = await next_frame(reader)
            if kind is FrameKind.PING:
                writer.write(encode(FrameKind.PONG, 0))

    channel = await fake_server(exits, live)
    with pytest.raises(UnavailableError, match="in time"):
        await channel.execute(REQUEST, 8 * TICK_S)


async def test_a_refusal_says_why(exits: contextlib.AsyncExitStack) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        _, call, _ = await next_frame(reader)
        writer.write(encode(FrameKind.REFUSAL, call, b"not today"))

    channel = await fake_server(exits, refuse)
    with pytest.raises(UnavailableError, match="not today"):
        await channel.execute(REQUEST, 60.0)


async def test_a_server_that_refuses_the_version_says_so(exits: contextlib.AsyncExitStack) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(FrameKind.HELLO, 0, Hello(refusal="version 1 is too old").to_bytes()))

    channel = await fake_server(exits, refuse)
    with pytest.raises(UnavailableError, match="version 1 is too old"):
        await channel.execute(REQUEST, 60.0)


async def test_a_call_that_gave_up_tells_the_server_and_its_late_answer_is_dropped(
    exits: contextlib.AsyncExitStack,
) -> None:
    async def answer_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        _, opening, _ = await next_frame(reader)
        writer.write(encode(FrameKind.LAST, opening, b"\x02\0\0\0{}"))
        _, first, _ = await next_frame(reader)
        kind, call, _ = await next_frame(reader)
        assert (kind, call) == (FrameKind.CANCEL, first)
        _, second, _ = await next_frame(reader)
        writer.write(encode(FrameKind.LAST, first, b'\x0f\0\0\0{"missing":"x"}'))
        writer.write(encode(FrameKind.LAST, second, b"\x02\0\0\0{}"))

    channel = await fake_server(exits, answer_late)
    assert await channel.execute(REQUEST, 60.0) == ServerResponse(), "connected, so that only the answer is late"
    with pytest.raises(UnavailableError, match="in time"):
        await channel.execute(REQUEST, TICK_S)
    assert await channel.execute(REQUEST, 60.0) == ServerResponse()


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(100), encode(FrameKind.LAST, 1, b"x" * 50)[:-1] + b"y"],
    ids=["http", "zeros", "checksum"],
)
async def test_a_server_closes_on_garbage_and_serves_others(exits: contextlib.AsyncExitStack, garbage: bytes) -> None:
    server, (reader, writer) = await real_server(exits)
    writer.write(garbage)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    port = writer.get_extra_info("peername")[1]
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    assert (await channel.execute(REQUEST, 5.0)).missing == REQUEST.segments
    assert len(server.connections) == 1


async def test_a_request_that_is_none_is_refused_and_the_connection_stays(exits: contextlib.AsyncExitStack) -> None:
    _, (reader, writer) = await real_server(exits)
    writer.write(encode(FrameKind.LAST, 1, b"\xff\xff\xff\xff"))
    kind, call, _ = await next_frame(reader)
    assert (kind, call) == (FrameKind.REFUSAL, 1)
    writer.write(encode(FrameKind.LAST, 2, encode_request(REQUEST)))
    kind, call, _ = await next_frame(reader)
    assert (kind, call) == (FrameKind.LAST, 2)


async def test_a_peer_that_never_speaks_is_dropped(exits: contextlib.AsyncExitStack) -> None:
    server, _ = await real_server(exits, tick_s=TICK_S)
    async with asyncio.timeout(PATIENCE_S):
        while server.connections:
            await asyncio.sleep(TICK_S)


async def test_more_connections_than_allowed_are_refused_with_a_reason(
    exits: contextlib.AsyncExitStack,
) -> None:
    _, (_, writer) = await real_server(exits, limits=EndpointLimits(connections=1))
    channel = TcpChannel("127.0.0.1", writer.get_extra_info("peername")[1])
    exits.push_async_callback(channel.close)
    with pytest.raises(UnavailableError, match="too many connections limit=1"):
        await channel.execute(REQUEST, 5.0)


async def test_more_calls_or_bytes_than_allowed_are_refused_and_the_connection_stays(
    exits: contextlib.AsyncExitStack,
) -> None:
    may_answer = asyncio.Event()

    async def handle(_: ServerRequest) -> ServerResponse:
        await may_answer.wait()
        return ServerResponse()

    server = TcpEndpoint(handle, lambda: "x")
    port = server.bind("127.0.0.1", 0)
    await server.start()
    exits.push_async_callback(server.stop, 0)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    server.limits = EndpointLimits(calls=2)
    waiting = [asyncio.create_task(channel.execute(REQUEST, PATIENCE_S)) for _ in range(2)]
    while sum(len(connection.tasks) for connection in server.connections) < 2:
        await asyncio.sleep(0.001)
    with pytest.raises(UnavailableError, match="too many calls under way limit=2"):
        await channel.execute(REQUEST, PATIENCE_S)
    server.limits = EndpointLimits(call_bytes=server.running_bytes + 5)
    with pytest.raises(UnavailableError, match="requests under way are too long"):
        await channel.execute(REQUEST, PATIENCE_S)
    may_answer.set()
    assert await asyncio.gather(*waiting) == [ServerResponse(), ServerResponse()]
    assert await channel.execute(REQUEST, PATIENCE_S) == ServerResponse()
    assert server.running_bytes == 0


async def test_unfinished_requests_of_all_peers_are_bounded(exits: contextlib.AsyncExitStack) -> None:
    server, (reader, writer) = await real_server(exits)
    server.unfinished.limit = 1_000
    for call in range(3):
        writer.write(encode(FrameKind.PART, call, bytes(400)))
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            await reader.read()
    while server.connections:
        await asyncio.sleep(0.001)
    assert server.unfinished.num_bytes == 0


async def test_room_for_unfinished_requests_is_taken_from_the_peer_that_holds_most(
    exits: contextlib.AsyncExitStack,
) -> None:
    server, (reader, writer) = await real_server(exits)
    server.unfinished.limit = 600_000
    writer.write(encode(FrameKind.PART, 1, bytes(400_000)))
    channel = TcpChannel("127.0.0.1", writer.get_extra_info("peername")[1])
    exits.push_async_callback(channel.close)
    async with asyncio.timeout(PATIENCE_S):
        while not server.unfinished.num_bytes:
            await asyncio.sleep(0.001)
        large = replace(REQUEST, segments=tuple(f"segment_{number}@1" for number in range(20_000)))
        assert (await channel.execute(large, PATIENCE_S)).missing == large.segments
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert server.unfinished.num_bytes == 0


async def test_a_call_number_is_not_used_twice_at_a_time(exits: contextlib.AsyncExitStack) -> None:
    async def handle(_: ServerRequest) -> ServerResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server = TcpEndpoint(handle, lambda: "x")
    port = server.bind("127.0.0.1", 0)
    await server.start()
    exits.push_async_callback(server.stop, 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    exits.callback(writer.close)
    writer.write(encode(FrameKind.HELLO, 0, Hello().to_bytes()))
    await next_frame(reader)
    writer.write(encode(FrameKind.LAST, 1, encode_request(REQUEST)) * 2)
    async with asyncio.timeout(PATIENCE_S):
        assert b"call is under way" in (await next_frame(reader))[2]
        while server.connections or server.running_bytes:
            await asyncio.sleep(0.001)


async def test_a_peer_that_never_introduces_itself_is_dropped_though_it_speaks(
    exits: contextlib.AsyncExitStack,
) -> None:
    server = TcpEndpoint(lambda _: asyncio.sleep(0, ServerResponse()), lambda: "x", tick_s=TICK_S)
    port = server.bind("127.0.0.1", 0)
    await server.start()
    exits.push_async_callback(server.stop, 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    exits.callback(writer.close)
    async with asyncio.timeout(PATIENCE_S):
        while not reader.at_eof() and reader.exception() is None:
            writer.write(b"\0")
            with contextlib.suppress(TimeoutError, ConnectionError):
                await asyncio.wait_for(reader.read(1), TICK_S / 2)
    assert not server.connections


async def test_a_broker_that_does_not_read_is_given_no_more_and_dropped_in_the_end(
    exits: contextlib.AsyncExitStack,
) -> None:
    limits = EndpointLimits(buffer_bytes=1 << 16)
    server, (_, writer) = await real_server(exits, answer=b"x" * (8 << 20), tick_s=TICK_S, limits=limits)
    for call in range(1, 20):
        writer.write(encode(FrameKind.LAST, call, encode_request(REQUEST)))
    (peer,) = server.connections
    async with asyncio.timeout(PATIENCE_S):
        while peer.is_open:
            transport = peer._transport
            assert transport is None or transport.get_write_buffer_size() <= (1 << 16) + 2 * frames.PART_BYTES
            await asyncio.sleep(TICK_S / 2)
        while server.connections or peer.tasks:
            await asyncio.sleep(TICK_S)
