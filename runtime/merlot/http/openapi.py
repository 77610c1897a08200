"""Make the OpenAPI document of an application from its routes and their handlers' descriptions (`described`)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import orjson
from aiohttp import web
from pydantic.json_schema import models_json_schema

import merlot
from merlot.http.described import (
    JSON,
    OBJECT,
    TEXT,
    WHOLE,
    Described,
    Description,
    HttpParameter,
    array,
    describe,
    description_of,
    record,
)
from merlot.http.door import PUBLIC

PATH: Final = "/openapi.json"
_IN_PATH: Final = re.compile(r"\{(?P<name>[a-z]+)\}")
_REFERENCE: Final = "#/components/schemas/{model}"
_ERROR: Final = record({"code": WHOLE, "error": TEXT}, problems=array(OBJECT))

Json = dict[str, Any]


def with_description(routes: list[web.RouteDef], title: str) -> list[web.RouteDef]:
    """Return the routes, and a route that describes them all. The description is made when it is first read, in a
    thread: that takes a tenth of a second, and few read it."""

    @cache
    def body() -> bytes:
        return orjson.dumps(document(described, title))

    @describe(answer=OBJECT, right=PUBLIC)
    async def describe_all(_: web.Request) -> web.Response:
        """This description."""
        return web.Response(body=await asyncio.to_thread(body), content_type="application/json")

    described = [*routes, web.get(PATH, describe_all)]
    return described


def document(routes: Iterable[web.RouteDef], title: str) -> Json:
    """Return an OpenAPI 3.1 document."""
    routes = list(routes)
    descriptions = [description for route in routes if (description := description_of(route.handler)) is not None]
    bodies = [body for description in descriptions for body in (*(description.body or {}).values(), description.answer)]
    models = dict.fromkeys(body for body in bodies if isinstance(body, type))
    references, definitions = models_json_schema([(model, "validation") for model in models], ref_template=_REFERENCE)
    by_model = {model: schema for (model, _), schema in references.items()}
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_model)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": merlot.__version__},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {"Error": _ERROR, **definitions.get("$defs", {})}},
    }


def _operation(route: web.RouteDef, models: Mapping[Any, Json]) -> Json:
    description = description_of(route.handler) or Description(answer=OBJECT)
    name = getattr(route.handler, "__name__", "answer")
    lines = (getattr(route.handler, "__doc__", None) or "").strip()
    operation: Json = {
        "operationId": f"{route.method.lower()} {route.path}",
        "summary": name.replace("_", " ").strip().capitalize(),
        "responses": _responses(description, models),
    }
    if lines:
        operation["description"] = re.sub(r"\s+", " ", lines)
    parameters = [
        *({"name": each, "in": "path", "required": True, "schema": TEXT} for each in _IN_PATH.findall(route.path)),
        *map(_parameter, description.parameters),
    ]
    if parameters:
        operation["parameters"] = parameters
    if description.body is not None:
        content = {kind: {"schema": _schema(body, models)} for kind, body in description.body.items()}
        operation["requestBody"] = {"required": description.is_body_required, "content": content}
    return operation


def _responses(description: Description, models: Mapping[Any, Json]) -> Json:
    schema: Json = {"$ref": _REFERENCE.format(model="Error")}
    if description.failed is not None:
        schema = {"anyOf": [schema, description.failed]}
    error = {"description": "An error.", "content": {JSON: {"schema": schema}}}
    if description.answer is None:
        return {"default": error}
    content = {description.media_type: {"schema": _schema(description.answer, models)}}
    return {"200": {"description": "The answer.", "content": content}, "default": error}


def _parameter(parameter: HttpParameter) -> Json:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.is_required,
        "description": parameter.text,
        "schema": parameter.schema,
    }


def _schema(described: Described, models: Mapping[Any, Json]) -> Json:
    return models[described] if isinstance(described, type) else described
