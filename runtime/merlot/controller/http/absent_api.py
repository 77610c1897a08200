"""Pinot's paths that Merlot does not have: 404, as of any path that is not there, with what to ask instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from merlot.controller.http.responses import error_answer
from merlot.errors import NotFoundError

_NO_ZOOKEEPER: Final = "the metastore is not Pinot's tree: ask /tables/{table}/idealstate, /externalview or /status"
_NO_USERS: Final = "there are no users: whoever reaches a port may use it; let the network decide who does"
_NO_TASKS: Final = "minions have no task queues by type: ask /rollups, /status or /segments/{table}/lineage"

ABSENT: Final = {
    "/zk/ls": _NO_ZOOKEEPER,
    "/zk/lsl": _NO_ZOOKEEPER,
    "/zk/get": _NO_ZOOKEEPER,
    "/zk/stat": _NO_ZOOKEEPER,
    "/users": _NO_USERS,
    "/users/{username}": _NO_USERS,
    "/tasks/tasktypes": _NO_TASKS,
    "/tasks/{type}/tasks": _NO_TASKS,
    "/tasks/{type}/taskstates": _NO_TASKS,
    "/tasks/{type}/state": _NO_TASKS,
    "/periodictask/names": "the controller does everything in each pass of its loop: ask /status",
    "/periodictask/run": "the controller does everything in each pass of its loop: nothing has to be started",
    "/logicalTables": "there are no logical tables: a table of two parts is hybrid",
    "/timeseries/languages": "there is no time series engine: group by time in SQL",
    "/tables/{table}/indexes": "servers do not count indexes by column: GET /tables/{table} tells which are declared",
    "/debug/tables/{table}": "ask /tables/{table}/segmentsStatus, /consumingSegmentsInfo or /status",
    "/debug/segments/{table}/{segment}": "ask /tables/{table}/segmentsStatus or /segments/{table}/{segment}/metadata",
}
"""Path to what to do instead."""


def routes() -> list[web.RouteDef]:
    """All of them, for GET."""
    return [web.get(path, _absent(reason)) for path, reason in ABSENT.items()]


def _absent(reason: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def not_there(request: web.Request) -> web.StreamResponse:
        return error_answer(NotFoundError(f"not there path={request.path}; {reason}"))

    not_there.__doc__ = f"Not there: {reason}."
    return not_there
