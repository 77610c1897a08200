"""The OpenAPI documents: valid, of every route, and with every parameter that a handler reads."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from openapi_spec_validator import validate

from merlot.broker.http import endpoint
from merlot.controller.http import api
from merlot.controller.http.absent_api import ABSENT
from merlot.controller.service import ControllerService
from merlot.http.described import description_of
from merlot.http.openapi import document
from merlot.metastore.sqlite import SqliteMetastore

PASSED_ON = {
    "GET /query/sql": {"sql", "queryOptions"},
    "GET /query": {"sql", "queryOptions"},
    "GET /sql": {"sql", "queryOptions"},
    "POST /sql": {"sql", "queryOptions"},
}
"""Parameters that a handler hands on as they are."""


def broker_routes() -> list[web.RouteDef]:
    broker = cast(Any, SimpleNamespace(directory=SimpleNamespace(live_brokers=None), unready_reason=None))
    return [*endpoint.routes(broker), *endpoint.table_routes(broker)]


@pytest.fixture(params=["controller", "broker"])
def routes(request: pytest.FixtureRequest, store: SqliteMetastore) -> list[web.RouteDef]:
    return api.routes(ControllerService(store)) if request.param == "controller" else broker_routes()


def test_the_document_is_valid(routes: list[web.RouteDef]) -> None:
    validate(document(routes, "Merlot"))


def test_every_route_says_what_it_answers_and_takes(routes: list[web.RouteDef]) -> None:
    operations = document(routes, "Merlot")["paths"]
    for route in routes:
        said = description_of(route.handler)
        asked = f"{route.method} {route.path}"
        assert said is not None, f"{asked} has no @describe"
        operation = operations[route.path][route.method.lower()]
        assert "default" in operation["responses"]
        is_refused = asked in ABSENT or route.path.startswith("/ingestFrom")
        assert ("200" in operation["responses"]) != is_refused, asked
        assert ("requestBody" in operation) == (said.body is not None)
        assert operation["summary"]


def test_every_parameter_that_a_handler_reads_is_described_and_no_other(routes: list[web.RouteDef]) -> None:
    for route in routes:
        said = description_of(route.handler)
        assert said is not None
        described = {one.name for one in said.parameters if one.place == "query"}
        asked = f"{route.method} {route.path}"
        read = set(names_read(route.handler)) | PASSED_ON.get(asked, set())
        if asked == "GET /tables/{table}/state":
            read -= {"state"}  # refused
        assert described == read, asked


def test_every_body_that_a_handler_reads_is_described(routes: list[web.RouteDef]) -> None:
    for route in routes:
        said = description_of(route.handler)
        assert said is not None
        is_read = any(isinstance(node, ast.Attribute) and node.attr == "read" for node in nodes(route.handler))
        assert is_read == (said.body is not None) or route.method == "GET", f"{route.method} {route.path}"


def names_read(handler: Any) -> Iterator[str]:
    """Names of query parameters that a handler, or what it hands its request to, reads."""
    for function in functions(handler):
        aliases = {"request.query", *aliases_of(function)}
        for node in ast.walk(tree_of(function)):
            match node:
                case ast.Call(func=ast.Attribute(attr="get" | "getall", value=source), args=[ast.Constant(name), *_]):
                    if ast.unparse(source) in aliases:
                        yield name
                case ast.Compare(left=ast.Constant(str(name)), ops=[ast.In()], comparators=[source]):
                    if ast.unparse(source) in aliases:
                        yield name
                case ast.Call(func=ast.Name(), args=[ast.Name("request"), ast.Constant(str(name)), *_]):
                    yield name


def nodes(handler: Any) -> Iterator[ast.AST]:
    for function in functions(handler):
        yield from ast.walk(tree_of(function))


def functions(handler: Any) -> list[Callable[..., Any]]:
    """The handler, and functions of ours that get its request."""
    owner = getattr(handler, "__self__", None)
    waiting, found = [inspect.unwrap(handler)], []
    while waiting:
        function = waiting.pop()
        function = inspect.unwrap(getattr(function, "__func__", function))
        if function in found or not getattr(function, "__module__", "").startswith("merlot"):
            continue
        found.append(function)
        for node in ast.walk(tree_of(function)):
            if isinstance(node, ast.Call) and any(ast.unparse(one).startswith("request") for one in node.args):
                callee = resolve(node.func, owner, function)
                if inspect.isfunction(callee) or inspect.ismethod(callee):
                    waiting.append(callee)
    return found


def resolve(called: ast.expr, owner: Any, function: Any) -> Any:
    """What a call's name stands for: a function of the module, or a method of the handler's object or of its member."""
    names = ast.unparse(called).split(".")
    value = owner if names[0] == "self" else function.__globals__.get(names[0])
    for name in names[1:]:
        value = getattr(value, name, None)
    return value


def aliases_of(function: Callable[..., Any]) -> set[str]:
    """Names under which a function knows the query."""
    tree = tree_of(function)
    names = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "request.query"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return names | ({"query"} if "query" in inspect.signature(function).parameters else set())


def tree_of(function: Callable[..., Any]) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))
