"""Serve the gRPC port of a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn
from urllib.parse import unquote

import grpc.aio
from google.protobuf.message import DecodeError

from merlot.broker.queries import Answers, SqlRequest
from merlot.broker.query_errors import QueryException
from merlot.broker.response import BrokerAnswer, ResultColumns, ResultRows
from merlot.broker.rpc import blocks
from merlot.broker.rpc.blocks import BlockForm, RowBlock
from merlot.broker.rpc.credentials import credentials_of
from merlot.broker.rpc.messages import METHOD, SERVICE, SERVICE_OF_SERVERS, BrokerRequest, response
from merlot.codes import QueryErrorCode
from merlot.errors import (
    AccessDeniedError,
    InvalidInputError,
    MerlotError,
    NotAuthenticatedError,
    UnavailableError,
)
from merlot.security import credentials
from merlot.security.access import ANONYMOUS, Identity, Right
from merlot.security.audit import entry
from merlot.security.door import Door, refusal
from merlot.security.tls import HANDSHAKE_S, Certificates

_LOG = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 4 << 20
MAX_RUNNING: Final = 1_000
GRACE_S: Final = 1.0
STALL_S: Final = 60.0
"""Longest wait until a client has room for one more message."""
CORRELATION: Final = "x-correlation-id"
AUTHORIZATION: Final = "authorization"
_STATUSES: Final[dict[int, grpc.StatusCode]] = {
    QueryErrorCode.EXECUTION_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    QueryErrorCode.BROKER_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    QueryErrorCode.SERVER_NOT_RESPONDING: grpc.StatusCode.UNAVAILABLE,
    QueryErrorCode.BROKER_SEGMENT_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    QueryErrorCode.QUERY_CANCELLATION: grpc.StatusCode.CANCELLED,
}
"""Status of a call whose answer breaks off, by error code."""


NO_SEGMENTS: Final = (
    "Merlot sends no segments to clients: let the broker answer the whole query. In Trino, set "
    "pinot.prefer-broker-queries=true and pinot.forbid-segment-queries=true, or write the query for Pinot in the place "
    'of a table: SELECT * FROM pinot.default."SELECT …"'
)
"""Message for users of Trino whose connector is configured to read segments from this port (`pinot.grpc.port`)."""


class ClientStalledError(UnavailableError):
    """Raised if a client does not read its answer."""

    code: ClassVar[int] = QueryErrorCode.EXECUTION_TIMEOUT


async def _refuse_segments(_: bytes, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, NO_SEGMENTS)


class RpcListener:
    """A gRPC port that is open between `open` and `close`."""

    def __init__(
        self,
        broker: Answers,
        door: Door | None = None,
        *,
        certificates: Certificates | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        self._broker = broker
        self._door = door or Door()
        self._certificates = certificates
        self._stall_s = stall_s
        self._server: Any = None

    async def open(self, host: str, port: int) -> int:
        """Listen, and return the port; the system chooses it if `port` is 0. Raise UnavailableError if it is taken."""
        options = [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
            ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),
        ]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_RUNNING)
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, methods) for service, methods in self.methods().items()]
        )
        try:
            bound = self._add_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError as error:
            raise UnavailableError(f"cannot listen for gRPC address={host}:{port}") from error
        await self._server.start()
        return bound

    def methods(self) -> dict[str, dict[str, Any]]:
        """Return the handlers of all methods by service and name."""
        handler = grpc.unary_stream_rpc_method_handler(
            self._submit,
            response_serializer=lambda message: message.SerializeToString(),
        )
        of_servers = grpc.unary_stream_rpc_method_handler(_refuse_segments)
        return {SERVICE: {METHOD: handler}, SERVICE_OF_SERVERS: {METHOD: of_servers}}

    def _add_port(self, address: str) -> int:
        if self._certificates is None:
            insecure: int = self._server.add_insecure_port(address)
            return insecure
        secure: int = self._server.add_secure_port(address, credentials_of(self._certificates))
        return secure

    async def close(self, grace_s: float) -> None:
        """Accept no more calls; running calls get `grace_s` to end, or a moment if that is longer."""
        if self._server is not None:
            await self._server.stop(max(GRACE_S, grace_s))

    async def _submit(self, message: bytes, context: Any) -> None:
        """Write the messages of one answer. A client that hangs up cancels its query.

        The message is parsed here, because grpc logs a traceback for each message that it cannot parse."""
        try:
            request = BrokerRequest.FromString(message)
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"request is no BrokerRequest: {error}")
        identity = await self._admitted(context)
        try:
            answer = await self._answered(request, context, identity)
        except ClientStalledError as error:
            answer = self._refusal(error)  # the rows are freed: the status waits until the client reads or hangs up
        except grpc.aio.AbortError:
            raise  # the call was refused
        except Exception:
            _LOG.exception("call failed by a bug")
            raise
        if answer is not None:
            problem = answer.exceptions[0]
            await context.abort(
                _STATUSES.get(problem.code, grpc.StatusCode.INTERNAL), f"{problem.code} {problem.message}"
            )

    async def _admitted(self, context: Any) -> Identity:
        """Return who calls, by the metadata `authorization` or the certificate. End the call if they may not query.
        Without an access document nobody is asked who they are."""
        if self._door.is_open:
            return ANONYMOUS
        metadata = list(context.invocation_metadata() or ())
        values = [value for name, value in metadata if name == AUTHORIZATION]
        client = _address_in(context.peer())
        try:
            if len(values) > 1:
                raise NotAuthenticatedError("there are several authorization entries: send one")
            credential = credentials.of_header(values[0]) if values else _certificate(context.auth_context())
            identity = (await self._door.identify(credential, client)).identity
            if not self._door.access.allows_any(identity, Right.QUERY):
                raise refusal(identity, Right.QUERY, None)
        except NotAuthenticatedError as error:
            await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, error)
        except AccessDeniedError as error:
            await self._refuse(context, grpc.StatusCode.PERMISSION_DENIED, error)
        except UnavailableError as error:
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, error)
        return identity

    async def _refuse(self, context: Any, status: grpc.StatusCode, error: MerlotError) -> NoReturn:
        if self._door.audit is not None:
            self._door.audit.record(
                entry("call", ANONYMOUS, _address_in(context.peer()), decision="refused", status=status.name)
            )
        await context.abort(status, str(error))
        raise AssertionError("abort raises")

    async def _answered(self, request: Any, context: Any, identity: Identity) -> BrokerAnswer | None:
        """Write an answer. Return it if it failed after rows had been sent, otherwise None. Raise ClientStalledError if
        the client does not read."""
        write = self._writer(context)
        try:
            form = BlockForm.of(request.metadata)
        except InvalidInputError as error:
            await write(response(self._refusal(error).to_bytes()))
            return None
        blocks_of = _Blocks(write, form)
        headers = dict(context.invocation_metadata() or ())
        asked = SqlRequest(
            request.sql,
            request.metadata.get("queryOptions", ""),
            headers.get(CORRELATION),
            by_column=True,
            taker=blocks_of,
            identity=identity,
            client=_address_in(context.peer()),
        )
        answer = await self._broker.query(asked)
        if not blocks_of.has_begun and answer.error_code == QueryErrorCode.ACCESS_DENIED:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, answer.exceptions[0].message)
        if blocks_of.has_begun:
            return answer if answer.exceptions else None
        if answer.exceptions or answer.result is None or not answer.result.num_rows:
            await write(response(await asyncio.to_thread(answer.to_bytes)))
        else:
            await blocks_of.take(answer, answer.result)
        return None

    def _writer(self, context: Any) -> Callable[[Any], Awaitable[None]]:
        """Return a function that writes one message of a call. It raises ClientStalledError if the client makes no room
        for the message."""

        async def write(message: Any) -> None:
            try:
                async with asyncio.timeout(self._stall_s):
                    await context.write(message)
            except TimeoutError as error:
                raise ClientStalledError(
                    f"client has not read its answer for {self._stall_s:g} s, ask again and read all messages"
                ) from error

        return write

    def _refusal(self, error: MerlotError) -> BrokerAnswer:
        return BrokerAnswer.refusal(self._broker.broker_id, QueryException.of(error))


def _address_in(peer: str) -> str:
    """Return the address in the name that gRPC gives a peer: `ipv4:10.0.0.1:5000`, `ipv6:%5B::1%5D:5000`."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer


