"""A server's gRPC endpoint: bytes in, handler, bytes out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import grpc

from merlot.errors import CorruptionError, UnavailableError
from merlot.wire import frames
from merlot.wire.client import MAX_MESSAGE_BYTES, Handler
from merlot.wire.codec import decode_request, encode_response
from merlot.wire.messages import ServerRequest, ServerResponse

_LOG = logging.getLogger(__name__)

LIMIT_CODE: Final = 245
INTERNAL_CODE: Final = 450

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Two processes on one port would each take some of the calls.
    ("grpc.so_reuseport", 0),
    # Brokers ping every 10 s, calls or not.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class GrpcEndpoint:
    """Serves one handler on one event loop."""

    def __init__(self, handler: Handler, instance: Callable[[], str]) -> None:
        self._handler = handler
        self._instance = instance
        self._server = grpc.aio.server(options=_OPTIONS)
        methods = {
            "Execute": grpc.unary_unary_rpc_method_handler(self._execute),
            "Ping": grpc.unary_unary_rpc_method_handler(self._ping),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(frames.SERVICE, methods),))

    def bind(self, host: str, port: int) -> int:
        """Take the port, which 0 leaves to the system, and return it. UnavailableError if it is taken."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise UnavailableError(f"cannot listen address={address}") from error
        return int(bound)

    async def start(self) -> None:
        """Take calls from now on."""
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; end those still running when the grace is over."""
        await self._server.stop(grace_s)

    async def _execute(self, data: bytes, context: Any) -> bytes:
        try:
            request = decode_request(data)
        except CorruptionError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return _encode(await self._answer(request))

    async def _answer(self, request: ServerRequest) -> ServerResponse:
        try:
            return await self._handler(request)
        except Exception:  # noqa: BLE001 - the outermost loop of a call: no traceback reaches a user
            _LOG.exception("query failed by a bug request=%s", request.request_id)
            return ServerResponse(
                error=(INTERNAL_CODE, f"internal error, see the server's log request={request.request_id}")
            )

    async def _ping(self, data: bytes, context: Any) -> bytes:
        pong: bytes = frames.PingResponse(instance=self._instance()).SerializeToString()
        return pong


def _encode(response: ServerResponse) -> bytes:
    data = encode_response(response)
    if len(data) > MAX_MESSAGE_BYTES:
        text = f"partial result is too large bytes={len(data)} limit={MAX_MESSAGE_BYTES}"
        return encode_response(ServerResponse(error=(LIMIT_CODE, text)))
    return data
