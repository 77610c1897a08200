"""MergeRollupTasks and UpsertConfigs over HTTP."""

from __future__ import annotations

import asyncio

from aiohttp import web

from merlot.controller.http import answers
from merlot.controller.http.responses import answered, json_answer
from merlot.controller.merges.service import MergeService
from merlot.http.described import describe, record
from merlot.http.door import READING, identity_of, may, of_any, of_table, sees, sees_whole
from merlot.security.access import Right
from merlot.security.door import refusal


def routes(service: MergeService) -> list[web.RouteDef]:
    """Return all routes."""
    api = _MergeApi(service)
    return [
        web.get("/rollups", api.rollups),
        web.get("/rollups/{name}", api.rollup),
        web.post("/rollups/{name}/run", api.run),
        web.delete("/rollups/{name}", api.delete_rollup),
        web.get("/upserts", api.upserts),
        web.get("/upserts/{name}", api.upsert),
        web.delete("/upserts/{name}", api.delete_upsert),
    ]


class _MergeApi:
    """Handlers over one service. A merge task belongs to whoever manages its table, an upsert config to whoever manages
    tables of its own name."""

    def __init__(self, service: MergeService) -> None:
        self._service = service

    @answered
    @describe(answer=answers.ROLLUPS, right=of_any(*READING))
    async def rollups(self, request: web.Request) -> web.Response:
        rollups = await asyncio.to_thread(self._service.rollups)
        return json_answer({"rollups": [rollup for rollup in rollups if sees_whole(request, rollup["table"])]})

    @answered
    @describe(answer=answers.ROLLUP, right=of_any(*READING))
    async def rollup(self, request: web.Request) -> web.Response:
        """A task with its manifest."""
        rollup = await asyncio.to_thread(self._service.rollup, request.match_info["name"])
        if not sees_whole(request, rollup["table"]):
            raise refusal(identity_of(request), Right.MANAGE, None)
        return json_answer(rollup)

    @answered
    @describe(
        answer=record({"queued": answers.NAMES, "cancelled": answers.NAMES, "retried": answers.NAMES}),
        right=of_any(Right.MANAGE),
    )
    async def run(self, request: web.Request) -> web.Response:
        name = await self._managed_rollup(request)
        return json_answer(await asyncio.to_thread(self._service.run, name))

    @answered
    @describe(answer=answers.STATUS, right=of_any(Right.MANAGE))
    async def delete_rollup(self, request: web.Request) -> web.Response:
        name = await self._managed_rollup(request)
        await asyncio.to_thread(self._service.delete_rollup, name)
        return json_answer({"status": f"MergeRollupTask {name} deleted"})

    @answered
    @describe(answer=answers.UPSERTS, right=of_any(*READING))
    async def upserts(self, request: web.Request) -> web.Response:
        upserts = await asyncio.to_thread(self._service.upserts)
        return json_answer({"upserts": [upsert for upsert in upserts if sees(request, upsert["name"])]})

    @answered
    @describe(answer=answers.UPSERT, right=of_table(*READING, parameter="name", is_whole=True))
    async def upsert(self, request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.upsert, request.match_info["name"]))

    @answered
    @describe(answer=answers.STATUS, right=of_table(Right.MANAGE, parameter="name"))
    async def delete_upsert(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await asyncio.to_thread(self._service.delete_upsert, name)
        return json_answer({"status": f"UpsertConfig {name} deleted"})

    async def _managed_rollup(self, request: web.Request) -> str:
        """Return the name of a MergeRollupTask whose table the caller may manage. Raise AccessDeniedError otherwise."""
        name = request.match_info["name"]
        if not may(request, Right.MANAGE, await asyncio.to_thread(self._service.table_of, name)):
            raise refusal(identity_of(request), Right.MANAGE, None)
        return name
