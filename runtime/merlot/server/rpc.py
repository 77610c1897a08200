"""Answers brokers' requests: the plan (cached by its bytes), the segments (held while the query runs), the result.

Nothing is raised for what is wrong with a query: it becomes Pinot's code and a message. Codes that say nothing about
the query (shutting down, no capacity, table or segment missing) make the broker ask another replica.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from merlot import telemetry
from merlot.clock import Clock
from merlot.errors import CorruptionError, MerlotError
from merlot.ids import TableName
from merlot.query.context import CancelToken, ExecutionContext
from merlot.query.execute import execute
from merlot.query.expressions import walk
from merlot.query.logical import LogicalPlan, plan, refilter
from merlot.query.result import Partial
from merlot.server.keeper import TableKeeper, TableState
from merlot.server.pruning import is_skipped, prune
from merlot.server.scheduler import CORES, Scheduler
from merlot.server.tables import Acquired
from merlot.sql.tree import Column, Expr
from merlot.sql.tree_json import from_json, split
from merlot.sql.types import SqlType
from merlot.wire.messages import ServerRequest, ServerResponse

_LOG = logging.getLogger(__name__)

SHUTTING_DOWN: Final = 210
TABLE_MISSING: Final = 230
SEGMENT_MISSING: Final = 235
MAX_PLANS: Final = 2_000


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A plan, and the columns it reads with the types that the broker knew."""

    plan: LogicalPlan
    columns: Mapping[str, SqlType]


class _StaleSchemaError(MerlotError):
    """The query names columns or types that this server's copy of the schema does not have."""


class QueryHandler:
    """The handler of a server's endpoint. Used on the event loop."""

    def __init__(
        self, keeper_of: Callable[[TableName], TableKeeper | None], scheduler: Scheduler, clock: Clock, host: str
    ) -> None:
        self._keeper_of = keeper_of
        self._scheduler = scheduler
        self._clock = clock
        self._host = host
        self.is_draining = False

    async def __call__(self, request: ServerRequest) -> ServerResponse:
        started = self._clock.monotonic()
        response = await self._respond(request)
        code = 0 if response.error is None else response.error[0]
        telemetry.SERVER_QUERIES.labels(request.table, code).inc()
        telemetry.SERVER_QUERY_SECONDS.labels(request.table).observe(self._clock.monotonic() - started)
        if response.missing:
            telemetry.SERVER_MISSING.labels(request.table).inc(len(response.missing))
        return response

    async def _respond(self, request: ServerRequest) -> ServerResponse:
        if self.is_draining:
            return ServerResponse(error=(SHUTTING_DOWN, "server is shutting down"))
        keeper = self._keeper_of(request.table)
        if keeper is None or keeper.state is None:
            return ServerResponse(error=(TABLE_MISSING, f"server has no such table table={request.table}"))
        try:
            try:
                return await self._run(request, keeper, keeper.state)
            except _StaleSchemaError:
                return await self._run(request, keeper, await keeper.refresh())
        except CorruptionError as error:
            return self._respond_corrupt(request, keeper, error)
        except MerlotError as error:
            return ServerResponse(error=(error.code, str(error)))

    async def _run(self, request: ServerRequest, keeper: TableKeeper, state: TableState) -> ServerResponse:
        acquired = keeper.segments.acquire(request.segments)
        if not acquired.segments:
            keeper.segments.release(acquired)
            return ServerResponse(missing=acquired.missing)
        timeout_s = request.timeout_ms / 1000
        cancel = CancelToken.after(timeout_s, self._clock)
        context = self._context(state, acquired, cancel)
        asked_at = self._clock.monotonic()

        def work() -> Partial:
            telemetry.SERVER_WAIT_SECONDS.observe(self._clock.monotonic() - asked_at)
            prepared = _prepare(request.query)
            _check_schema(prepared, state)
            cancel.check()
            kept = prune(prepared.plan, acquired.segments, acquired.statistics, context.schema)
            wanted = replace(context, prunes=False) if is_skipped(prepared.plan) else context
            return kept.count(execute(prepared.plan, kept.segments, wanted))

        try:
            partial = await self._scheduler.run(
                request.table, work, timeout_s, on_done=lambda: keeper.segments.release(acquired)
            )
        except asyncio.CancelledError:
            cancel.cancel()
            raise
        return ServerResponse(partial=partial, missing=acquired.missing)

    def _context(self, state: TableState, acquired: Acquired, cancel: CancelToken) -> ExecutionContext:
        return ExecutionContext(
            schema=state.spec.table_schema,
            pool=self._scheduler.helpers,
            threads=CORES,
            cancel=cancel,
            limits=state.limits,
            host=self._host,
        )

    def _respond_corrupt(self, request: ServerRequest, keeper: TableKeeper, error: CorruptionError) -> ServerResponse:
        """Have the segments looked through, and the broker ask another replica meanwhile."""
        _LOG.error("query met corrupt data table=%s request=%s cause=%s", request.table, request.request_id, error)
        keeper.suspect(request.segments)
        return ServerResponse(error=(SEGMENT_MISSING, f"server set segments aside table={request.table}"))


@functools.lru_cache(maxsize=MAX_PLANS)
def _prepare(query: bytes) -> _Prepared:
    rest, where = split(query)
    template = _prepare_rest(rest)
    logical = refilter(template.plan, replace(template.plan.query, where=where))
    columns = {**template.columns, **({} if where is None else _columns(where))}
    return _Prepared(logical, columns)


@functools.lru_cache(maxsize=MAX_PLANS)
def _prepare_rest(query: bytes) -> _Prepared:
    """Of a query without WHERE: the same for all that differ in constants."""
    logical = plan(from_json(query))
    roots = [*logical.keys, *logical.aggregates, *logical.columns, *(one.filter for one in logical.aggregates)]
    return _Prepared(
        logical, {name: type_ for root in roots if root is not None for name, type_ in _columns(root).items()}
    )


def _columns(expr: Expr) -> Mapping[str, SqlType]:
    return {node.name: node.type for node in walk(expr) if isinstance(node, Column) and not node.name.startswith("$")}


def _check_schema(prepared: _Prepared, state: TableState) -> None:
    if not prepared.columns.items() <= state.column_types.items():
        raise _StaleSchemaError("schema of the server differs from the broker's")
