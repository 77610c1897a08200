"""Streams over HTTP: Merlot's list of partitions, and Pinot's paths to pause, go on and commit."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from aiohttp import web

from merlot.controller.http import answers
from merlot.controller.http.responses import answered, flag, json_answer
from merlot.controller.streams import StreamService
from merlot.errors import InvalidInputError
from merlot.http.described import FLAG, describe, query
from merlot.http.door import READING, of_table
from merlot.security.access import Right

_MOST_OFFSET: Final = 2**63 - 1
_MOST_DIGITS: Final = 19


def routes(service: StreamService) -> list[web.RouteDef]:
    """Return all routes."""
    api = _StreamApi(service)
    return [
        web.get("/tables/{table}/stream", api.partitions),
        web.get("/tables/{table}/consumingSegmentsInfo", api.partitions),
        web.get("/tables/{table}/upsert", api.keys),
        web.post("/tables/{table}/pauseConsumption", api.pause),
        web.post("/tables/{table}/resumeConsumption", api.resume),
        web.post("/tables/{table}/forceCommit", api.commit),
        web.post("/tables/{table}/consumeFrom", api.consume_from),
        web.get("/tables/{table}/backfill", api.backfill),
        web.post("/tables/{table}/backfill", api.begin_backfill),
        web.post("/tables/{table}/backfill/loaded", api.end_load),
        web.delete("/tables/{table}/backfill", api.cancel_backfill),
    ]


class _StreamApi:
    """Handlers over one service."""

    def __init__(self, service: StreamService) -> None:
        self._service = service

    @answered
    @describe(answer=answers.PARTITIONS, right=of_table(*READING))
    async def partitions(self, request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.partitions, request.match_info["table"]))

    @answered
    @describe(answer=answers.KEYS, right=of_table(*READING))
    async def keys(self, request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.keys, request.match_info["table"]))

    @answered
    @describe(answer=answers.PAUSED, right=of_table(Right.MANAGE))
    async def pause(self, request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.pause, request.match_info["table"], paused=True))

    @answered
    @describe(answer=answers.PAUSED, right=of_table(Right.MANAGE))
    async def resume(self, request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.pause, request.match_info["table"], paused=False))

    @answered
    @describe(
        query("partitions", "Numbers of partitions, with commas between; all if left out."),
        answer=answers.COMMITTED,
        right=of_table(Right.MANAGE),
    )
    async def commit(self, request: web.Request) -> web.Response:
        """`?partitions=0,3`: only these."""
        text = request.query.get("partitions", "")
        numbers = [_number(number) for number in text.split(",")] if text else None
        return json_answer(await asyncio.to_thread(self._service.commit, request.match_info["table"], numbers))

    @answered
    @describe(
        query("offsets", "Where partitions are read from, as 0:1200,3:0.", is_required=True),
        answer=answers.COMMITTED,
        right=of_table(Right.MANAGE),
    )
    async def consume_from(self, request: web.Request) -> web.Response:
        """`?offsets=0:1200,3:0`: where each of these partitions goes on."""
        offsets = _offsets(request.query.get("offsets", ""))
        return json_answer(await asyncio.to_thread(self._service.consume_from, request.match_info["table"], offsets))

    @answered
    @describe(answer=answers.BACKFILL, right=of_table(*READING))
    async def backfill(self, request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.backfill, request.match_info["table"]))

    @answered
    @describe(
        query("offsets", "Where partitions are read from, as 0:1200,3:0."),
        query("ignoreMemory", "Begin even if keys may not fit into memory.", FLAG),
        answer=answers.BACKFILL,
        right=of_table(Right.MANAGE),
    )
    async def begin_backfill(self, request: web.Request) -> web.Response:
        """`?offsets=0:1200,3:0`: where each of these partitions is read again; without: rows are produced anew."""
        text = request.query.get("offsets")
        ignores_memory = flag(request, "ignoreMemory")
        begin = partial(self._service.begin_backfill, ignores_memory=ignores_memory)
        offsets = None if text is None else _offsets(text)
        return json_answer(await asyncio.to_thread(begin, request.match_info["table"], offsets))

    @answered
    @describe(answer=answers.BACKFILL, right=of_table(Right.MANAGE))
    async def end_load(self, request: web.Request) -> web.Response:
        finish = partial(self._service.finish_backfill, cancelled=False)
        return json_answer(await asyncio.to_thread(finish, request.match_info["table"]))

    @answered
    @describe(answer=answers.BACKFILL, right=of_table(Right.MANAGE))
    async def cancel_backfill(self, request: web.Request) -> web.Response:
        finish = partial(self._service.finish_backfill, cancelled=True)
        return json_answer(await asyncio.to_thread(finish, request.match_info["table"]))


def _offsets(text: str) -> dict[int, int]:
    pairs = [pair.partition(":") for pair in text.split(",") if pair]
    return {_number(partition): _number(offset) for partition, _, offset in pairs}


def _number(text: str) -> int:
    digits = text.strip()
    # Count the digits first: Python refuses to convert thousands of them.
    if not digits.isdecimal() or len(digits) > _MOST_DIGITS or int(digits) > _MOST_OFFSET:
        raise InvalidInputError(f"not a whole number from 0 to {_MOST_OFFSET} got={text!r:.50}")
    return int(digits)
