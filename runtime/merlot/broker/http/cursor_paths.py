"""Serve cursors: `?getCursor=true` on a query, and Pinot's `/responseStore`. Any broker answers for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import orjson
from aiohttp import web

from merlot.broker.cursors import ResponseStore, StoredAnswer, page_offset, page_size
from merlot.broker.http import answers
from merlot.broker.http.cursor_owners import (
    LiveBrokers,
    broker_of,
    cursor_id,
    is_passed_on,
    lists_of_others,
    pass_on,
)
from merlot.broker.http.queries import ERROR_CODE_HEADER, Asker, HttpAnswer, answer_of, status_of
from merlot.broker.queries import Answers
from merlot.broker.query_errors import NO_ERROR, QueryException
from merlot.broker.response import BrokerAnswer
from merlot.errors import InvalidInputError, MerlotError, NotFoundError, UnavailableError
from merlot.http.described import TEXT, WHOLE, describe, query, record
from merlot.http.door import of_any, owner_of
from merlot.security.access import Right

INLINE_ROWS: Final = 1_000
"""Most rows of a page that is written on the event loop; larger pages are written in a thread."""


def wants_cursor(query: Mapping[str, str]) -> bool:
    """Return True if the answer is to be kept, and only its first page sent."""
    return query.get("getCursor", "").lower() == "true"


class CursorPaths:
    """Handlers for the cursors of this broker's store and of the other brokers."""

    def __init__(self, broker: Answers, store: ResponseStore, brokers: LiveBrokers) -> None:
        self._broker = broker
        self._store = store
        self._brokers = brokers

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        return [
            web.get("/responseStore", self.cursors),
            web.get("/responseStore/{id}", self.cursor),
            web.get("/responseStore/{id}/", self.cursor),
            web.get("/responseStore/{id}/results", self.page),
            web.delete("/responseStore/{id}", self.delete_cursor),
            web.delete("/responseStore/{id}/", self.delete_cursor),
        ]

    async def begin(self, request: web.Request, fields: object, asker: Asker) -> HttpAnswer:
        """Run a query, keep its answer, and return the first page. If it fails, return the error and keep nothing."""
        try:
            num_rows = page_size(request.query.get("numRows"))
        except InvalidInputError as error:
            return _refused(BrokerAnswer.refusal(self._broker.broker_id, QueryException.of(error)), asker)
        answer = await answer_of(self._broker, fields, asker, by_column=True)
        if isinstance(answer, HttpAnswer):
            return answer
        if answer.exceptions or answer.result is None:
            return _refused(answer, asker)
        answer.request_id = cursor_id(self._broker.broker_id)
        try:
            stored = self._store.keep(answer, request.remote or "", asker.identity.name)
        except MerlotError as error:
            answer.exceptions, answer.result = (QueryException.of(error),), None
            return _refused(answer, asker)
        return HttpAnswer(200, NO_ERROR, await _page(stored, 0, num_rows))

    @describe(answer=answers.CURSORS, right=of_any(Right.QUERY))
    async def cursors(self, request: web.Request) -> web.StreamResponse:
        """Cursors that are kept, by all brokers: the caller's own, of an administrator everybody's."""

        async def read() -> web.Response:
            summaries = [stored.summary() for stored in self._store.all(owner_of(request))]
            if not is_passed_on(request):
                summaries += await lists_of_others(request, self._broker.broker_id, self._brokers)
            return _json(orjson.dumps(summaries))

        return await _found(read)

    @describe(answer=answers.HEAD, right=of_any(Right.QUERY))
    async def cursor(self, request: web.Request) -> web.StreamResponse:
        """An answer that is kept, without its rows."""

        async def read() -> web.Response:
            return _json(self._store.get(request.match_info["id"], owner_of(request)).head())

        return await self._by_owner(request, read)

    @describe(
        query("offset", "The first row of the page.", WHOLE),
        query("numRows", "Rows of the page.", WHOLE),
        answer=answers.PAGE,
        right=of_any(Right.QUERY),
    )
    async def page(self, request: web.Request) -> web.StreamResponse:
        """`?offset=&numRows=`: some rows of an answer that is kept."""

        async def read() -> web.Response:
            stored = self._store.get(request.match_info["id"], owner_of(request))
            offset, num_rows = page_offset(request.query.get("offset")), page_size(request.query.get("numRows"))
            return _json(await _page(stored, offset, num_rows))

        return await self._by_owner(request, read)

    @describe(answer=record({"deleted": TEXT}), right=of_any(Right.QUERY))
    async def delete_cursor(self, request: web.Request) -> web.StreamResponse:
        """Forget an answer."""

        async def delete() -> web.Response:
            self._store.delete(request.match_info["id"], owner_of(request))
            return _json(orjson.dumps({"deleted": request.match_info["id"]}))

        return await self._by_owner(request, delete)

    async def _by_owner(
        self, request: web.Request, read: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Answer from this broker's store if it keeps the cursor, otherwise through the broker that does."""

        async def answer() -> web.StreamResponse:
            owner = broker_of(request.match_info["id"])
            if owner == self._broker.broker_id or is_passed_on(request):
                return await read()
            return await pass_on(request, owner, self._brokers)

        return await _found(answer)


async def _page(stored: StoredAnswer, offset: int, num_rows: int) -> bytes:
    if min(num_rows, stored.num_rows) > INLINE_ROWS:
        return await asyncio.to_thread(stored.page, offset, num_rows)
    return stored.page(offset, num_rows)


async def _found(read: Callable[[], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    try:
        return await read()
    except NotFoundError as error:
        raise web.HTTPNotFound(text=str(error)) from error
    except InvalidInputError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    except UnavailableError as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from error


def _refused(answer: BrokerAnswer, asker: Asker) -> HttpAnswer:
    return HttpAnswer(status_of(answer, asker), answer.error_code, answer.to_bytes())


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json", headers={ERROR_CODE_HEADER: str(NO_ERROR)})
