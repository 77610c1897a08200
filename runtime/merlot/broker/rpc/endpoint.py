"""The gRPC port of a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc.aio

from merlot.broker.queries import Answers, SqlRequest
from merlot.broker.query_errors import named
from merlot.broker.response import BrokerAnswer
from merlot.broker.rpc import blocks
from merlot.broker.rpc.blocks import Block, BlockForm
from merlot.broker.rpc.messages import METHOD, SERVICE, BrokerRequest, response
from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError, UnavailableError

_LOG = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 4 << 20
MAX_RUNNING: Final = 1_000
GRACE_S: Final = 1.0
CORRELATION: Final = "x-correlation-id"


class RpcListener:
    """Open between `open` and `close`."""

    def __init__(self, broker: Answers) -> None:
        self._broker = broker
        self._server: Any = None

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port, which 0 leaves to the system. UnavailableError if it is taken."""
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MAX_REQUEST_BYTES)]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_RUNNING)
        handler = grpc.unary_stream_rpc_method_handler(
            self._submit,
            request_deserializer=BrokerRequest.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})])
        try:
            bound: int = self._server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError as error:
            raise UnavailableError(f"cannot listen for gRPC address={host}:{port}") from error
        await self._server.start()
        return bound

    async def close(self) -> None:
        """Take no more calls; those that run get a moment to end."""
        if self._server is not None:
            await self._server.stop(GRACE_S)

    async def _submit(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The messages of one answer. A client that hangs up cancels its query."""
        try:
            async for message in self._messages(request, dict(context.invocation_metadata() or ())):
                yield message
        except Exception:
            _LOG.exception("call failed by a bug")
            raise

    async def _messages(self, request: Any, headers: dict[str, Any]) -> AsyncIterator[Any]:
        try:
            form = BlockForm.of(request.metadata)
        except InvalidInputError as error:
            yield response(self._refusal(str(error)).to_bytes())
            return
        options = request.metadata.get("queryOptions", "")
        answer = await self._broker.query(SqlRequest(request.sql, options, headers.get(CORRELATION), by_column=True))
        result = answer.result
        if answer.exceptions or result is None or not result.num_rows:
            yield response(await asyncio.to_thread(answer.to_bytes))
            return
        yield response(answer.without_rows())
        yield response(blocks.schema(result.column_names, result.column_types))
        for start in range(0, result.num_rows, form.rows):
            for block in await asyncio.to_thread(_blocks, form, answer, start):
                yield response(block.payload, block.about)

    def _refusal(self, problem: str) -> BrokerAnswer:
        exception = named(QueryErrorCode.QUERY_VALIDATION, problem)
        return BrokerAnswer.refusal(self._broker.broker_id, exception)


def _blocks(form: BlockForm, answer: BrokerAnswer, start: int) -> list[Block]:
    result = answer.result
    assert result is not None
    columns = result.values(start, min(start + form.rows, result.num_rows))
    return form.blocks(result.column_names, result.column_types, columns)