def _certificate(auth_context: Mapping[str, Sequence[bytes]]) -> credentials.PeerCertificate | None:
    """Return the names in a verified client certificate; None if there is none. gRPC does not tell the kind of a name,
    except that a URI has a scheme."""
    names = [name.decode(errors="replace") for name in auth_context.get("x509_subject_alternative_name", ())]
    kinds = ("URI" if "://" in name else "email" if "@" in name else "DNS" for name in names)
    return credentials.PeerCertificate(tuple(map(":".join, zip(kinds, names, strict=True)))) if names else None


class _Blocks:
    """Writes rows as messages, after the head of their answer."""

    def __init__(self, write: Callable[[Any], Awaitable[None]], form: BlockForm) -> None:
        self._write = write
        self._form = form
        self.has_begun = False

    async def take(self, answer: BrokerAnswer, rows: ResultRows | ResultColumns) -> None:
        """Write the rows. Return once the client has room for more."""
        if not self.has_begun:
            self.has_begun = True
            await self._write(response(answer.without_rows()))
            await self._write(response(blocks.schema(rows.column_names, rows.column_types)))
        for start in range(0, rows.num_rows, self._form.rows):
            for block in await asyncio.to_thread(self._made, rows, start):
                await self._write(response(block.payload, block.about))

    def _made(self, rows: ResultRows | ResultColumns, start: int) -> list[RowBlock]:
        columns = rows.values(start, min(start + self._form.rows, rows.num_rows))
        return self._form.blocks(rows.column_names, rows.column_types, columns)
