"""The operator's own port: `/healthz`, `/readyz` (everything was listed once) and `/metrics`.

A loop that turns while the API server no longer talks to it proves nothing: `/healthz` fails when no complete listing
succeeded for long, which a restart with new connections may mend.
"""

from __future__ import annotations

from aiohttp import web

from merlot.telemetry import CONTENT_TYPE, render_metrics
from merlot_operator.context import Context
from merlot_operator.metrics import WRITES
from merlot_operator.reconcile import RELIST_S

LONGEST_SILENCE_S = 3 * RELIST_S


class Health:
    """State and server."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._listed_at: float | None = None
        self._started_at = context.clock.monotonic()
        self._runner: web.AppRunner | None = None

    def listed(self) -> None:
        """Everything was listed, once more."""
        self._listed_at = self._context.clock.monotonic()

    async def start(self, port: int) -> None:
        """Serve on all addresses."""
        app = web.Application()
        app.router.add_get("/healthz", self._alive)
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
        is_ready = self._listed_at is not None
        return web.Response(text="ready" if is_ready else "listing", status=200 if is_ready else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        WRITES.set(self._context.kube.num_writes)
        return web.Response(body=render_metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def _alive(self, _: web.Request) -> web.Response:
        last = self._started_at if self._listed_at is None else self._listed_at
        silence_s = self._context.clock.monotonic() - last
        is_alive = silence_s < LONGEST_SILENCE_S
        return web.Response(text=f"listed {silence_s:.0f} s ago", status=200 if is_alive else 503)
