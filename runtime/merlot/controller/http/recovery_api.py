"""Paths that restore what a table has lost."""

from __future__ import annotations

import asyncio
from functools import partial

import orjson
from aiohttp import web

from merlot.controller.http import answers
from merlot.controller.http.responses import answered, flag, json_answer, segment_names
from merlot.controller.recovery import Recovery
from merlot.http.described import FLAG, describe, query, record
from merlot.http.door import READING, of_cluster, of_table
from merlot.security.access import Right
from merlot.uris import redact


def routes(recovery: Recovery) -> list[web.RouteDef]:
    """Return all routes."""
    api = _Recovery(recovery)
    return [
        web.get("/undeclared", api.undeclared),
        web.post("/tables/{table}/recover", api.recover),
        web.get("/tables/{table}/trash", api.trash),
        web.post("/tables/{table}/undelete", api.undelete),
    ]


class _Recovery:
    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery

    @answered
    @describe(answer=answers.UNDECLARED, right=of_cluster(Right.ADMIN))
    async def undeclared(self, _: web.Request) -> web.Response:
        """Tables that the deep store has files and manifests of, but the metastore does not know: it has lost them."""
        body = orjson.dumps(await asyncio.to_thread(self._recovery.undeclared))
        # Manifests from before such URIs were refused may contain credentials.
        return web.Response(text=redact(body.decode()), content_type="application/json")

    @answered
    @describe(
        query("acceptLoss", "Go on without what cannot be brought back.", FLAG),
        query("fromFooters", "With every segment file of the table's folder.", FLAG),
        answer=answers.RECOVERED,
        right=of_table(Right.MANAGE),
    )
    async def recover(self, request: web.Request) -> web.Response:
        """Have a lost table answer again. `?acceptLoss=true`: without what cannot be brought back;
        `?fromFooters=true`: with every segment file of its folder."""
        call = partial(
            self._recovery.recover,
            request.match_info["table"],
            accept_loss=flag(request, "acceptLoss"),
            from_footers=flag(request, "fromFooters"),
        )
        return json_answer(await asyncio.to_thread(call))

    @answered
    @describe(answer=answers.TRASH, right=of_table(*READING))
    async def trash(self, request: web.Request) -> web.Response:
        """Segments whose files are in the trash."""
        return json_answer(await asyncio.to_thread(self._recovery.trash, request.match_info["table"]))

    @answered
    @describe(body=answers.NAMES, answer=record({"restored": answers.NAMES}), right=of_table(Right.MANAGE))
    async def undelete(self, request: web.Request) -> web.Response:
        """Bring back the segments of a JSON array of names."""
        names = await segment_names(request)
        return json_answer(await asyncio.to_thread(self._recovery.undelete, request.match_info["table"], names))
