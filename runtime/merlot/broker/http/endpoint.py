"""Serve the broker's HTTP paths as Pinot's clients call them.

Plain queries do not come here: `front` answers them. A client that hangs up cancels its query, if the server that runs
this app is started with `handler_cancellation=True`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Protocol, TypeVar

import orjson
from aiohttp import web

from merlot.broker.cursors import ResponseStore
from merlot.broker.directory import Directory
from merlot.broker.http import answers
from merlot.broker.http.cursor_paths import CursorPaths, wants_cursor
from merlot.broker.http.queries import (
    ERROR_CODE_HEADER,
    MAX_BODY_BYTES,
    Asker,
    HttpAnswer,
    answer_body,
    answer_fields,
)
from merlot.broker.queries import Answers
from merlot.broker.query_errors import QueryException
from merlot.broker.tables import ServedTable
from merlot.clock import SystemClock
from merlot.cluster.segments.boundary import BEFORE_ALL
from merlot.cluster.segments.table_types import table_type_of, typed_name, typed_names
from merlot.errors import AccessDeniedError, InvalidInputError, UnavailableError
from merlot.http.described import FLAG, OBJECT, PLAIN, TEXT, WHOLE, array, by_name, describe, query, record
from merlot.http.door import READING, hidden_columns, identity_of, may, of_any, of_table, owner_of, sees
from merlot.http.guard import BODY_LIMITS, BodyLimit
from merlot.http.health import health_routes, readiness_of
from merlot.http.openapi import with_description
from merlot.http.process import process_routes
from merlot.ids import TableName, raw_name
from merlot.pinot import schema_json
from merlot.pinot.schema_json import without_columns
from merlot.security.access import Right
from merlot.sql.budget import Budget
from merlot.sql.normal_form import normal_form
from merlot.sql.parse import parse, parse_statement

T = TypeVar("T")

QUERY_LIMITS: Final = dict.fromkeys(("/query/sql", "/query"), BodyLimit(MAX_BODY_BYTES))


class BrokerInterface(Answers, Protocol):
    """The part of a broker that the HTTP paths need."""

    @property
    def directory(self) -> Directory:
        """Tables and their routes."""
        ...

    def unready_reason(self) -> str | None:
        """Return the reason why clients should send no queries now; None if there is none."""
        ...

    def running(self, asker: str | None = None) -> Mapping[str, str]:
        """Return the texts of the queries under way by request id: all, or those that `asker` has asked."""
        ...

    def query_log(self, table: str, asker: str | None = None) -> Mapping[str, object]:
        """Return the log of the queries that named the table lately, by its raw name: all, or those of `asker`."""
        ...

    async def plan_with(self, sql: str, work: Callable[[Budget], T]) -> T:
        """Run work on a text among the texts that are planned. Raise UnavailableError at a query's deadline, or if too
        many wait."""
        ...

    def cancel(self, wanted: str, *, by_client_id: bool = False, asker: str | None = None) -> bool:
        """Cancel a running query; return False if no query that `asker` may cancel has the id."""
        ...


def make_app(broker: BrokerInterface) -> web.Application:
    """Create an application of the broker's paths; unknown paths are 404, for HEAD too."""
    app = web.Application()
    app[BODY_LIMITS] = QUERY_LIMITS
    app.add_routes(with_description([*routes(broker), *table_routes(broker)], "Merlot broker"))
    return app


def routes(broker: BrokerInterface) -> list[web.RouteDef]:
    """Return the broker's routes, for a node that serves several roles on one port."""
    paths = _Paths(broker)
    return [
        web.post("/query/sql", paths.post_query),
        web.get("/query/sql", paths.get_query, allow_head=False),
        web.post("/query", paths.post_query),
        web.get("/query", paths.get_query, allow_head=False),
        web.delete("/query/{id}", paths.cancel_query),
        web.get("/queries", paths.running_queries),
        *paths.cursor_routes(),
        web.post("/query/sql/validateSyntax", paths.validate_syntax),
        web.post("/query/sql/queryFingerprint", paths.query_fingerprint),
        *health_routes(readiness_of(broker.unready_reason)),
        *process_routes(),
        web.get("/debug/routingTable/sql", paths.routing_table_of_query),
        web.get("/debug/routingTable/{table}", paths.routing_table),
        web.get("/debug/timeBoundary/{table}", paths.time_boundary),
        web.get("/debug/lineage/{table}", paths.lineage),
        web.get("/debug/queryLog/{table}", paths.query_log),
    ]


def table_routes(broker: BrokerInterface) -> list[web.RouteDef]:
    """Return the routes that clients expect of a controller, for a port without one: pinotdb's reflection needs only
    these."""
    paths = _Paths(broker)
    return [
        web.get("/tables", paths.table_names),
        web.get("/tables/{table}/schema", paths.table_schema),
    ]


