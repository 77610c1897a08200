"""Map Merlot's errors to what Pinot's clients read: `{errorCode, message}`, a header, and an HTTP status.

The error of a query travels in an answer with HTTP status 200. The statuses in the table below are used only if the
client asks for them (`Pinot-Use-Http-Status-For-Errors: true`).
"""

from __future__ import annotations

from dataclasses import dataclass

from merlot.codes import QueryErrorCode
from merlot.errors import MerlotError
from merlot.tree.errors import SqlError

NO_ERROR = -1
"""Value of `X-Pinot-Error-Code` for an answer without exceptions."""

_HTTP_STATUS: dict[int, int] = {
    QueryErrorCode.JSON_PARSING: 400,
    QueryErrorCode.SQL_PARSING: 400,
    QueryErrorCode.SQL_RUNTIME: 400,
    QueryErrorCode.ACCESS_DENIED: 403,
    QueryErrorCode.TABLE_DOES_NOT_EXIST: 404,
    QueryErrorCode.TABLE_IS_DISABLED: 404,
    QueryErrorCode.SERVER_SHUTTING_DOWN: 503,
    QueryErrorCode.SERVER_OUT_OF_CAPACITY: 503,
    QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED: 503,
    QueryErrorCode.QUERY_SCAN_LIMIT_EXCEEDED: 503,
    QueryErrorCode.QUERY_SCHEDULING_TIMEOUT: 408,
    QueryErrorCode.EXECUTION_TIMEOUT: 408,
    QueryErrorCode.BROKER_TIMEOUT: 408,
    QueryErrorCode.BROKER_SEGMENT_UNAVAILABLE: 503,
    QueryErrorCode.SERVER_NOT_RESPONDING: 503,
    QueryErrorCode.BROKER_REQUEST_SEND: 503,
    QueryErrorCode.TOO_MANY_REQUESTS: 429,
    QueryErrorCode.QUERY_CANCELLATION: 499,
    QueryErrorCode.QUERY_VALIDATION: 400,
    QueryErrorCode.UNKNOWN_COLUMN: 400,
    QueryErrorCode.QUERY_PLANNING: 400,
}
_CODES: frozenset[int] = frozenset(QueryErrorCode)
_INTERNAL_STATUS = 500
_OK_STATUS = 200

RETRIABLE_SERVER_CODES = frozenset(
    {
        QueryErrorCode.SERVER_SHUTTING_DOWN,
        QueryErrorCode.SERVER_OUT_OF_CAPACITY,
        QueryErrorCode.SERVER_TABLE_MISSING,
        QueryErrorCode.SERVER_SEGMENT_MISSING,
        QueryErrorCode.SERVER_NOT_RESPONDING,
    }
)
"""Codes that say nothing about the query: another replica may answer it."""


@dataclass(frozen=True, slots=True)
class QueryException:
    """An entry of an answer's `exceptions`."""

    code: int
    message: str

    @classmethod
    def of(cls, error: MerlotError) -> QueryException:
        """Return the entry for an error that Merlot raised on purpose. The first line of the message is the error; two
        more lines show its place in the query's text if it has one."""
        if isinstance(error, SqlError) and error.excerpt:
            return named(error.code, f"{error}\n{error.excerpt}")
        return named(error.code, str(error))


def named(code: int, message: str) -> QueryException:
    """Return an entry whose message begins with the code's name, as Pinot's do: `UNKNOWN_COLUMN: …`."""
    name = QueryErrorCode(code).name if code in _CODES else "UNKNOWN"
    return QueryException(int(code), f"{name}: {message}")


def http_status(exceptions: tuple[QueryException, ...]) -> int:
    """Return the status for a client that asked for errors as statuses; the first exception decides."""
    if not exceptions:
        return _OK_STATUS
    return _HTTP_STATUS.get(exceptions[0].code, _INTERNAL_STATUS)
