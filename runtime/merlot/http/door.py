"""Have each route say which right it needs, and refuse requests that lack it, before the handler and the body.

A handler that learns its table from the body asks `authorize` itself. Routes that say nothing are refused once there is
an access document. Errors have the shape of Pinot's: `{"code": 403, "error": …}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import orjson
from aiohttp import web

from merlot.errors import AccessDeniedError, NotAuthenticatedError, UnavailableError
from merlot.security import credentials
from merlot.security.access import ANONYMOUS, AccessPolicy, Identity, Right
from merlot.security.door import Door, check, refusal

DOOR: Final = web.AppKey("door", Door)
CHALLENGE: Final = 'Basic realm="merlot", charset="UTF-8"'
ON_BEHALF_HEADER: Final = "X-Merlot-On-Behalf"
"""Marks a request that a process passes on for its caller. The certificate of such a connection is the process's, and
proves nothing about the caller."""
_IDENTITY: Final = web.RequestKey("identity", Identity)


class RightScope(Enum):
    """Subject of a route's right, unless that is the table in its path."""

    CLUSTER = "cluster"
    """The whole cluster."""
    ANY_TABLE = "any table"
    """At least one table; the handler looks at the tables themselves."""


@dataclass(frozen=True, slots=True)
class RouteRight:
    """Rights one of which a request to a route needs."""

    rights: frozenset[Right]
    scope: RightScope | str
    """A text is the path's parameter that names the table."""
    is_whole: bool = False
    """True: QUERY suffices only if rows and columns are neither left out nor masked, since the answer tells of them
    all."""

    def __str__(self) -> str:
        if self is PUBLIC:
            return "everybody"
        if self is IDENTIFIED:
            return "everybody without wrong credentials"
        rights = " or ".join(right for right in Right if right in self.rights)
        where = f"{{{self.scope}}}" if isinstance(self.scope, str) else self.scope.value
        return f"{rights} of {where}{', nothing hidden' if self.is_whole else ''}"


PUBLIC: Final = RouteRight(frozenset(), RightScope.CLUSTER)
"""Everybody may ask, and nobody is identified."""
IDENTIFIED: Final = RouteRight(frozenset(), RightScope.ANY_TABLE)
"""Everybody may ask whose credentials are not wrong; the handler decides about the answer."""
READING: Final = (Right.QUERY, Right.INSERT, Right.MANAGE)
"""Rights each of which lets one see what a table is."""


def of_table(*rights: Right, parameter: str = "table", is_whole: bool = False) -> RouteRight:
    """Return the right to the table that the path names: one of these suffices."""
    return RouteRight(frozenset(rights), parameter, is_whole)


def of_cluster(*rights: Right) -> RouteRight:
    """Return the right to the whole cluster: one of these suffices."""
    return RouteRight(frozenset(rights), RightScope.CLUSTER)


def of_any(*rights: Right) -> RouteRight:
    """Return the right to at least one table: one of these suffices. The handler leaves out, or refuses, the others."""
    return RouteRight(frozenset(rights), RightScope.ANY_TABLE)


def passed_credentials(request: web.Request) -> dict[str, str]:
    """Return the headers with which a request is passed on to another process, which verifies the caller itself."""
    passed = {name: request.headers[name] for name in ("Authorization",) if name in request.headers}
    return {ON_BEHALF_HEADER: "1", **passed}


async def admitted(request: web.Request, needed: RouteRight | None) -> web.Response | None:
    """Return the refusal of a request, None if it may go on; then `identity_of` knows who asks."""
    door = request.config_dict.get(DOOR)
    if door is None or door.is_open or needed is PUBLIC:
        return None
    try:
        request[_IDENTITY] = identity = await _identify(request, door)
        if needed is not IDENTIFIED:
            check_route(door.access, identity, needed, request.match_info)
    except AccessDeniedError as error:
        return refused_answer(error)
    except UnavailableError as error:
        return _answer(503, str(error), {"Retry-After": "1"})
    return None


def identity_of(request: web.Request) -> Identity:
    """Return who asks."""
    identity: Identity = request.get(_IDENTITY, ANONYMOUS)
    return identity


def check_route(access: AccessPolicy, identity: Identity, needed: RouteRight | None, path: Mapping[str, str]) -> None:
    """Raise AccessDeniedError if a caller may not ask a route. `path` has the parameters of the path."""
    if needed is None:
        raise refusal(identity, Right.ADMIN, None)
    table = path[needed.scope] if isinstance(needed.scope, str) else None
    if any(_has(access, identity, right, needed, table) for right in needed.rights):
        return
    raise refusal(identity, next((right for right in Right if right in needed.rights), Right.ADMIN), table)


def _has(access: AccessPolicy, identity: Identity, right: Right, needed: RouteRight, table: str | None) -> bool:
    if needed.scope is RightScope.ANY_TABLE:
        return access.allows_any(identity, right)
    if not access.allows(identity, right, table):
        return False
    if not needed.is_whole or right is not Right.QUERY or table is None:
        return True
    view = access.view(identity, table)
    return view is not None and view.is_whole


def authorize(request: web.Request, right: Right, table: str | None) -> None:
    """Raise AccessDeniedError if the caller lacks a right to a table, or, for None, to the cluster."""
    door = request.config_dict.get(DOOR)
    if door is not None and not door.is_open:
        check(door.access, identity_of(request), right, table)


def may(request: web.Request, right: Right, table: str | None) -> bool:
    """Return True if the caller has a right to a table, or, for None, to the cluster."""
    door = request.config_dict.get(DOOR)
    return door is None or door.is_open or door.access.allows(identity_of(request), right, table)


def may_any(request: web.Request, right: Right) -> bool:
    """Return True if the caller has a right to at least one table that may exist."""
    door = request.config_dict.get(DOOR)
    return door is None or door.is_open or door.access.allows_any(identity_of(request), right)


def is_guarded(request: web.Request) -> bool:
    """Return True if there is an access document."""
    door = request.config_dict.get(DOOR)
    return door is not None and not door.is_open


def owner_of(request: web.Request) -> str | None:
    """Return whose queries and cursors the caller may see and end: their own; None, anybody's, for administrators."""
    return None if may(request, Right.ADMIN, None) else identity_of(request).name


def sees(request: web.Request, table: str) -> bool:
    """Return True if the caller may know of a table."""
    return any(may(request, right, table) for right in READING)


def sees_whole(request: web.Request, table: str) -> bool:
    """Return True if the caller may know what tells of all rows and columns of a table, such as a manifest."""
    door = request.config_dict.get(DOOR)
    if door is None or door.is_open:
        return True
    needed = of_table(*READING, is_whole=True)
    return any(_has(door.access, identity_of(request), right, needed, table) for right in needed.rights)


def hidden_columns(request: web.Request, table: str) -> frozenset[str]:
    """Return the columns, in lower case, that the caller is not to know of."""
    door = request.config_dict.get(DOOR)
    if door is None or any(may(request, right, table) for right in (Right.INSERT, Right.MANAGE)):
        return frozenset()
    view = door.access.view(identity_of(request), table)
    return frozenset() if view is None else view.hidden


def refused_answer(error: AccessDeniedError) -> web.Response:
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
    elif ON_BEHALF_HEADER in request.headers:
        credential = None
    else:
        peer = None if transport is None else transport.get_extra_info("peercert")
        credential = credentials.of_certificate(peer)
    return (await door.identify(credential, request.remote or "")).identity


def _answer(status: int, text: str, headers: dict[str, str]) -> web.Response:
    body = orjson.dumps({"code": status, "error": text})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
