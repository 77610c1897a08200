"""How much peers may send: bounded together, a share for each, and nothing gained by coming anew."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.ids import TableName
from merlot.testing.clock import FakeClock
from merlot.testing.patience import PATIENCE_S
from merlot.wire.client import TcpChannel
from merlot.wire.endpoint import EndpointLimits, TcpEndpoint
from merlot.wire.frames import FrameKind, Hello, encode
from merlot.wire.messages import ServerRequest, ServerResponse
from merlot.wire.pace import CREDIT_S, FRAME_BYTES, READ_BYTES, SHARED_BYTES_S, SPARE_BYTES_S, Lane, Pace

REQUEST = ServerRequest(request_id="7", table=TableName("t_OFFLINE"), query=b"{}", segments=("a@1",), timeout_ms=60_000)
STEP_S = 0.01
GREEDY = 262_144


def taken(lane: Lane, piece: int) -> int:
    """What a peer that always has more to send gets through now."""
    total = 0
    while not lane.wait_s():
        lane.spend(piece)
        total += piece
    return total


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1_000, GREEDY)), min_size=1, max_size=30))
def test_all_peers_together_get_no_more_than_the_port_has(peers: list[tuple[str, int]]) -> None:
    clock = FakeClock()
    pace = Pace(clock)
    lanes = [(pace.lane(host), piece) for host, piece in peers]
    total, steps = 0, 50
    for _ in range(steps):
        total += sum(taken(lane, piece) for lane, piece in lanes)
        clock.advance(STEP_S)
    rate = SHARED_BYTES_S + SPARE_BYTES_S
    assert total <= rate * (steps * STEP_S + CREDIT_S) + sum(piece for _, piece in lanes) + GREEDY
    assert total >= SHARED_BYTES_S * (steps - 1) * STEP_S / 2


@given(st.integers(1, 60), st.floats(0.1, 0.9))
def test_a_peer_that_keeps_to_its_share_never_waits(num_floods: int, share: float) -> None:
    clock = FakeClock()
    pace = Pace(clock)
    ordinary, floods = pace.lane("broker"), [pace.lane("flood") for _ in range(num_floods)]
    for _ in range(50):
        clock.advance(STEP_S)
        for flood in floods:
            taken(flood, GREEDY)
        assert ordinary.wait_s() == 0
        ordinary.spend(int(share * STEP_S * SHARED_BYTES_S / 2))


def test_a_host_with_many_connections_has_the_share_of_one_host() -> None:
    clock = FakeClock()
    pace = Pace(clock)
    alone, many = pace.lane("a"), [pace.lane("b") for _ in range(50)]
    sums = {"a": 0, "b": 0}
    for _ in range(100):
        clock.advance(STEP_S)
        sums["b"] += sum(taken(lane, FRAME_BYTES) for lane in many)
        sums["a"] += taken(alone, FRAME_BYTES)
    assert sums["a"] >= 0.45 * SHARED_BYTES_S


def test_coming_anew_gains_nothing() -> None:
    clock = FakeClock()
    pace = Pace(clock)
    total = 0
    for _ in range(1_000):
        lane = pace.lane("a")
        total += taken(lane, FRAME_BYTES)
        lane.close()
    assert total <= SPARE_BYTES_S * CREDIT_S + FRAME_BYTES
    assert not pace.lanes


class Port:
    """An endpoint whose clock stands still, so that no credit comes back, and a broker's channel to it."""

    def __init__(self, clock: FakeClock) -> None:
        async def handle(request: ServerRequest) -> ServerResponse:
            return ServerResponse(missing=request.segments)

        self.clock = clock
        self.server = TcpEndpoint(handle, lambda: "x", clock=clock)
        self.number = self.server.bind("127.0.0.1", 0)
        self.channel = TcpChannel("127.0.0.1", self.number)

    async def answers(self) -> bool:
        return await self.channel.execute(REQUEST, PATIENCE_S) == ServerResponse(missing=REQUEST.segments)


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    port = Port(FakeClock())
    await port.server.start()
    assert await port.answers()
    yield port
    await port.channel.close()
    await port.server.stop(0)


