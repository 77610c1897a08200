"""A broker's line to one server: over gRPC, or within the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import grpc

from merlot.errors import UnavailableError
from merlot.wire import frames
from merlot.wire.codec import decode_response, encode_request
from merlot.wire.messages import ServerRequest, ServerResponse

MAX_MESSAGE_BYTES: Final = 256 << 20
"""Largest request or answer; a server refuses to send more, with an error that says so."""

Handler = Callable[[ServerRequest], Awaitable[ServerResponse]]
"""A server's side: never raises for what is wrong with a query; cancelling it cancels the query."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A peer that vanished without a word (power, network) is found out within 15 s, though no query is under way.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A restarted server is found again within a second or two.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Retrying is the broker's business: it has other replicas.
    ("grpc.enable_retries", 0),
    # Brokers of one process do not share a connection's fate.
    ("grpc.use_local_subchannel_pool", 1),
)


class ServerChannel(Protocol):
    """Asks one server. Used on one event loop."""

    async def execute(self, request: ServerRequest, timeout_s: float) -> ServerResponse:
        """The server's answer. UnavailableError if it cannot be reached or does not answer in time.

        Cancelling the call cancels the query on the server.
        """
        ...

    async def close(self) -> None:
        """Calls under way end with UnavailableError."""
        ...


class GrpcChannel:
    """A server in another process. The connection is made by the first call, and made again when it breaks."""

    def __init__(self, host: str, port: int) -> None:
        self._target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._channel = grpc.aio.insecure_channel(self._target, options=_OPTIONS)
        self._execute = self._channel.unary_unary(f"/{frames.SERVICE}/Execute")
        self._ping = self._channel.unary_unary(f"/{frames.SERVICE}/Ping")
        self._is_closed = False

    async def execute(self, request: ServerRequest, timeout_s: float) -> ServerResponse:
        return decode_response(await self._call(self._execute, encode_request(request), timeout_s))

    async def ping(self, timeout_s: float) -> str:
        """The server's instance id; UnavailableError if it cannot be reached."""
        data = await self._call(self._ping, frames.PingRequest().SerializeToString(), timeout_s)
        return str(frames.PingResponse.FromString(data).instance)

    async def close(self) -> None:
        self._is_closed = True
        await self._channel.close()

    async def _call(self, method: Callable[..., Awaitable[bytes]], data: bytes, timeout_s: float) -> bytes:
        try:
            return await method(data, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            code, details = error.code().name, error.details()
            raise UnavailableError(f"server failed target={self._target} status={code} details={details!r}") from error
        except grpc.aio.UsageError as error:
            raise UnavailableError(f"channel is closed target={self._target}") from error
        except asyncio.CancelledError:
            # Closing a channel cancels its calls, and they raise this although nobody cancelled their task.
            task = asyncio.current_task()
            if self._is_closed and (task is None or not task.cancelling()):
                raise UnavailableError(f"channel was closed target={self._target}") from None
            raise


class LocalChannel:
    """A server in this process: requests and answers are handed over as they are."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._is_closed = False

    async def execute(self, request: ServerRequest, timeout_s: float) -> ServerResponse:
        if self._is_closed:
            raise UnavailableError("channel is closed target=local")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._handler(request)
        except TimeoutError as error:
            raise UnavailableError(f"server did not answer in time target=local timeout_s={timeout_s:.3f}") from error

    async def close(self) -> None:
        self._is_closed = True
