"""A server's HTTP side: what every role has, and what it holds, for people."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from aiohttp import web

from merlot.http.health import health_routes, readiness_of
from merlot.http.process import process_routes
from merlot.server.keeper import TableKeeper


@dataclass(frozen=True, slots=True)
class HealthSources:
    """`not_ready` tells why another server should not stop for this one, or None; `keepers` are the tables."""

    not_ready: Callable[[], str | None]
    keepers: Callable[[], Collection[TableKeeper]]


def make_app(sources: HealthSources) -> web.Application:
    """Health, metrics, what tells of the process, and `/tables`: what is loaded of each, and what could not be."""

    async def tables(_: web.Request) -> web.Response:
        return web.json_response({keeper.table: _describe(keeper) for keeper in sources.keepers()})

    app = web.Application()
    health = health_routes(readiness_of(sources.not_ready))
    app.add_routes([*health, *process_routes(), web.get("/tables", tables)])
    return app


def _describe(keeper: TableKeeper) -> dict[str, object]:
    failures = {key: failure.message for key, failure in keeper.failures.items()}
    return {"loaded": sorted(keeper.segments.keys), "errors": failures, "isSettled": keeper.is_settled}
