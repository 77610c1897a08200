"""The line between broker and server: gRPC, and within one process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from merlot.errors import UnavailableError
from merlot.ids import TableName
from merlot.wire import endpoint
from merlot.wire.client import GrpcChannel, Handler, LocalChannel, ServerChannel
from merlot.wire.endpoint import GrpcEndpoint
from merlot.wire.messages import ServerRequest, ServerResponse

REQUEST = ServerRequest(
    request_id="7", table=TableName("orders_OFFLINE"), query=b"{}", segments=("a@1", "b@2"), timeout_ms=5000
)

Connect = Callable[[Handler], Awaitable[ServerChannel]]


@pytest.fixture
async def exits() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as exits:
        yield exits


async def serve(exits: AsyncExitStack, handler: Handler, port: int = 0) -> tuple[GrpcEndpoint, int]:
    server = GrpcEndpoint(handler, lambda: "Server_x_1")
    port = server.bind("127.0.0.1", port)
    await server.start()
    exits.push_async_callback(server.stop, 0)
    return server, port


@pytest.fixture(params=["grpc", "local"])
def connect(request: pytest.FixtureRequest, exits: AsyncExitStack) -> Connect:
    async def over_grpc(handler: Handler) -> ServerChannel:
        _, port = await serve(exits, handler)
        channel = GrpcChannel("127.0.0.1", port)
        exits.push_async_callback(channel.close)
        return channel

    async def locally(handler: Handler) -> ServerChannel:
        return LocalChannel(handler)

    return over_grpc if request.param == "grpc" else locally


async def echo(request: ServerRequest) -> ServerResponse:
    return ServerResponse(missing=request.segments)


async def test_an_answer_comes_back(connect: Connect) -> None:
    channel = await connect(echo)
    assert (await channel.execute(REQUEST, 5.0)).missing == ("a@1", "b@2")


async def test_a_server_that_does_not_answer_in_time_is_unavailable(connect: Connect) -> None:
    async def sleep(_: ServerRequest) -> ServerResponse:
        await asyncio.Event().wait()
        raise AssertionError

    channel = await connect(sleep)
    with pytest.raises(UnavailableError):
        await channel.execute(REQUEST, 0.05)


async def test_cancelling_a_call_cancels_the_query(connect: Connect) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(_: ServerRequest) -> ServerResponse:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    channel = await connect(wait)
    task = asyncio.create_task(channel.execute(REQUEST, 5.0))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        await cancelled.wait()


async def test_a_closed_channel_is_unavailable(connect: Connect) -> None:
    channel = await connect(echo)
    await channel.close()
    with pytest.raises(UnavailableError):
        await channel.execute(REQUEST, 1.0)


async def test_closing_a_channel_ends_its_calls_with_an_error_and_not_a_cancellation(exits: AsyncExitStack) -> None:
    started = asyncio.Event()

    async def wait(_: ServerRequest) -> ServerResponse:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    _, port = await serve(exits, wait)
    channel = GrpcChannel("127.0.0.1", port)
    task = asyncio.create_task(channel.execute(REQUEST, 5.0))
    await started.wait()
    await channel.close()
    with pytest.raises(UnavailableError):
        await task


async def test_nobody_there_is_unavailable_at_once(exits: AsyncExitStack) -> None:
    server, port = await serve(exits, echo)
    await server.stop(0)
    channel = GrpcChannel("127.0.0.1", port)
    with pytest.raises(UnavailableError):
        await channel.execute(REQUEST, 5.0)
    await channel.close()


async def test_a_restarted_server_is_found_again(exits: AsyncExitStack) -> None:
    server, port = await serve(exits, echo)
    channel = GrpcChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    assert await channel.ping(5.0) == "Server_x_1"
    await server.stop(0)
    with pytest.raises(UnavailableError):
        await channel.execute(REQUEST, 1.0)
    await serve(exits, echo, port)
    async with asyncio.timeout(10):
        while True:
            try:
                assert (await channel.execute(REQUEST, 1.0)).missing == REQUEST.segments
                break
            except UnavailableError:
                await asyncio.sleep(0.02)


async def test_a_taken_port_is_said_so(exits: AsyncExitStack) -> None:
    _, port = await serve(exits, echo)
    with pytest.raises(UnavailableError, match=f"cannot listen address=127.0.0.1:{port}"):
        GrpcEndpoint(echo, lambda: "other").bind("127.0.0.1", port)


async def test_a_bug_in_a_handler_is_an_error_code_and_no_traceback(
    exits: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: ServerRequest) -> ServerResponse:
        raise ZeroDivisionError("secret detail")

    _, port = await serve(exits, fail)
    channel = GrpcChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    error = (await channel.execute(REQUEST, 5.0)).error
    assert error is not None
    assert error[0] == endpoint.INTERNAL_CODE
    assert "secret" not in error[1]
    assert "secret detail" in caplog.text


async def test_an_answer_that_is_too_large_is_an_error_that_says_so(
    exits: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MAX_MESSAGE_BYTES", 1000)

    async def answer(_: ServerRequest) -> ServerResponse:
        return ServerResponse(missing=tuple(f"segment_{number}@1" for number in range(1000)))

    _, port = await serve(exits, answer)
    channel = GrpcChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    error = (await channel.execute(REQUEST, 5.0)).error
    assert error is not None
    assert (error[0], "too large" in error[1]) == (245, True)


async def test_bytes_that_are_no_request_are_refused(exits: AsyncExitStack) -> None:
    _, port = await serve(exits, echo)
    channel = GrpcChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    with pytest.raises(UnavailableError, match="INVALID_ARGUMENT"):
        await channel._call(channel._execute, b"\xff\xff", 5.0)
