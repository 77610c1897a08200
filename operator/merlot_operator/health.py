"""HTTP server of the operator: `/healthz`, `/readyz` and `/metrics`.

The first two answer with the verdict of `progress`. An event loop that hangs cannot answer them, which kubelet takes
for a failure. `watchdog` needs neither.
"""

from __future__ import annotations

from aiohttp import web

from merlot.http import health
from merlot.http.server import HttpServer
from merlot_operator.context import ReconcileContext
from merlot_operator.metrics import WRITES
from merlot_operator.progress import ProgressVerdict


class Health:
    """The HTTP server."""

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context
        self._http: HttpServer | None = None

    async def start(self, port: int) -> None:
        """Serve on all addresses."""
        app = web.Application()
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self._http = HttpServer(app)
        await self._http.start(None, port)

    async def stop(self) -> None:
        """Stop serving."""
        if self._http is not None:
            await self._http.stop()

    def _verdict(self) -> ProgressVerdict:
        return self._context.progress.verdict(self._context.clock.monotonic())

    async def _ready(self, _: web.Request) -> web.Response:
        verdict = self._verdict()
        return web.Response(text=verdict.text, status=200 if verdict.is_ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        WRITES.set(self._context.kube.num_writes)
        return await health.metrics(request)

    async def _alive(self, _: web.Request) -> web.Response:
        verdict = self._verdict()
        return web.Response(text=verdict.text, status=200 if verdict.is_alive else 503)
