"""Pass requests for cursors on to the brokers that keep them. A cursor's id ends in its broker's host and port.

Only brokers that the metastore knows are called, whatever an id says. A request that was passed on is answered by its
receiver alone, so that none goes round in circles.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import web

from merlot.cluster.records import InstanceRecord
from merlot.errors import NotFoundError, UnavailableError
from merlot.http.door import passed_credentials
from merlot.http.tls_door import tls_of
from merlot.ids import InstanceId
from merlot.uris import http_url

PASSED_ON_HEADER: Final = "X-Merlot-Passed-On"
_PREFIX: Final = "Broker_"
_CONNECT_S: Final = 5.0
_TOTAL_S: Final = 300.0
_LIST_S: Final = 10.0
_CHUNK_BYTES: Final = 1 << 18
_KEPT_HEADERS: Final = ("Content-Type", "X-Pinot-Error-Code")

LiveBrokers = Callable[[], Awaitable[Mapping[InstanceId, InstanceRecord]]]


def cursor_id(broker_id: str) -> str:
    """Return a random id that cannot be guessed: `{number}_{host}_{port}`."""
    return f"{secrets.randbits(63)}_{broker_id.removeprefix(_PREFIX)}"


def broker_of(wanted: str) -> InstanceId:
    """Return the broker that an id names. Raise NotFoundError if the text is no id."""
    number, _, owner = wanted.partition("_")
    if not number.isdecimal() or not owner:
        raise NotFoundError(f"no such cursor: its id is number_host_port requestId={wanted:.200}")
    return InstanceId(_PREFIX + owner)


def is_passed_on(request: web.Request) -> bool:
    """Return True if another broker has passed the request on to this one."""
    return PASSED_ON_HEADER in request.headers


async def pass_on(request: web.Request, owner: InstanceId, brokers: LiveBrokers) -> web.StreamResponse:
    """Let the owner answer, and pass its rows through as they come. Raise NotFoundError if the owner is gone, and its
    cursors with it; UnavailableError if it is registered and cannot be reached."""
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
            session.request(
                request.method,
                url,
                headers=_passed_headers(request),
                allow_redirects=False,
                ssl=tls_of(request.app),
            ) as answer,
        ):
            return await _passed_through(request, answer)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UnavailableError(f"the broker that keeps this cursor cannot be reached broker={owner}") from error


async def lists_of_others(request: web.Request, own: str, brokers: LiveBrokers) -> list[Any]:
    """Return the summaries of the caller's cursors that all other live brokers keep. A broker that refuses the caller
    adds none: it does not know those who have only shown a certificate. Raise UnavailableError if a broker does not
    answer."""
    others = [record for name, record in sorted((await brokers()).items()) if name != own]
    timeout = aiohttp.ClientTimeout(total=_LIST_S, connect=_CONNECT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        lists = await asyncio.gather(*(_list(session, record, request) for record in others))
    return [summary for summaries in lists for summary in summaries]


async def _list(session: aiohttp.ClientSession, record: InstanceRecord, request: web.Request) -> list[Any]:
    url, tls = f"{_url(record)}/responseStore", tls_of(request.app)
    try:
        async with session.get(url, headers=_passed_headers(request), allow_redirects=False, ssl=tls) as answer:
            if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                return []
            answer.raise_for_status()
            summaries: list[Any] = orjson.loads(await answer.read())
            return summaries
    except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
        raise UnavailableError(f"a broker does not tell which cursors it keeps broker={record.id}") from error


def _passed_headers(request: web.Request) -> dict[str, str]:
    return {PASSED_ON_HEADER: "1", **passed_credentials(request)}


def _url(record: InstanceRecord) -> str:
    return http_url(record.host, record.http_port, tls=record.tls)


async def _passed_through(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = answer.content_length
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
            await response.write(chunk)
    except (aiohttp.ClientError, TimeoutError):
        # The head is sent; only breaking off can now show that the body is incomplete.
        if request.transport is not None:
            request.transport.abort()
    return response
