"""Every route of every role and every gRPC method, asked by everybody: what is allowed and nothing else.

The routes are read off the routers. A new one has to declare its right, and stands in `rights.txt` from then on, where
a reviewer sees it: `python tests/unit/security/test_every_door.py` writes that file.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import MagicMock

import aiohttp
import httpx
import pytest
from aiohttp import web
from tests.unit.security.callers import Caller, LeapingClock, callers, rules

from merlot.broker.http import endpoint
from merlot.controller.http import api, merge_api
from merlot.controller.service import ControllerService
from merlot.http.described import description_of
from merlot.http.door import DOOR
from merlot.http.openapi import with_description
from merlot.http.server import HttpServer
from merlot.metastore.sqlite import SqliteMetastore
from merlot.minion.role import MinionConfig, MinionRole
from merlot.security.door import Door
from merlot.security.passwords import MAX_WAITING_PER_CLIENT
from merlot.server import health

RIGHTS: Final = Path(__file__).with_name("rights.txt")
IN_PATH: Final = re.compile(r"\{(\w+)\}")
READING: Final = {"GET", "HEAD"}


def routes_by_role(store: SqliteMetastore) -> dict[str, list[web.RouteDef]]:
    broker = MagicMock()
    broker.directory.find.return_value = None  # names that are mocks end nowhere
    server = health.make_app(health.HealthSources(lambda: None, list))
    of_server = [
        web.RouteDef(route.method, route.resource.canonical, route.handler, {})
        for route in server.router.routes()
        if route.resource is not None and route.method != "HEAD"
    ]
    return {
        "broker": with_description([*endpoint.routes(broker), *endpoint.table_routes(broker)], "broker"),
        "controller": with_description(api.routes(ControllerService(store)), "controller"),
        "minion": MinionRole(store, MinionConfig(http_port=None)).routes(),
        "server": of_server,
    }


@pytest.fixture
def roles(store: SqliteMetastore) -> dict[str, list[web.RouteDef]]:
    return routes_by_role(store)


def lines_of(roles: dict[str, list[web.RouteDef]]) -> Iterator[str]:
    for role, routes in roles.items():
        for route in sorted(routes, key=lambda route: (route.path, route.method)):
            said = description_of(route.handler)
            right = None if said is None else said.right
            yield f"{role:<10} {route.method:<6} {route.path:<55} {right}"


def test_every_route_declares_the_right_that_was_reviewed(roles: dict[str, list[web.RouteDef]]) -> None:
    lines = list(lines_of(roles))
    assert [line for line in lines if line.endswith(" None")] == [], "describe(..., right=…) is missing"
    assert lines == RIGHTS.read_text().splitlines(), f"review, then run {Path(__file__).name}"


def test_no_route_that_changes_something_is_for_readers(roles: dict[str, list[web.RouteDef]]) -> None:
    harmless = {
        *("POST /query", "POST /query/sql", "POST /query/sql/validateSyntax", "POST /query/sql/queryFingerprint"),
        *("DELETE /query/{id}", "DELETE /responseStore/{id}", "DELETE /responseStore/{id}/", "POST /sql"),
    }
    for line in lines_of(roles):
        _, method, path, right = line.split(maxsplit=3)
        if method not in READING and f"{method} {path}" not in harmless:
            is_absent = right == "everybody"  # answers 404
            assert "query" not in right, line
            assert not is_absent or path in ABSENT_PATHS, line


ABSENT_PATHS: Final = {entry.split()[1] for entry in api.absent_api.ABSENT}


@pytest.fixture
async def ports(roles: dict[str, list[web.RouteDef]]) -> AsyncIterator[dict[str, int]]:
    """Ports of all roles, behind one door."""
    logging.getLogger("merlot").setLevel(logging.CRITICAL)
    door = Door(rules(), LeapingClock())
    servers = {}
    for role, routes in roles.items():
        app = web.Application()
        app[DOOR] = door
        app.add_routes(routes)
        servers[role] = HttpServer(app, shutdown_s=1)
    yield {role: await server.start("127.0.0.1", 0) for role, server in servers.items()}
    for server in servers.values():
        await server.stop()
    door.close()
    logging.getLogger("merlot").setLevel(logging.NOTSET)


def expected(caller: Caller, right: str) -> int | None:
    """The status of a refusal; None if the handler is to be reached."""
    refused = 403 if caller.is_known else 401
    if right == "everybody":
        return None
    if right == "everybody without wrong credentials":
        return None if caller.is_known or caller.authorization is None else 401
    match = re.fullmatch(r"([\w ]+) of (\{\w+\}|cluster|any table)(, nothing hidden)?", right)
    assert match is not None, right
    rights, where = set(match[1].split(" or ")), match[2]
    if where == "cluster":
        return None if caller.is_admin else refused
    own = caller.rights | caller.elsewhere if where == "any table" else caller.rights
    if match[3] and caller.is_restricted:
        own = own - {"query"}
    return None if rights & own or caller.is_admin else refused


@pytest.mark.parametrize("role", ["broker", "controller", "minion", "server"])
async def test_everybody_reaches_what_they_may_and_nothing_else(
    role: str, roles: dict[str, list[web.RouteDef]], ports: dict[str, int]
) -> None:
    wrong = []
    at_a_time = asyncio.Semaphore(MAX_WAITING_PER_CLIENT)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{ports[role]}") as client:

        async def ask(caller: Caller, route: web.RouteDef, right: str) -> None:
            path = IN_PATH.sub(lambda match: "flights", route.path)
            method = "GET" if route.method == "*" else route.method
            headers = {} if caller.authorization is None else {"Authorization": caller.authorization}
            async with at_a_time, client.request(method, path, headers=headers) as answer:
                got = answer.status if answer.status in (401, 403) else None
                if got != expected(caller, right):
                    wrong.append((caller.name, route.method, route.path, answer.status, expected(caller, right)))
                if got == 401:
                    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
                if got is not None:
                    assert (await answer.json())["code"] == got

        everybody = callers()
        for route in roles[role]:
            said = description_of(route.handler)
            assert said is not None
            await asyncio.gather(*(ask(caller, route, str(said.right)) for caller in everybody))
    assert wrong == []


@pytest.mark.parametrize(
    "path",
    [
        *("/tables/flights;a=.css", "/tables/flights/", "//tables/flights", "/./tables/flights", "/tables/%66lights"),
        *(
            "/health/../tables/flights",
            "/health/%2e%2e/tables/flights",
            "/health;/../tables/flights",
            "/TABLES/flights",
        ),
        *(
            "/tables/flights?x=/health",
            "/tables/flights#/health",
            "/TABLES/flights",
            "/tables/FLIGHTS",
            "/tables/flights_OFFLINE",
        ),
    ],
)
async def test_no_spelling_of_a_path_opens_a_door(path: str, ports: dict[str, int]) -> None:
    for authorization in (None, callers()[-2].authorization):
        reader, writer = await asyncio.open_connection("127.0.0.1", ports["controller"])
        lines = [f"DELETE {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [] if authorization is None else [f"Authorization: {authorization}"]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        status = int((await reader.read()).split()[1])
        writer.close()
        assert status in (400, 401, 403, 404, 405), path
        await writer.wait_closed()


async def test_two_authorizations_are_none(ports: dict[str, int]) -> None:
    admin, reader = callers()[-1].authorization, callers()[0].authorization or "Basic eA=="
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports['controller']}") as client:
        headers = [("Authorization", reader), ("Authorization", str(admin))]
        assert (await client.get("/tables", headers=headers)).status_code == 401


class Rollups:
    """A merge task of one table."""

    def rollup(self, name: str) -> dict[str, Any]:
        return {"name": name, "table": "flights"}

    def rollups(self) -> list[dict[str, Any]]:
        return [self.rollup("monthly")]


async def test_a_merge_task_is_shown_to_those_who_see_the_whole_table() -> None:
    """Its manifest names columns, and its watermarks tell of rows."""
    app = web.Application()
    app[DOOR] = Door(rules(), LeapingClock())
    service: Any = Rollups()
    app.add_routes(merge_api.routes(service))
    server = HttpServer(app)
    port = await server.start("127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for caller in callers():
            headers = {} if caller.authorization is None else {"Authorization": caller.authorization}
            one = await client.get("/rollups/monthly", headers=headers)
            every = await client.get("/rollups", headers=headers)
            reads = caller.rights - ({"query"} if caller.is_restricted else set())
            may_see = caller.is_admin or bool(reads & {"query", "insert", "manage"})
            assert (one.status_code == 200) is may_see, caller.name
            assert ("monthly" in every.text) is may_see, caller.name
    await server.stop()
    app[DOOR].close()


async def test_a_route_that_says_nothing_is_refused() -> None:
    async def silent(_: web.Request) -> web.Response:
        return web.Response(text="reached")

    app = web.Application()
    app[DOOR] = Door(rules(), LeapingClock())
    app.add_routes([web.get("/silent", silent)])
    server = HttpServer(app)
    port = await server.start("127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for caller in callers():
            headers = {} if caller.authorization is None else {"Authorization": caller.authorization}
            assert (await client.get("/silent", headers=headers)).status_code in (401, 403)
    await server.stop()
    app[DOOR].close()


def _write(folder: str) -> None:
    store: Any = SqliteMetastore(Path(folder) / "store.sqlite")
    RIGHTS.write_text("".join(f"{line}\n" for line in lines_of(routes_by_role(store))))
    store.close()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        _write(folder)