@pytest.fixture
def exits() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as exits:
        yield exits


def cut_off(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def flooding(port: Port, exits: contextlib.ExitStack, frame: bytes) -> asyncio.StreamReader:
    """A connection that has sent 32 MB of the same frame, as far as they are taken."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    exits.callback(cut_off, writer)
    writer.write(encode(FrameKind.HELLO, 0, Hello().to_bytes()))
    writer.write(frame * ((32 << 20) // len(frame)))
    return reader


async def rests(port: Port, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while sum(one._resting is not None for one in port.server.connections) < count:
            await asyncio.sleep(0.001)


async def test_a_peer_that_floods_waits_and_others_are_answered(port: Port, exits: contextlib.ExitStack) -> None:
    part = encode(FrameKind.PART, 1, bytes(1 << 20))
    port.clock.advance(1.0)
    for _ in range(3):
        await flooding(port, exits, part)
    await rests(port, 3)
    # Pieces of 256 KB may go beyond, and frames that have not come whole are not held yet.
    assert port.server.unfinished.num_bytes <= (SHARED_BYTES_S + SPARE_BYTES_S) * CREDIT_S + 3 * (1 << 20)
    for _ in range(20):
        assert await port.answers()
    held = port.server.unfinished.num_bytes
    port.clock.advance(1.0)
    async with asyncio.timeout(PATIENCE_S):
        while port.server.unfinished.num_bytes <= held:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "frame", [encode(FrameKind.PING, 0), encode(FrameKind.LAST, 1, b"?")], ids=["pings", "garbage"]
)
async def test_a_peer_that_sends_many_small_frames_is_answered_a_bounded_number_of_them(
    port: Port, exits: contextlib.ExitStack, frame: bytes
) -> None:
    port.clock.advance(1.0)
    reader = await flooding(port, exits, frame)
    await rests(port, 1)
    for _ in range(20):
        assert await port.answers()
    answers = await reader.read(1 << 20)
    least_answer = len(encode(FrameKind.PONG, 0))
    assert len(answers) / least_answer <= 20 * (SHARED_BYTES_S + SPARE_BYTES_S) * CREDIT_S / FRAME_BYTES


async def test_a_peer_that_sends_single_bytes_waits(port: Port, exits: contextlib.ExitStack) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port.number)
    exits.callback(cut_off, writer)
    writer.write(encode(FrameKind.HELLO, 0, Hello().to_bytes()))
    frame = encode(FrameKind.PART, 1, bytes(1 << 20))
    for position in range(1 + round((SHARED_BYTES_S + SPARE_BYTES_S) * CREDIT_S / READ_BYTES)):
        before = len(port.server.connections)
        writer.write(frame[position : position + 1])
        await asyncio.sleep(0)
        assert len(port.server.connections) >= before
        if any(one._resting is not None for one in port.server.connections):
            return
        await asyncio.sleep(0)
    raise AssertionError("the peer was never made to wait")


async def test_a_host_holds_no_more_connections_than_allowed(port: Port) -> None:
    port.server.limits = EndpointLimits(connections_of_host=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    assert b"too many connections of one host limit=1" in await reader.read()
    writer.close()
    assert await port.answers()


async def test_a_connection_that_is_cut_off_while_it_waits_leaves_its_share(
    port: Port, exits: contextlib.ExitStack
) -> None:
    await flooding(port, exits, encode(FrameKind.PART, 1, bytes(1 << 20)))
    await rests(port, 1)
    assert sum(port.server.pace.lanes.values()) == 2
    (waiting,) = [one for one in port.server.connections if one._resting is not None]
    waiting.abort("test")
    async with asyncio.timeout(PATIENCE_S):
        while sum(port.server.pace.lanes.values()) == 2:
            await asyncio.sleep(0.001)
    assert port.server.unfinished.num_bytes == 0
