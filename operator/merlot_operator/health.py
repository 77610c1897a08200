"""The operator's own port: `/healthz` (the loop turns), `/readyz` (everything was listed), `/metrics`."""

from __future__ import annotations

from aiohttp import web

from merlot.telemetry import CONTENT_TYPE, render_metrics
from merlot_operator.context import Context
from merlot_operator.metrics import WRITES


class Health:
    """State and server."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_ready = False
        self._runner: web.AppRunner | None = None

    def ready(self) -> None:
        """Everything was listed once."""
        self._is_ready = True

    async def start(self, port: int) -> None:
        """Serve on all addresses."""
        app = web.Application()
        app.router.add_get("/healthz", _alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=port).start()

    async def stop(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(text="ready" if self._is_ready else "listing", status=200 if self._is_ready else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        WRITES.set(self._context.kube.num_writes)
        return web.Response(body=render_metrics(), headers={"Content-Type": CONTENT_TYPE})


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="alive")
