"""The broker's HTTP paths, as Pinot's clients call them.

A query's error is an answer: HTTP 200, `exceptions`, and the header `X-Pinot-Error-Code`. Only a request that is no
query at all (no `sql`, bad JSON) is HTTP 400. A client that hangs up cancels its query, if the server that runs this
app is started with `handler_cancellation=True`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import orjson
from aiohttp import web

from merlot import telemetry
from merlot.broker.directory import Directory
from merlot.broker.queries import SqlRequest
from merlot.broker.query_errors import QueryErrorCode, http_status, named
from merlot.broker.response import BrokerAnswer
from merlot.errors import InvalidInputError
from merlot.spec import pinot_schema
from merlot.sql.parse import parse

ERROR_CODE_HEADER = "X-Pinot-Error-Code"
STATUS_HEADER = "Pinot-Use-Http-Status-For-Errors"
CORRELATION_HEADER = "X-Correlation-Id"
MAX_BODY_BYTES = 4 << 20


class BrokerFace(Protocol):
    """What the paths need of a broker."""

    @property
    def broker_id(self) -> str:
        """`Broker_host_port`."""
        ...

    @property
    def directory(self) -> Directory:
        """Tables and their routes."""
        ...

    def unready_reason(self) -> str | None:
        """Why it should get no queries now; None if it may."""
        ...

    async def query(self, request: SqlRequest) -> BrokerAnswer:
        """Run a query."""
        ...

    @property
    def running(self) -> Mapping[str, str]:
        """Texts of the queries under way, by request id."""
        ...

    def cancel(self, wanted: str, *, by_client_id: bool = False) -> bool:
        """Cancel a running query; False if there is none of that id."""
        ...


class _MalformedRequest(Exception):
    """The request is no query: HTTP 400."""


def make_app(broker: BrokerFace) -> web.Application:
    """An application of the broker's paths; unknown paths are 404, for HEAD too."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes([*routes(broker), *table_routes(broker)])
    return app


def routes(broker: BrokerFace) -> list[web.RouteDef]:
    """The same paths, for a node that serves several roles on one port."""
    paths = _Paths(broker)
    return [
        web.post("/query/sql", paths.post_query),
        web.get("/query/sql", paths.get_query, allow_head=False),
        web.post("/query", paths.post_query),
        web.get("/query", paths.get_query, allow_head=False),
        web.delete("/query/{id}", paths.cancel_query),
        web.get("/queries", paths.running_queries),
        web.get("/health", paths.health),
        web.get("/health/readiness", paths.health),
        web.get("/health/liveness", paths.liveness),
        web.get("/metrics", paths.metrics),
        web.get("/debug/routingTable/sql", paths.routing_table_of_query),
        web.get("/debug/routingTable/{table}", paths.routing_table),
        web.get("/debug/timeBoundary/{table}", paths.time_boundary),
    ]


def table_routes(broker: BrokerFace) -> list[web.RouteDef]:
    """What clients ask a controller for, where none shares the port: pinotdb's reflection needs only these."""
    paths = _Paths(broker)
    return [
        web.get("/tables", paths.table_names),
        web.get("/tables/{table}/schema", paths.table_schema),
    ]


class _Paths:
    def __init__(self, broker: BrokerFace) -> None:
        self._broker = broker

    async def post_query(self, request: web.Request) -> web.Response:
        return await self._query(request, await request.read())

    async def get_query(self, request: web.Request) -> web.Response:
        return await self._query(request, None)

    async def _query(self, request: web.Request, body: bytes | None) -> web.Response:
        headers = request.headers
        client_request_id = headers.get(CORRELATION_HEADER)
        try:
            fields: Any = dict(request.query) if body is None else _parse_body(body)
            sql_request = _sql_request(fields, client_request_id)
        except _MalformedRequest as error:
            answer = self._refusal(str(error), client_request_id)
            return _response(answer, status=400)
        answer = await self._broker.query(sql_request)
        wants_status = headers.get(STATUS_HEADER, "").lower() == "true"
        return _response(answer, status=http_status(answer.exceptions) if wants_status else 200)

    def _refusal(self, problem: str, client_request_id: str | None) -> BrokerAnswer:
        return BrokerAnswer(
            request_id="0",
            client_request_id=client_request_id,
            broker_id=self._broker.broker_id,
            exceptions=(named(QueryErrorCode.JSON_PARSING, problem),),
            num_servers_queried=0,
            num_servers_responded=0,
        )

    async def cancel_query(self, request: web.Request) -> web.Response:
        """`?client=true`: the id is the client's own (`X-Correlation-Id`)."""
        wanted = request.match_info["id"]
        by_client_id = request.query.get("client", "").lower() == "true"
        if not self._broker.cancel(wanted, by_client_id=by_client_id):
            raise web.HTTPNotFound(text=f"query not found on this broker: {wanted}")
        return web.Response(text=f"cancelled query {wanted}")

    async def running_queries(self, _: web.Request) -> web.Response:
        """`{requestId: sql}`."""
        return _json(self._broker.running)

    async def health(self, _: web.Request) -> web.Response:
        reason = self._broker.unready_reason()
        return web.Response(text="OK") if reason is None else web.Response(text=reason, status=503)

    async def liveness(self, _: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=telemetry.render_metrics(), headers={"Content-Type": telemetry.CONTENT_TYPE})

    async def table_names(self, _: web.Request) -> web.Response:
        """`{"tables": [raw names]}`."""
        return _json({"tables": sorted(table.raw_name for table in self._broker.directory.tables.values())})

    async def table_schema(self, request: web.Request) -> web.Response:
        """Pinot's Schema."""
        table = self._broker.directory.find(request.match_info["table"])
        if table is None:
            problem = f"table does not exist table={request.match_info['table']}"
            return _json({"code": 404, "error": problem}, status=404)
        return _json(pinot_schema.to_pinot(table.raw_name, table.schema))

    async def routing_table(self, request: web.Request) -> web.Response:
        """`{tableWithType: {server: [segments]}}`: one of the equivalent assignments, as Trino reads it."""
        return self._routing_table(request.match_info["table"])

    async def routing_table_of_query(self, request: web.Request) -> web.Response:
        """The same for the table of `?query=`, as Pinot's Spark connector asks."""
        try:
            table = parse(request.query.get("query", "")).table
        except InvalidInputError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        return self._routing_table(table or "")

    def _routing_table(self, name: str) -> web.Response:
        table = self._broker.directory.find(name)
        if table is None:
            raise web.HTTPNotFound(text="no routing for this table")
        servers = {
            route.instance: [key.rpartition("@")[0] for key in route.segments] for route in table.snapshot.select(0)
        }
        return _json({table.name: servers})

    async def time_boundary(self, _: web.Request) -> web.Response:
        """Tables of one type have none; clients take 404 for that."""
        raise web.HTTPNotFound(text="no time boundary for this table")


def _parse_body(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _MalformedRequest(f"request body is not JSON: {error}") from error


def _sql_request(fields: Any, client_request_id: str | None) -> SqlRequest:
    if not isinstance(fields, dict) or not isinstance(fields.get("sql"), str):
        raise _MalformedRequest("request has no 'sql'")
    options = fields.get("queryOptions") or ""
    if not isinstance(options, str):
        raise _MalformedRequest("'queryOptions' must be a text of name=value;name=value")
    return SqlRequest(fields["sql"], options, client_request_id)


def _response(answer: BrokerAnswer, status: int) -> web.Response:
    return web.Response(
        body=answer.to_bytes(),
        status=status,
        content_type="application/json",
        headers={ERROR_CODE_HEADER: str(answer.error_code)},
    )


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")
