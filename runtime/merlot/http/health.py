"""HTTP paths that every process serves for probes and Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from merlot import telemetry
from merlot.http.described import PLAIN, TEXT, describe
from merlot.http.door import PUBLIC, READING, of_cluster

OK: Final = "OK"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def health_routes(readiness: Handler) -> list[web.RouteDef]:
    """Return the routes. `/health` and `/health/readiness` call `readiness`; `/health/liveness` answers OK while the
    event loop runs; `/metrics` is for Prometheus."""
    return [
        web.get("/health", readiness),
        web.get("/health/readiness", readiness),
        web.get("/health/liveness", liveness),
        web.get("/metrics", metrics),
    ]


def readiness_of(unready_reason: Callable[[], str | None]) -> Handler:
    """Return a handler that answers OK if `unready_reason` returns None, else 503 with the reason."""

    @describe(answer=TEXT, media_type=PLAIN, right=PUBLIC)
    async def readiness(_: web.Request) -> web.Response:
        reason = unready_reason()
        return web.Response(text=OK) if reason is None else web.Response(text=reason, status=503)

    return readiness


@describe(answer=TEXT, media_type=PLAIN, right=PUBLIC)
async def liveness(_: web.Request) -> web.Response:
    """OK: who can answer at all is alive."""
    return web.Response(text=OK)


@describe(answer=TEXT, media_type=PLAIN, right=of_cluster(*READING))
async def metrics(_: web.Request) -> web.Response:
    """The process's metrics."""
    return web.Response(body=telemetry.render_metrics(), headers={"Content-Type": telemetry.CONTENT_TYPE})
