"""An application on a port, from its first connection to its last."""

from __future__ import annotations

from aiohttp import web

from merlot.errors import UnavailableError


class HttpServer:
    """Serves between `start` and `stop`, on one event loop."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, host: str | None, port: int) -> int:
        """Listen, on all addresses if `host` is None; return the port, which 0 leaves to the system.

        Raise UnavailableError if the address cannot be had.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnavailableError(f"cannot listen address={host or '*'}:{port} reason={reason}") from error
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Take no more connections; end those there are."""
        await self._runner.cleanup()
