"""The line between broker and server: over TCP, and within one process."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pyarrow as pa
import pytest

from merlot.codes import QueryErrorCode
from merlot.errors import UnavailableError
from merlot.ids import TableName
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.testing.patience import PATIENCE_S
from merlot.wire.client import Handler, LocalChannel, ServerChannel, TcpChannel
from merlot.wire.endpoint import EndpointLimits, TcpEndpoint
from merlot.wire.messages import ServerRequest, ServerResponse

REQUEST = ServerRequest(
    request_id="7", table=TableName("orders_OFFLINE"), query=b"{}", segments=("a@1", "b@2"), timeout_ms=5000
)

Connect = Callable[[Handler], Awaitable[ServerChannel]]


@pytest.fixture
async def exits() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as exits:
        yield exits


async def serve(exits: AsyncExitStack, handler: Handler, port: int = 0) -> tuple[TcpEndpoint, int]:
    server = TcpEndpoint(handler, lambda: "Server_x_1")
    port = server.bind("127.0.0.1", port)
    await server.start()
    exits.push_async_callback(server.stop, 0)
    return server, port


@pytest.fixture(params=["tcp", "local"])
def connect(request: pytest.FixtureRequest, exits: AsyncExitStack) -> Connect:
    async def over_tcp(handler: Handler) -> ServerChannel:
        _, port = await serve(exits, handler)
        channel = TcpChannel("127.0.0.1", port)
        exits.push_async_callback(channel.close)
        return channel

    async def locally(handler: Handler) -> ServerChannel:
        return LocalChannel(handler)

    return over_tcp if request.param == "tcp" else locally


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
    async with asyncio.timeout(PATIENCE_S):
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
    channel = TcpChannel("127.0.0.1", port)
    task = asyncio.create_task(channel.execute(REQUEST, 5.0))
    await started.wait()
    await channel.close()
    with pytest.raises(UnavailableError):
        await task


async def test_nobody_there_is_unavailable_at_once(exits: AsyncExitStack) -> None:
    server, port = await serve(exits, echo)
    await server.stop(0)
    channel = TcpChannel("127.0.0.1", port)
    with pytest.raises(UnavailableError):
        await channel.execute(REQUEST, 5.0)
    await channel.close()


async def test_a_channel_that_is_closed_while_it_connects_leaves_no_failed_callback(exits: AsyncExitStack) -> None:
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    accepted, let_go = asyncio.Event(), asyncio.Event()

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        while await reader.read(1024):
            pass
        writer.close()
        let_go.set()

    listener = await asyncio.start_server(stay_silent, "127.0.0.1", 0)
    exits.push_async_callback(listener.wait_closed)
    exits.callback(listener.close)
    channel = TcpChannel("127.0.0.1", listener.sockets[0].getsockname()[1])
    task = asyncio.create_task(channel.execute(REQUEST, PATIENCE_S))
    async with asyncio.timeout(PATIENCE_S):
        await accepted.wait()
        await channel.close()
        with pytest.raises(UnavailableError):
            await task
        await let_go.wait()
    await asyncio.sleep(0)
    assert failures == []


async def test_an_address_that_never_answers_is_given_up_before_the_query(
    exits: AsyncExitStack,
) -> None:
    listener = exits.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    # A queue that is full: the kernel leaves further attempts without an answer.
    for _ in range(4):
        waiting = exits.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(listener.getsockname())
    channel = TcpChannel(*listener.getsockname(), connect_s=0.2)
    exits.push_async_callback(channel.close)
    with pytest.raises(UnavailableError, match="cannot connect"):
        await channel.execute(REQUEST, PATIENCE_S)


async def test_callers_who_share_failing_attempts_to_connect_are_all_told(exits: AsyncExitStack) -> None:
    server, port = await serve(exits, echo)
    await server.stop(0)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)

    async def insist() -> list[BaseException | ServerResponse]:
        answers: list[BaseException | ServerResponse] = []
        for _ in range(20):
            try:
                answers.append(await channel.execute(REQUEST, 5.0))
            except UnavailableError as error:
                answers.append(error)
        return answers

    answers = await asyncio.gather(*(insist() for _ in range(5)))
    assert all(isinstance(one, UnavailableError) for each in answers for one in each)


async def test_a_restarted_server_is_found_again(exits: AsyncExitStack) -> None:
    server, port = await serve(exits, echo)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    assert await channel.ping(5.0) == "Server_x_1"
    await server.stop(0)
    with pytest.raises(UnavailableError):
        await channel.execute(REQUEST, 1.0)
    await serve(exits, echo, port)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                assert (await channel.execute(REQUEST, 1.0)).missing == REQUEST.segments
                break
            except UnavailableError:
                await asyncio.sleep(0.02)


async def test_a_taken_port_is_said_so(exits: AsyncExitStack) -> None:
    _, port = await serve(exits, echo)
    with pytest.raises(UnavailableError, match=f"cannot listen address=127.0.0.1:{port}"):
        TcpEndpoint(echo, lambda: "other").bind("127.0.0.1", port)


async def test_a_bug_in_a_handler_is_an_error_code_and_no_traceback(
    exits: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: ServerRequest) -> ServerResponse:
        raise ZeroDivisionError("secret detail")

    _, port = await serve(exits, fail)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    error = (await channel.execute(REQUEST, 5.0)).error
    assert error is not None
    assert error[0] == QueryErrorCode.INTERNAL
    assert "secret" not in error[1]
    assert "secret detail" in caplog.text


@pytest.mark.parametrize("is_at_hand", [False, True])
async def test_an_answer_that_cannot_be_encoded_is_an_error_at_once(exits: AsyncExitStack, is_at_hand: bool) -> None:
    too_many = ServerResponse(partial=Partial(pa.table({"x": [1]}), QueryStats(total_docs=1 << 64)))

    async def answer(_: ServerRequest) -> ServerResponse:
        return too_many

    server, port = await serve(exits, answer)
    server.answer_now = (lambda _: too_many) if is_at_hand else None
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    for _ in range(2):
        error = (await channel.execute(REQUEST, PATIENCE_S)).error
        assert error is not None
        assert error[0] == QueryErrorCode.INTERNAL


@pytest.mark.parametrize(
    "response",
    [
        ServerResponse(missing=tuple(f"segment_{number}@1" for number in range(1000))),
        ServerResponse(partial=Partial(pa.table({"x": range(1000)}), QueryStats())),
    ],
    ids=["names", "rows"],
)
async def test_an_answer_that_is_too_large_is_an_error_that_says_so(
    exits: AsyncExitStack, response: ServerResponse
) -> None:
    async def answer(_: ServerRequest) -> ServerResponse:
        return response

    server, port = await serve(exits, answer)
    server.limits = EndpointLimits(answer_bytes=1000)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    error = (await channel.execute(REQUEST, 5.0)).error
    assert error is not None
    assert (error[0], "too large" in error[1]) == (245, True)


async def test_a_short_answer_does_not_wait_for_a_long_query(exits: AsyncExitStack) -> None:
    hold = asyncio.Event()

    async def answer(request: ServerRequest) -> ServerResponse:
        if request.request_id == "slow":
            await hold.wait()
        return ServerResponse(missing=(request.request_id,))

    _, port = await serve(exits, answer)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    slow = asyncio.create_task(channel.execute(replace(REQUEST, request_id="slow"), 5.0))
    quick = await channel.execute(replace(REQUEST, request_id="quick"), 5.0)
    assert (quick.missing, slow.done()) == (("quick",), False)
    hold.set()
    assert (await slow).missing == ("slow",)


async def test_requests_and_answers_of_megabytes_come_whole(exits: AsyncExitStack) -> None:
    async def answer(request: ServerRequest) -> ServerResponse:
        return ServerResponse(error=(1, request.query.decode()))

    _, port = await serve(exits, answer)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    text = "0123456789abcdef" * (1 << 18)
    answers = await asyncio.gather(
        *(channel.execute(replace(REQUEST, query=(text + str(number)).encode()), 30.0) for number in range(3))
    )
    assert [one.error for one in answers] == [(1, text + str(number)) for number in range(3)]


async def test_an_answer_at_hand_needs_no_task(exits: AsyncExitStack) -> None:
    async def refuse(_: ServerRequest) -> ServerResponse:
        raise AssertionError

    server = TcpEndpoint(refuse, lambda: "x", answer_now=lambda request: ServerResponse(missing=request.segments))
    port = server.bind("127.0.0.1", 0)
    await server.start()
    exits.push_async_callback(server.stop, 0)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    assert (await channel.execute(REQUEST, 5.0)).missing == REQUEST.segments


async def test_a_stopping_server_refuses_new_requests_and_answers_the_old(exits: AsyncExitStack) -> None:
    started, hold = asyncio.Event(), asyncio.Event()

    async def answer(request: ServerRequest) -> ServerResponse:
        started.set()
        await hold.wait()
        return await echo(request)

    server, port = await serve(exits, answer)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    running = asyncio.create_task(channel.execute(REQUEST, 5.0))
    await started.wait()
    stopping = asyncio.create_task(server.stop(5.0))
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match="stopping"):
        await channel.execute(REQUEST, 5.0)
    hold.set()
    assert (await running).missing == REQUEST.segments
    await stopping


async def test_a_ping_without_an_answer_leaves_nothing_behind(exits: AsyncExitStack) -> None:
    server, port = await serve(exits, echo)
    channel = TcpChannel("127.0.0.1", port)
    exits.push_async_callback(channel.close)
    assert await channel.ping(5.0) == "Server_x_1"
    connection = channel._connection
    assert connection is not None
    for _ in range(3):
        with pytest.raises(UnavailableError, match="did not answer in time"):
            await channel.ping(0.0)
    given_up = asyncio.create_task(connection.ping(60.0))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    assert connection._pongs == set()
    await server.stop(0)
    async with asyncio.timeout(PATIENCE_S):
        while connection.is_open:
            await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match="connection is lost"):
        await connection.ping(60.0)
