"""OpenAPI of an application, made of its routes: paths, methods, and what handlers say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import orjson
from aiohttp import web

import merlot

PATH: Final = "/openapi.json"
_IN_PATH: Final = re.compile(r"\{(?P<name>[a-z]+)\}")
_ERROR: Final = {
    "type": "object",
    "properties": {"code": {"type": "integer"}, "error": {"type": "string"}},
    "required": ["code", "error"],
}

Json = dict[str, Any]


def with_description(routes: list[web.RouteDef], title: str) -> list[web.RouteDef]:
    """The routes, and one that describes them all."""
    body = b""

    async def describe(_: web.Request) -> web.Response:
        """This description."""
        return web.Response(body=body, content_type="application/json")

    described = [*routes, web.get(PATH, describe)]
    body = orjson.dumps(document(described, title))
    return described


def document(routes: Iterable[web.RouteDef], title: str) -> Json:
    """An OpenAPI 3.1 document."""
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": merlot.__version__},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {"Error": _ERROR}},
    }


def _operation(route: web.RouteDef) -> Json:
    name = getattr(route.handler, "__name__", "answer")
    lines = (getattr(route.handler, "__doc__", None) or "").strip()
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: Json = {
        "operationId": f"{route.method.lower()} {route.path}",
        "summary": name.replace("_", " ").strip().capitalize(),
        "responses": {"200": {"description": "The answer."}, "default": {"description": "An error.", "content": error}},
    }
    if lines:
        operation["description"] = re.sub(r"\s+", " ", lines)
    names = _IN_PATH.findall(route.path)
    if names:
        operation["parameters"] = [
            {"name": each, "in": "path", "required": True, "schema": {"type": "string"}} for each in names
        ]
    return operation