class _Paths:
    def __init__(self, broker: BrokerInterface) -> None:
        self._broker = broker
        self._cursors = CursorPaths(broker, ResponseStore(SystemClock()), broker.directory.live_brokers)

    def cursor_routes(self) -> list[web.RouteDef]:
        """Return the routes for answers that are kept."""
        return self._cursors.routes()

    @describe(
        *answers.CURSOR_PARAMETERS,
        *answers.QUERY_HEADERS,
        body=answers.QUERY,
        answer=answers.ANSWER,
        failed=answers.ANSWER,
        right=of_any(Right.QUERY),
    )
    async def post_query(self, request: web.Request) -> web.Response:
        body, asker = await request.read(), Asker.of(request)
        if wants_cursor(request.query):
            with contextlib.suppress(orjson.JSONDecodeError):  # a body that is not JSON is refused below
                return _response(await self._cursors.begin(request, orjson.loads(body), asker))
        return _response(await answer_body(self._broker, body, asker))

    @describe(
        *answers.QUERY_PARAMETERS,
        *answers.CURSOR_PARAMETERS,
        *answers.QUERY_HEADERS,
        answer=answers.ANSWER,
        failed=answers.ANSWER,
        right=of_any(Right.QUERY),
    )
    async def get_query(self, request: web.Request) -> web.Response:
        fields, asker = dict(request.query), Asker.of(request)
        if wants_cursor(request.query):
            return _response(await self._cursors.begin(request, fields, asker))
        return _response(await answer_fields(self._broker, fields, asker))

    async def _run(self, sql: str, work: Callable[[Budget], T]) -> T:
        """Run work on a text as its planning is run: in a thread, until a deadline, while the client waits."""
        try:
            return await self._broker.plan_with(sql, work)
        except UnavailableError as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from error

    @describe(body=answers.SQL_ONLY, answer=answers.VALIDATED, right=of_any(Right.QUERY))
    async def validate_syntax(self, request: web.Request) -> web.Response:
        """Check whether a text is a query by its grammar alone: tables and columns are not looked up."""
        sql = await _sql_of(request)
        try:
            await self._run(sql, lambda budget: parse_statement(sql, budget))
        except InvalidInputError as error:
            problem = QueryException.of(error)
            return _json({"compiledSuccessfully": False, "errorMessage": problem.message, "errorCode": problem.code})
        return _json({"compiledSuccessfully": True, "errorMessage": None, "errorCode": None})

    @describe(body=answers.SQL_ONLY, answer=record({"queryHash": TEXT, "fingerprint": TEXT}), right=of_any(Right.QUERY))
    async def query_fingerprint(self, request: web.Request) -> web.Response:
        """A query without its constants, and a hash of that: one for all that ask the same of different values."""
        sql = await _sql_of(request)

        def fingerprint_of(budget: Budget) -> str:
            parse_statement(sql, budget)
            return normal_form(sql)

        try:
            fingerprint = await self._run(sql, fingerprint_of)
        except InvalidInputError as error:
            raise web.HTTPBadRequest(text=QueryException.of(error).message) from error
        return _json({"queryHash": sha256(fingerprint.encode()).hexdigest()[:16], "fingerprint": fingerprint})

    @describe(
        query("client", "The id is the client's own.", FLAG), answer=TEXT, media_type=PLAIN, right=of_any(Right.QUERY)
    )
    async def cancel_query(self, request: web.Request) -> web.Response:
        """`?client=true`: the id is the client's own (`X-Correlation-Id`, or the option `clientQueryId`). Only
        administrators cancel queries of others."""
        wanted = request.match_info["id"]
        by_client_id = request.query.get("client", "").lower() == "true"
        if not self._broker.cancel(wanted, by_client_id=by_client_id, asker=owner_of(request)):
            raise web.HTTPNotFound(text=f"query not found on this broker: {wanted}")
        return web.Response(text=f"cancelled query {wanted}")

    @describe(answer=by_name(TEXT), right=of_any(Right.QUERY))
    async def running_queries(self, request: web.Request) -> web.Response:
        """`{requestId: sql}`: the caller's own, of an administrator everybody's."""
        return _json(self._broker.running(owner_of(request)))

    @describe(answer=record({"tables": array(TEXT)}), right=of_any(*READING))
    async def table_names(self, request: web.Request) -> web.Response:
        """`{"tables": [raw names]}`."""
        names = sorted(table.raw_name for table in self._broker.directory.tables.values())
        return _json({"tables": [name for name in names if sees(request, name)]})

    @describe(answer=record({"schemaName": TEXT}), right=of_table(*READING))
    async def table_schema(self, request: web.Request) -> web.Response:
        """Pinot's Schema."""
        table = self._broker.directory.find(request.match_info["table"])
        if table is None:
            problem = f"table does not exist table={request.match_info['table']}"
            return _json({"code": 404, "error": problem}, status=404)
        schema = schema_json.to_pinot(table.raw_name, table.schema)
        return _json(without_columns(schema, hidden_columns(request, table.raw_name)))

    @describe(answer=by_name(by_name(array(TEXT))), right=of_table(*READING))
    async def routing_table(self, request: web.Request) -> web.Response:
        """`{tableWithType: {server: [segments]}}`, by half: one of the equivalent assignments, as Trino reads it."""
        return _json(self._routes(request.match_info["table"]))

    @describe(
        query("query", "A query of the table.", is_required=True), answer=by_name(array(TEXT)), right=of_any(*READING)
    )
    async def routing_table_of_query(self, request: web.Request) -> web.Response:
        """`{server: [segments]}` of the table of `?query=`, whose name says the half: as Pinot's Spark connector reads
        it. A name without a type is of both halves."""
        sql = request.query.get("query", "")
        try:
            name = (await self._run(sql, lambda budget: parse(sql, budget))).table
        except InvalidInputError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        if name is None:
            raise web.HTTPBadRequest(text="the query is of no single table")
        if not sees(request, name):
            raise AccessDeniedError(f"permission denied table={name:.200}")
        by_server: dict[str, list[str]] = {}
        for routes in self._routes(name).values():
            for server, segments in routes.items():
                by_server.setdefault(server, []).extend(segments)
        return _json(by_server)

    def _routes(self, name: str) -> Mapping[TableName, Mapping[str, Sequence[str]]]:
        table = self._broker.directory.find(raw_name(name))
        return _of_halves(name, {} if table is None else _routes_by_half(table))

    @describe(answer=by_name(record({"epoch": WHOLE, "completed": array(TEXT)})), right=of_table(*READING))
    async def lineage(self, request: web.Request) -> web.Response:
        """`{tableWithType: {"epoch": 7, "completed": [entries]}}`: replacements whose outputs queries are sent to. Both
        halves of a table have one lineage."""
        name = request.match_info["table"]
        table = self._broker.directory.find(raw_name(name))
        if table is None:
            raise web.HTTPNotFound(text="no routing for this table")
        state = {"epoch": table.snapshot.epoch, "completed": sorted(table.snapshot.completed)}
        return _json(_of_halves(name, dict.fromkeys(typed_names(table.raw_name, table.spec), state)))

    @describe(answer=record({"queries": array(OBJECT)}), right=of_table(Right.QUERY, Right.MANAGE))
    async def query_log(self, request: web.Request) -> web.Response:
        """`{"queries": [{"query": normal form, "count": 12, "timeMs": 34.5, "samples": [texts], …}]}`: the caller's own
        queries, and everybody's if they may manage the table."""
        table = self._broker.directory.find(request.match_info["table"])
        if table is None:
            raise web.HTTPNotFound(text="no routing for this table")
        asker = None if may(request, Right.MANAGE, table.raw_name) else identity_of(request).name
        return _json(self._broker.query_log(table.raw_name, asker))

    @describe(answer=record({"timeColumn": TEXT, "timeValue": TEXT}), right=of_table(*READING, is_whole=True))
    async def time_boundary(self, request: web.Request) -> web.Response:
        """`{"timeColumn": …, "timeValue": …}`: as in Pinot, batches answer up to this time, the stream from the next
        one on. Tables of one part have none, nor those whose batches have nothing yet; clients take 404 for that."""
        table = self._broker.directory.find(request.match_info["table"])
        boundary_ms = None if table is None else table.snapshot.time_boundary_ms
        if table is None or table.rule is None or boundary_ms is None or boundary_ms == BEFORE_ALL:
            raise web.HTTPNotFound(text="no time boundary for this table")
        return _json({"timeColumn": table.rule.column, "timeValue": str(table.rule.value(boundary_ms) - 1)})


