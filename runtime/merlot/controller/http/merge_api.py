"""MergeRollupTasks and UpsertConfigs over HTTP."""

from __future__ import annotations

import asyncio

from aiohttp import web

from merlot.controller.http import answers
from merlot.controller.http.responses import answered, json_answer
from merlot.controller.merges.service import MergeService
from merlot.http.described import describe, record
from merlot.http.door import READING, of_any
from merlot.security.access import Right


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
    """Handlers over one service."""

    def __init__(self, service: MergeService) -> None:
        self._service = service

    @answered
    @describe(answer=answers.ROLLUPS, right=of_any(*READING))
    async def rollups(self, _request: web.Request) -> web.Response:
        return json_answer({"rollups": await asyncio.to_thread(self._service.rollups)})

    @answered
    @describe(answer=answers.ROLLUP, right=of_any(*READING))
    async def rollup(self, request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.rollup, request.match_info["name"]))

    @answered
    @describe(
        answer=record({"queued": answers.NAMES, "cancelled": answers.NAMES, "retried": answers.NAMES}),
        right=of_any(Right.MANAGE),
    )
    async def run(self, request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.run, request.match_info["name"]))

    @answered
    @describe(answer=answers.STATUS, right=of_any(Right.MANAGE))
    async def delete_rollup(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await asyncio.to_thread(self._service.delete_rollup, name)
        return json_answer({"status": f"MergeRollupTask {name} deleted"})

    @answered
    @describe(answer=answers.UPSERTS, right=of_any(*READING))
    async def upserts(self, _request: web.Request) -> web.Response:
        return json_answer({"upserts": await asyncio.to_thread(self._service.upserts)})

    @answered
    @describe(answer=answers.UPSERT, right=of_any(*READING))
    async def upsert(self, request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.upsert, request.match_info["name"]))

    @answered
    @describe(answer=answers.STATUS, right=of_any(Right.MANAGE))
    async def delete_upsert(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await asyncio.to_thread(self._service.delete_upsert, name)
        return json_answer({"status": f"UpsertConfig {name} deleted"})
