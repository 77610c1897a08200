"""HTTP endpoints of a server: those of every role, and `/tables`, which shows people what the server holds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from aiohttp import web

from merlot.http.described import OBJECT, describe
from merlot.http.door import READING, of_cluster
from merlot.http.health import health_routes, readiness_of
from merlot.http.process import process_routes
from merlot.server.table_data_manager import TableDataManager


@dataclass(frozen=True, slots=True)
class HealthSources:
    """Sources of the answers. `not_ready` returns why no other server should be stopped yet, or None; `managers`
    returns the managers of the tables."""

    not_ready: Callable[[], str | None]
    managers: Callable[[], Collection[TableDataManager]]


def make_app(sources: HealthSources) -> web.Application:
    """Make the app with health, metrics, process information, and `/tables`: what is loaded of each table, and what
    failed."""

    @describe(answer=OBJECT, right=of_cluster(*READING))
    async def tables(_: web.Request) -> web.Response:
        return web.json_response({manager.table: _describe(manager) for manager in sources.managers()})

    app = web.Application()
    health = health_routes(readiness_of(sources.not_ready))
    app.add_routes([*health, *process_routes(), web.get("/tables", tables)])
    return app


def _describe(manager: TableDataManager) -> dict[str, object]:
    failures = {key: failure.message for key, failure in manager.failures.items()}
    return {"loaded": sorted(manager.segments.keys), "errors": failures, "isSettled": manager.is_settled}
