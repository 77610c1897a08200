"""A server's HTTP side: health for probes, metrics for Prometheus, and what it holds, for people."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from merlot import telemetry
from merlot.server.keeper import TableKeeper

OK: Final = "OK"


@dataclass(frozen=True, slots=True)
class HealthSources:
    """`not_ready` tells why another server should not stop for this one, or None; `keepers` are the tables."""

    not_ready: Callable[[], str | None]
    keepers: Callable[[], Collection[TableKeeper]]


def make_app(sources: HealthSources) -> web.Application:
    """`/health` and `/health/readiness`: OK or 503 and the reason; `/health/liveness`: OK while the loop turns."""

    async def readiness(_: web.Request) -> web.Response:
        reason = sources.not_ready()
        return web.Response(text=OK) if reason is None else web.Response(text=reason, status=503)

    async def liveness(_: web.Request) -> web.Response:
        return web.Response(text=OK)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=telemetry.render_metrics(), headers={"Content-Type": telemetry.CONTENT_TYPE})

    async def tables(_: web.Request) -> web.Response:
        return web.json_response({keeper.table: _describe(keeper) for keeper in sources.keepers()})

    app = web.Application()
    app.router.add_get("/health", readiness)
    app.router.add_get("/health/readiness", readiness)
    app.router.add_get("/health/liveness", liveness)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/tables", tables)
    return app


def _describe(keeper: TableKeeper) -> dict[str, object]:
    failures = {key: failure.message for key, failure in keeper.failures.items()}
    return {"loaded": sorted(keeper.segments.keys), "errors": failures, "isSettled": keeper.is_settled}
