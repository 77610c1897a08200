"""Serve an application on a port."""

from __future__ import annotations

import asyncio

from aiohttp import web

from merlot.errors import UnavailableError
from merlot.http.connection_limits import ConnectionLimiter
from merlot.http.guard import SERVER_LOG, Guard
from merlot.http.tls_door import behind_tls, new_limiter
from merlot.security.tls import Certificates

BACKLOG = 128
SHUTDOWN_S = 60.0


class HttpServer:
    """HTTP server that runs between `start` and `stop`, on one event loop. `stop` waits up to `shutdown_s` for requests
    under way. With certificates it speaks HTTPS alone."""

    def __init__(
        self,
        app: web.Application,
        *,
        certificates: Certificates | None = None,
        shutdown_s: float = SHUTDOWN_S,
        limiter: ConnectionLimiter | None = None,
    ) -> None:
        self._app = app
        self._certificates = certificates
        self._runner = web.AppRunner(
            app, access_log=None, logger=SERVER_LOG, auto_decompress=False, shutdown_timeout=shutdown_s
        )
        self._crowd = limiter
        self._server: asyncio.Server | None = None

    async def start(self, host: str | None, port: int) -> int:
        """Listen, on all addresses if `host` is None; return the port, which the system chooses if `port` is 0.

        Raise UnavailableError if the address cannot be bound."""
        self._crowd = self._crowd or new_limiter(self._certificates)
        guard = Guard(self._app, self._crowd)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                behind_tls(lambda: guard.protocol(server), self._certificates, self._crowd), host, port, backlog=BACKLOG
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnavailableError(f"cannot listen address={host or '*'}:{port} reason={reason}") from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Accept no more connections; end the open ones."""
        if self._server is not None:
            self._server.close()
        if self._crowd is not None:
            self._crowd.close()
        await self._runner.cleanup()
