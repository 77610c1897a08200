"""Read a query from an HTTP request and encode its answer, independently of the HTTP server.

A query's error is an answer: HTTP 200, `exceptions`, and the header `X-Pinot-Error-Code`. Only a request that is no
query at all (no `sql`, bad JSON) is HTTP 400. A client may ask for errors as statuses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import orjson
from aiohttp import web

from merlot.broker.queries import Answers, SqlRequest
from merlot.broker.query_errors import http_status, named
from merlot.broker.response import BrokerAnswer
from merlot.codes import QueryErrorCode
from merlot.http.door import identity_of
from merlot.security.access import ANONYMOUS, Identity

ERROR_CODE_HEADER: Final = "X-Pinot-Error-Code"
STATUS_HEADER: Final = "Pinot-Use-Http-Status-For-Errors"
CORRELATION_HEADER: Final = "X-Correlation-Id"
MAX_BODY_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, value of `X-Pinot-Error-Code`, and the JSON object."""

    status: int
    error_code: int
    body: bytes


class _MalformedRequestError(Exception):
    """Raised if the request is no query: HTTP 400."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Facts of a request's head that its query needs."""

    identity: Identity = ANONYMOUS
    client_request_id: str | None = None
    wants_status: bool = False
    """True: an error of the query is a status of HTTP too."""
    client: str = ""
    """Address of the connection."""

    @classmethod
    def of(cls, request: web.Request) -> Self:
        """Return the asker of a request that the guard has admitted."""
        headers = request.headers
        wants_status = headers.get(STATUS_HEADER, "").lower() == "true"
        return cls(identity_of(request), headers.get(CORRELATION_HEADER), wants_status, request.remote or "")


async def answer_body(broker: Answers, body: bytes, asker: Asker) -> HttpAnswer:
    """Answer a POST: its body is a JSON object with `sql` and perhaps `queryOptions`."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return _refusal(broker, f"request body is not JSON: {error}", asker.client_request_id)
    return await answer_fields(broker, fields, asker)


async def answer_fields(broker: Answers, fields: Any, asker: Asker) -> HttpAnswer:
    """Answer a GET, whose URL has the fields."""
    answer = await answer_of(broker, fields, asker)
    if isinstance(answer, HttpAnswer):
        return answer
    return HttpAnswer(status_of(answer, asker), answer.error_code, answer.to_bytes())


def status_of(answer: BrokerAnswer, asker: Asker) -> int:
    """Return the status of an answer: 200 unless the asker wants errors as statuses, or may not ask, as in Pinot."""
    is_denied = answer.error_code == QueryErrorCode.ACCESS_DENIED
    return http_status(answer.exceptions) if asker.wants_status or is_denied else 200


async def answer_of(
    broker: Answers, fields: Any, asker: Asker, *, by_column: bool = False
) -> BrokerAnswer | HttpAnswer:
    """Run the query; refuse a request that is none."""
    try:
        request = _sql_request(fields, asker)
    except _MalformedRequestError as error:
        return _refusal(broker, str(error), asker.client_request_id)
    return await broker.query(replace(request, by_column=True) if by_column else request)


def _sql_request(fields: Any, asker: Asker) -> SqlRequest:
    if not isinstance(fields, dict) or not isinstance(fields.get("sql"), str):
        raise _MalformedRequestError("request has no 'sql'")
    options = fields.get("queryOptions") or ""
    if not isinstance(options, str):
        raise _MalformedRequestError("'queryOptions' must be a text of name=value;name=value")
    return SqlRequest(fields["sql"], options, asker.client_request_id, identity=asker.identity, client=asker.client)


def _refusal(broker: Answers, problem: str, client_request_id: str | None) -> HttpAnswer:
    exception = named(QueryErrorCode.JSON_PARSING, problem)
    answer = BrokerAnswer.refusal(broker.broker_id, exception, client_request_id)
    return HttpAnswer(400, answer.error_code, answer.to_bytes())
