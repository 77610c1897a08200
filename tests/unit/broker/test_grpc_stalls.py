"""Clients of the gRPC port that do not read their answers."""

from __future__ import annotations

import asyncio
import weakref

import grpc.aio
import pyarrow as pa
import pytest

from merlot.broker.queries import SqlRequest
from merlot.broker.response import BrokerAnswer, ResultColumns
from merlot.broker.rpc.endpoint import RpcListener
from merlot.broker.rpc.messages import METHOD, SERVICE, BrokerRequest, BrokerResponse
from merlot.query.answer.result import ResultTable
from merlot.testing.patience import until
from merlot.tree.types import STRING

NUM_ROWS = 100_000


class Followed(ResultColumns):
    """Rows that a weak reference can follow."""


class LargeAnswers:
    """A broker whose answers of 40 MB are taken at once, or in one piece while the query runs."""

    broker_id = "Broker_h_1"

    def __init__(self, *, in_pieces: bool) -> None:
        self._in_pieces = in_pieces
        self.rows: weakref.ref[Followed] | None = None

    async def query(self, request: SqlRequest) -> BrokerAnswer:
        answer = BrokerAnswer(request_id="1", client_request_id=None, broker_id=self.broker_id)
        rows = Followed(ResultTable(("x",), (STRING,), (pa.array([f"{number:0400}" for number in range(NUM_ROWS)]),)))
        self.rows = weakref.ref(rows)
        if self._in_pieces:
            assert request.taker is not None
            await request.taker.take(answer, rows)
        else:
            answer.result = rows
        return answer


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_rows_that_a_client_does_not_read_are_given_up(in_pieces: bool) -> None:
    broker = LargeAnswers(in_pieces=in_pieces)
    listener = RpcListener(broker, stall_s=0.1)
    port = await listener.open("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        submit = channel.unary_stream(f"/{SERVICE}/{METHOD}")
        call = submit(BrokerRequest(sql="SELECT x FROM t", metadata={"compression": "NONE"}).SerializeToString())
        await until(lambda: broker.rows is not None and broker.rows() is None)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            async for _ in call:
                pass
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "client has not read its answer" in (raised.value.details() or "")
    await listener.close(0)


async def test_a_client_that_reads_slowly_gets_all_rows() -> None:
    listener = RpcListener(LargeAnswers(in_pieces=False), stall_s=30)
    port = await listener.open("127.0.0.1", 0)
    num_rows = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        submit = channel.unary_stream(f"/{SERVICE}/{METHOD}", response_deserializer=BrokerResponse.FromString)
        async for message in submit(BrokerRequest(sql="SELECT x FROM t").SerializeToString()):
            num_rows += int(message.metadata.get("rowSize", "0"))
            await asyncio.sleep(0)
    assert num_rows == NUM_ROWS
    await listener.close(0)
