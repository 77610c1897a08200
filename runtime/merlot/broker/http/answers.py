"""Shapes of the requests and answers of the broker's paths, for the OpenAPI document. Members are read off a sample."""

from __future__ import annotations

from typing import Any, Final

import orjson

from merlot.broker.cursors import StoredAnswer
from merlot.broker.http.queries import CORRELATION_HEADER, STATUS_HEADER
from merlot.broker.response import BrokerAnswer, ResultRows
from merlot.http.described import ANY, FLAG, TEXT, WHOLE, Schema, array, header, nullable, query, record

_KINDS: Final[dict[type, Schema]] = {bool: FLAG, int: WHOLE, str: TEXT}
_SAMPLE: Final = BrokerAnswer(request_id="", client_request_id=None, broker_id="", result=ResultRows([], [], []))
_KEPT: Final = StoredAnswer(_SAMPLE, 0, 0)
_TYPED: Final[dict[str, Schema]] = {
    "resultTable": record(
        {
            "dataSchema": record({"columnNames": array(TEXT), "columnDataTypes": array(TEXT)}),
            "rows": array(array(ANY)),
        }
    ),
    "exceptions": array(record({"errorCode": WHOLE, "message": TEXT})),
    "clientRequestId": nullable(TEXT),
    "tablesQueried": array(TEXT),
    "queryWarnings": array(TEXT),
}


def _answer_of(sample: dict[str, Any]) -> Schema:
    """Return the shape of an answer. Rows are optional, as a failed answer has none, and so are warnings."""
    members = {name: _TYPED.get(name) or _kind_of(value) for name, value in sample.items()}
    rows = members.pop("resultTable", _TYPED["resultTable"])
    return record(members, resultTable=rows, queryWarnings=_TYPED["queryWarnings"])


def _kind_of(value: object) -> Schema:
    if isinstance(value, list):
        return array(ANY)
    return record() if isinstance(value, dict) else _KINDS[type(value)]


ANSWER: Final = _answer_of(orjson.loads(_SAMPLE.to_bytes()))
PAGE: Final = _answer_of(orjson.loads(_KEPT.page(0, 1)))
HEAD: Final = _answer_of(orjson.loads(_KEPT.head()))
CURSORS: Final = array(record({name: _kind_of(value) for name, value in _KEPT.summary().items()}))

QUERY: Final = record({"sql": TEXT}, queryOptions=TEXT, trace=ANY)
SQL_ONLY: Final = record({"sql": TEXT})
QUERY_PARAMETERS: Final = (
    query("sql", "The query.", is_required=True),
    query("queryOptions", "Options, as name=value;name=value."),
)
CURSOR_PARAMETERS: Final = (
    query("getCursor", "Keep the answer, and send its first page.", FLAG),
    query("numRows", "Rows of a page.", WHOLE),
)
QUERY_HEADERS: Final = (
    header(CORRELATION_HEADER, "An id of the caller's own, by which the query can be cancelled."),
    header(STATUS_HEADER, "true: an error of the query is a status of HTTP too."),
)
VALIDATED: Final = record({"compiledSuccessfully": FLAG, "errorMessage": nullable(TEXT), "errorCode": nullable(WHOLE)})
