"""Cursors of other brokers. A cursor's id ends in the broker that keeps it: whoever is asked for it asks that one.

Only brokers that the metastore tells of are called, whatever an id says. A request that was passed on is answered by
its receiver alone, so that none goes round.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import web

from merlot.cluster.records import InstanceRecord
from merlot.errors import NotFoundError, UnavailableError
from merlot.ids import InstanceId

PASSED_ON_HEADER: Final = "X-Merlot-Passed-On"
_PREFIX: Final = "Broker_"
_CONNECT_S: Final = 5.0
_TOTAL_S: Final = 300.0
_LIST_S: Final = 10.0
_CHUNK_BYTES: Final = 1 << 18
_KEPT_HEADERS: Final = ("Content-Type", "X-Pinot-Error-Code")

LiveBrokers = Callable[[], Awaitable[Mapping[InstanceId, InstanceRecord]]]


def cursor_id(broker_id: str) -> str:
    """Draw an id that nobody guesses: `{number}_{host}_{port}`."""
    return f"{secrets.randbits(63)}_{broker_id.removeprefix(_PREFIX)}"


def owner_of(wanted: str) -> InstanceId:
    """The broker that an id names; NotFoundError of a text that is none."""
    number, _, owner = wanted.partition("_")
    if not number.isdecimal() or not owner:
        raise NotFoundError(f"no such cursor: its id is number_host_port requestId={wanted:.200}")
    return InstanceId(_PREFIX + owner)


def is_passed_on(request: web.Request) -> bool:
    """Whether another broker asks for what is kept here."""
    return PASSED_ON_HEADER in request.headers


async def pass_on(request: web.Request, owner: InstanceId, brokers: LiveBrokers) -> web.StreamResponse:
    """Have the owner answer, its rows passed through as they come. NotFoundError if it is gone, and its cursors with
    it; UnavailableError if it is announced and cannot be reached."""
    record = (await brokers()).get(owner)
    if record is None:
        raise NotFoundError(
            f"the broker that kept this cursor is gone, and its cursors with it: run the query again broker={owner}"
        )
    timeout = aiohttp.ClientTimeout(total=_TOTAL_S, connect=_CONNECT_S)
    url = _url(record) + request.rel_url.raw_path_qs
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(request.method, url, headers={PASSED_ON_HEADER: "1"}, allow_redirects=False) as answer,
        ):
            return await _passed_through(request, answer)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UnavailableError(f"the broker that keeps this cursor cannot be reached broker={owner}") from error


async def lists_of_others(own: str, brokers: LiveBrokers) -> list[Any]:
    """Summaries of the cursors that all other live brokers keep. UnavailableError if one of them does not tell."""
    others = [record for name, record in sorted((await brokers()).items()) if name != own]
    timeout = aiohttp.ClientTimeout(total=_LIST_S, connect=_CONNECT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        lists = await asyncio.gather(*(_list(session, record) for record in others))
    return [summary for one in lists for summary in one]


async def _list(session: aiohttp.ClientSession, record: InstanceRecord) -> list[Any]:
    try:
        async with session.get(f"{_url(record)}/responseStore", headers={PASSED_ON_HEADER: "1"}) as answer:
            answer.raise_for_status()
            found: list[Any] = orjson.loads(await answer.read())
            return found
    except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
        raise UnavailableError(f"a broker does not tell which cursors it keeps broker={record.id}") from error


def _url(record: InstanceRecord) -> str:
    host = f"[{record.host}]" if ":" in record.host else record.host
    return f"http://{host}:{record.http_port}"


async def _passed_through(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    kept = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=kept)
    response.content_length = answer.content_length
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
            await response.write(chunk)
    except (aiohttp.ClientError, TimeoutError):
        # The head is sent: all that is left to say is that the body is not whole.
        if request.transport is not None:
            request.transport.abort()
    return response
