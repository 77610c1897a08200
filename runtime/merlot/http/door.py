"""Have each route say which right it needs, and refuse requests that lack it, before the handler and the body.

A handler that learns its table from the body asks `authorize` itself. Routes that say nothing are refused once there is
an access document. Errors have the shape of Pinot's: `{"code": 403, "error": …}`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import orjson
from aiohttp import web

from merlot.errors import AccessDeniedError, NotAuthenticatedError, UnavailableError
from merlot.security import credentials
from merlot.security.access import ANONYMOUS, Identity, Right
from merlot.security.door import Door, check, check_any, refusal

DOOR: Final = web.AppKey("door", Door)
CHALLENGE: Final = 'Basic realm="merlot", charset="UTF-8"'
_IDENTITY: Final = "merlot.identity"


class Scope(Enum):
    """What a route's right is about, if not about the table in its path."""

    CLUSTER = "cluster"
    """The whole cluster."""
    ANY_TABLE = "any table"
    """At least one table; the handler looks at the tables themselves."""


@dataclass(frozen=True, slots=True)
class RouteRight:
    """Right that a request to a route needs. None: everybody may ask, and nobody is identified."""

    right: Right | None
    scope: Scope | str
    """A text is the path's parameter that names the table."""


PUBLIC: Final = RouteRight(None, Scope.CLUSTER)


def of_table(right: Right, parameter: str = "table") -> RouteRight:
    """Return the right to the table that the path names."""
    return RouteRight(right, parameter)


def of_cluster(right: Right) -> RouteRight:
    """Return the right to the whole cluster."""
    return RouteRight(right, Scope.CLUSTER)


def of_any(right: Right) -> RouteRight:
    """Return the right to at least one table. The handler leaves out, or refuses, the others."""
    return RouteRight(right, Scope.ANY_TABLE)


async def admitted(request: web.Request, needed: RouteRight | None) -> web.Response | None:
    """Return the refusal of a request, None if it may go on; then `identity_of` knows who asks."""
    door = request.config_dict.get(DOOR)
    if door is None or door.is_open or needed is PUBLIC:
        return None
    try:
        request[_IDENTITY] = identity = await _identify(request, door)
        if needed is None or needed.right is None:
            raise refusal(identity, Right.ADMIN, None)
        _check(request, door, identity, needed, needed.right)
    except AccessDeniedError as error:
        return refused(error)
    except UnavailableError as error:
        return _answer(503, str(error), {"Retry-After": "1"})
    return None


def identity_of(request: web.Request) -> Identity:
    """Return who asks."""
    identity: Identity = request.get(_IDENTITY, ANONYMOUS)
    return identity


def authorize(request: web.Request, right: Right, table: str | None) -> None:
    """Raise AccessDeniedError if the caller lacks a right to a table, or, for None, to the cluster."""
    door = request.config_dict.get(DOOR)
    if door is not None:
        check(door.access, identity_of(request), right, table)


def may(request: web.Request, right: Right, table: str | None) -> bool:
    """Return True if the caller has a right to a table, or, for None, to the cluster."""
    door = request.config_dict.get(DOOR)
    return door is None or door.access.allows(identity_of(request), right, table)


def seen(request: web.Request, tables: Iterable[str]) -> list[str]:
    """Return those tables of a list that the caller may query, insert into, or manage."""
    return [table for table in tables if any(may(request, right, table) for right in Right)]


def refused(error: AccessDeniedError) -> web.Response:
    """Return the answer to a caller who may not: 401 if they have not proved who they are, otherwise 403."""
    if isinstance(error, NotAuthenticatedError):
        return _answer(401, str(error), {"WWW-Authenticate": CHALLENGE})
    return _answer(403, str(error), {})


async def _identify(request: web.Request, door: Door) -> Identity:
    values = request.headers.getall("Authorization", [])
    if len(values) > 1:
        raise NotAuthenticatedError("there are several Authorization headers: send one")
    transport = request.transport
    if values:
        credential: credentials.Credential | None = credentials.of_header(values[0])
    else:
        peer = None if transport is None else transport.get_extra_info("peercert")
        credential = credentials.of_certificate(peer)
    return (await door.identify(credential, request.remote or "")).identity


def _check(request: web.Request, door: Door, identity: Identity, needed: RouteRight, right: Right) -> None:
    match needed.scope:
        case Scope.CLUSTER:
            check(door.access, identity, right, None)
        case Scope.ANY_TABLE:
            check_any(door.access, identity, right)
        case parameter:
            check(door.access, identity, right, request.match_info[parameter])


def _answer(status: int, text: str, headers: dict[str, str]) -> web.Response:
    body = orjson.dumps({"code": status, "error": text})
    response = web.Response(status=status, body=body, content_type="application/json", headers=headers)
    response.force_close()  # the body was not read
    return response
