"""Describe a handler's parameters, bodies and answers beside it; `openapi` makes its document from these.

Schemas are JSON Schema as in OpenAPI 3.1, or models of pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from merlot.http.door import RouteRight

Schema = dict[str, Any]
Described = Schema | type[BaseModel]
F = TypeVar("F", bound=Callable[..., Any])

ANY: Final[Schema] = {}
TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
WHOLE: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
OBJECT: Final[Schema] = {"type": "object"}
FILE: Final[Schema] = {"type": "string", "contentMediaType": "application/octet-stream"}
JSON: Final = "application/json"
PLAIN: Final = "text/plain"
_ATTRIBUTE: Final = "_openapi"


def array(of: Schema) -> Schema:
    """Return the schema of a list of values of one kind."""
    return {"type": "array", "items": of}


def by_name(of: Schema) -> Schema:
    """Return the schema of an object whose members have any name and values of one kind."""
    return {"type": "object", "additionalProperties": of}


def record(required: Mapping[str, Schema] | None = None, **optional: Schema) -> Schema:
    """Return the schema of an object with these members."""
    members = {**(required or {}), **optional}
    return {"type": "object", "properties": members, **({"required": list(required)} if required else {})}


def nullable(schema: Schema) -> Schema:
    """Return the schema of the same values and null."""
    return {"anyOf": [schema, {"type": "null"}]}


def one_of(*words: str) -> Schema:
    """Return the schema of a text that is one of these words."""
    return {"type": "string", "enum": list(words)}


@dataclass(frozen=True, slots=True)
class HttpParameter:
    """A parameter of the query string, or a header."""

    name: str
    text: str
    schema: Schema
    is_required: bool = False
    place: str = "query"


def query(name: str, text: str, schema: Schema = TEXT, *, is_required: bool = False) -> HttpParameter:
    """Return a parameter of the query string."""
    return HttpParameter(name, text, schema, is_required)


def header(name: str, text: str) -> HttpParameter:
    """Return an optional header."""
    return HttpParameter(name, text, TEXT, place="header")


@dataclass(frozen=True, slots=True)
class Description:
    """Parameters, bodies and answer of a handler."""

    parameters: tuple[HttpParameter, ...] = ()
    body: Mapping[str, Described] | None = None
    """Body by media type; None if no body is read."""
    is_body_required: bool = True
    answer: Described | None = None
    """Schema of the answer; None if every answer is an error."""
    media_type: str = JSON
    failed: Schema | None = None
    """Schema of errors other than those that every route has."""
    right: RouteRight | None = None
    """Right that a request needs. None: every request is refused once there is an access document."""


def describe(  # noqa: PLR0913 - each is a part of the OpenAPI document
    *parameters: HttpParameter,
    answer: Described | None,
    body: Described | None = None,
    bodies: Mapping[str, Described] | None = None,
    is_body_required: bool = True,
    media_type: str = JSON,
    failed: Schema | None = None,
    right: RouteRight | None = None,
) -> Callable[[F], F]:
    """Attach a description to a handler. `body` is the schema of a JSON body; `bodies` has schemas by media type."""
    by_type = bodies if body is None else {JSON: body}
    description = Description(parameters, by_type, is_body_required, answer, media_type, failed, right)

    def described(handler: F) -> F:
        setattr(handler, _ATTRIBUTE, description)
        return handler

    return described


def description_of(handler: object) -> Description | None:
    """Return a handler's description; None if it has none."""
    return getattr(handler, _ATTRIBUTE, None)
