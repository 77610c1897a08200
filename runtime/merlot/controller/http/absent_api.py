"""Pinot's paths that Merlot does not have. They answer 404, as any path that does not exist, and say what to ask
instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from merlot.controller.http.responses import error_answer
from merlot.errors import NotFoundError
from merlot.http.described import describe
from merlot.http.door import PUBLIC

_NO_ZOOKEEPER: Final = "the metastore is not Pinot's tree: ask /tables/{table}/idealstate, /externalview or /status"
_NO_USERS: Final = "users are in the access document (--access), which is a file: change it there"
_NO_TASKS: Final = "minions have no task queues by type: ask /rollups, /status or /segments/{table}/lineage"

_NO_MANUAL_INSTANCES: Final = (
    "instances come and go with their processes: POST /instances/{instance}/drain has one left alone"
)
_NO_TIME_SERIES: Final = "there is no time series engine: group by time in SQL"
_NO_LOGICAL: Final = "there are no logical tables: a table of two parts is hybrid"
_OWN_PASSES: Final = "the controller does everything in each pass of its loop: nothing has to be started; ask /status"

ABSENT: Final = {
    "GET /zk/ls": _NO_ZOOKEEPER,
    "GET /zk/lsl": _NO_ZOOKEEPER,
    "GET /zk/get": _NO_ZOOKEEPER,
    "GET /zk/stat": _NO_ZOOKEEPER,
    "PUT /zk/put": _NO_ZOOKEEPER,
    "DELETE /zk/delete": _NO_ZOOKEEPER,
    "GET /users": _NO_USERS,
    "POST /users": _NO_USERS,
    "GET /users/{username}": _NO_USERS,
    "PUT /users/{username}": _NO_USERS,
    "DELETE /users/{username}": _NO_USERS,
    "GET /tasks/tasktypes": _NO_TASKS,
    "POST /tasks/schedule": _NO_TASKS,
    "POST /tasks/execute": _NO_TASKS,
    "GET /tasks/{type}/tasks": _NO_TASKS,
    "GET /tasks/{type}/taskstates": _NO_TASKS,
    "GET /tasks/{type}/state": _NO_TASKS,
    "GET /periodictask/names": _OWN_PASSES,
    "GET /periodictask/run": _OWN_PASSES,
    "GET /logicalTables": _NO_LOGICAL,
    "POST /logicalTables": _NO_LOGICAL,
    "GET /timeseries/languages": _NO_TIME_SERIES,
    "POST /query/timeseries": _NO_TIME_SERIES,
    "GET /tables/{table}/indexes": "servers count no indexes by column: GET /tables/{table} tells which are declared",
    "GET /debug/tables/{table}": "ask /tables/{table}/segmentsStatus, /consumingSegmentsInfo or /status",
    "GET /debug/segments/{table}/{segment}": (
        "ask /tables/{table}/segmentsStatus or /segments/{table}/{segment}/metadata"
    ),
    "GET /segments/segmentReloadStatus/{job}": "servers reload by themselves: ask /tables/{table}/segmentsStatus",
    "GET /segments/{table}/servers": "ask /tables/{table}/externalview or /segments/{table}/metadata",
    "GET /segments/{table}/crc": "ask /segments/{table}/metadata",
    "GET /segments/{table}/zkmetadata": "ask /segments/{table}/metadata",
    "GET /segments/{table}/tiers": "there is one tier of servers: ask /segments/{table}/metadata",
    "GET /segments/{table}/{segment}": (
        "a segment's file is in the deep store: ask /segments/{table}/{segment}/metadata, or /openapi.json for paths"
    ),
    "POST /instances": _NO_MANUAL_INSTANCES,
    "PUT /instances/{instance}": _NO_MANUAL_INSTANCES,
    "DELETE /instances/{instance}": _NO_MANUAL_INSTANCES,
    "PUT /instances/{instance}/state": _NO_MANUAL_INSTANCES,
    "PUT /instances/{instance}/updateTags": "a server's tenant is a setting of its process (--tenant)",
    "POST /tenants": "a tenant is there once a server of it is, or a table names it",
    "PUT /tenants": "a tenant is there once a server of it is, or a table names it",
    "DELETE /tenants/{tenant}": "a tenant is gone once no server is of it and no table names it",
    "GET /help": "the paths are in /openapi.json, and in docs/clients.md",
    "POST /cluster/configs": "the cluster keeps no settings: each process has its own",
}
"""Reason and alternative, by method and path."""


def routes() -> list[web.RouteDef]:
    """Return all of these routes."""
    split = [(*route.split(" ", 1), reason) for route, reason in ABSENT.items()]
    return [_route(method, path, _absent(reason)) for method, path, reason in split]


def _route(method: str, path: str, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.RouteDef:
    # HEAD comes with GET.
    return web.get(path, handler) if method == "GET" else web.route(method, path, handler)


def _absent(reason: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    @describe(answer=None, right=PUBLIC)
    async def not_there(request: web.Request) -> web.StreamResponse:
        return error_answer(NotFoundError(f"not there path={request.path}; {reason}"))

    not_there.__doc__ = f"Not there: {reason}."
    return not_there