def _routes_by_half(table: ServedTable) -> Mapping[TableName, Mapping[str, Sequence[str]]]:
    """Return the names of segments by half of the table and by server."""
    by_half: dict[TableName, dict[str, list[str]]] = {half: {} for half in typed_names(table.raw_name, table.spec)}
    for route in table.snapshot.select(0):
        for key in route.segments:
            half = typed_name(table.raw_name, table_type_of(table.snapshot.by_key[key].record))
            by_half.setdefault(half, {}).setdefault(route.instance, []).append(key.rpartition("@")[0])
    return by_half


def _of_halves(name: str, by_half: Mapping[TableName, T]) -> Mapping[TableName, T]:
    """Return the entry of the half that a name says, or all entries if it says none. Raise 404 if there is none."""
    is_typed = raw_name(name) != name
    chosen = {half: entry for half, entry in by_half.items() if not is_typed or half.lower() == name.lower()}
    if not chosen:
        raise web.HTTPNotFound(text="no routing for this table")
    return chosen


async def _sql_of(request: web.Request) -> str:
    try:
        fields = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise web.HTTPBadRequest(text=f"request body is not JSON: {error}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("sql"), str):
        raise web.HTTPBadRequest(text="request has no 'sql'")
    sql: str = fields["sql"]
    return sql


def _response(answer: HttpAnswer) -> web.Response:
    return web.Response(
        body=answer.body,
        status=answer.status,
        content_type="application/json",
        headers={ERROR_CODE_HEADER: str(answer.error_code)},
    )


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")
