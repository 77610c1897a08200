"""Reading of bodies and shaping of answers for the controller's endpoints. Errors are `{"code", "error"}` and all
problems.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel, ValidationError

from merlot.cluster.segments.table_types import OFFLINE, REALTIME
from merlot.controller.service import problems_of
from merlot.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptionError,
    InvalidInputError,
    MerlotError,
    NotFoundError,
    UnavailableError,
)
from merlot.http.door import refused_answer
from merlot.ids import raw_name
from merlot.uris import redact

_LOG = logging.getLogger(__name__)

S = TypeVar("S")
B = TypeVar("B", bound=BaseModel)

STATUS = {
    InvalidInputError: 400,
    NotFoundError: 404,
    ConflictError: 409,
    UnavailableError: 503,
    CorruptionError: 500,
}
"""HTTP status by family of errors."""

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def answered(handler: Callable[[S, web.Request], Awaitable[web.StreamResponse]]) -> Any:
    """Wrap a handler so that expected errors are answers, and bugs are logged and answered without a traceback."""

    @functools.wraps(handler)
    async def answer(self: S, request: web.Request) -> web.StreamResponse:
        try:
            return await handler(self, request)
        except MerlotError as error:
            return error_answer(error)
        except web.HTTPException:
            raise
        except Exception:  # noqa: BLE001 - the outermost loop of a request
            _LOG.exception("request failed method=%s path=%s", request.method, request.path)
            return json_answer({"code": 500, "error": "internal error; see the controller's log"}, 500)

    return answer


def parse_body(model: type[B], data: bytes) -> B:
    """Return the body as a model; raise InvalidInputError if it does not fit."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"request cannot be read at={path} problem={first['msg']!r}") from error


async def segment_names(request: web.Request) -> list[str]:
    """Return the names of segments in the body, a JSON array; raise InvalidInputError if it is none."""
    try:
        names = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"the body is not JSON: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInputError("the body is no JSON array of segments' names")
    return names


def flag(request: web.Request, name: str, *, default: bool = False) -> bool:
    """Return the value of a boolean parameter.

    Raise InvalidInputError for any other word: a misspelt `dryRun` must not write."""
    text = request.query.get(name, "").strip().lower()
    if text and text not in _FLAGS:
        raise InvalidInputError(f"{name} must be true or false got={text!r:.50}")
    return _FLAGS.get(text, default)


def asked_half(request: web.Request) -> str | None:
    """Return OFFLINE or REALTIME, as `?type=` or else the suffix of the table's name says; None if neither does."""
    name = request.match_info["table"]
    half = request.query.get("type", name.removeprefix(raw_name(name)).removeprefix("_")).upper()
    if half not in ("", OFFLINE, REALTIME):
        raise InvalidInputError(f"type must be OFFLINE or REALTIME got={half!r:.50}")
    return half or None


def error_answer(error: MerlotError) -> web.Response:
    """Return the answer to an error of one of the families."""
    if isinstance(error, AccessDeniedError):
        return refused_answer(error)
    status = next((status for family, status in STATUS.items() if isinstance(error, family)), 500)
    body: dict[str, Any] = {"code": status, "error": redact(str(error))}
    problems = problems_of(error)
    if problems:
        body["problems"] = [
            {"document": problem.document, "path": problem.path, "message": problem.message, "line": problem.line}
            for problem in problems
        ]
    return json_answer(body, status)


def json_answer(value: object, status: int = 200) -> web.Response:
    """Return an answer with any JSON."""
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")
