"""Listen for HTTP: the front takes connections, and an aiohttp server the requests that the front leaves."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from aiohttp import web

from merlot.broker.http.front import Front
from merlot.broker.queries import Answers
from merlot.clock import Clock
from merlot.errors import UnavailableError
from merlot.http.guard import SERVER_LOG, Guard
from merlot.http.tls_door import MakeProtocol, behind_tls, new_limiter
from merlot.security.tls import Certificates

BACKLOG: Final = 1_024
GRACE_S: Final = 1.0
"""Time that connections get at the end to take their answers."""


class Listener:
    """A port that is open between `open` and `close`, on one event loop. With certificates it speaks HTTPS alone."""

    def __init__(
        self, broker: Answers, app: web.Application, clock: Clock, certificates: Certificates | None = None
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._certificates = certificates
        self._app = app
        # A client that hangs up cancels its query.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=SERVER_LOG,
            auto_decompress=False,
            handler_cancellation=True,
            shutdown_timeout=GRACE_S,
        )
        self._front: Front | None = None
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen, and return the port; the system chooses it if `port` is 0. Raise UnavailableError if it is taken."""
        front = await self._start()
        try:
            self._server = await asyncio.get_running_loop().create_server(front, host, port, backlog=BACKLOG)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnavailableError(f"cannot listen address={host}:{port} reason={reason}") from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def open_on(self, listener: socket.socket) -> None:
        """Listen on a socket that is already bound."""
        front = await self._start()
        self._server = await asyncio.get_running_loop().create_server(front, sock=listener, backlog=BACKLOG)

    def finish(self) -> None:
        """Accept no more connections and no more requests; requests under way go on."""
        if self._server is not None:
            self._server.close()
        if self._front is not None:
            self._front.finish()
        if self._runner.server is not None:
            self._runner.server.pre_shutdown()

    async def close(self) -> None:
        """Accept no more connections, and end the open ones."""
        self.finish()
        if self._front is not None:
            await self._front.close(GRACE_S)
        await self._runner.cleanup()

    async def _start(self) -> MakeProtocol:
        limiter = new_limiter(self._certificates)
        guard = Guard(self._app, limiter)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._front = Front(self._broker, lambda: guard.protocol(server), self._clock, limiter, self._app)
        return behind_tls(self._front, self._certificates, limiter)
