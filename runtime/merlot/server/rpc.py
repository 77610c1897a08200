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
from typing import Any, Final

from merlot import telemetry
from merlot.clock import Clock
from merlot.errors import CorruptionError, MerlotError
from merlot.ids import TableName
from merlot.query.context import CancelToken, ExecutionContext
from merlot.query.execute import execute
from merlot.query.expressions import walk
from merlot.query.logical import LogicalPlan, PlanKind, plan, refilter
from merlot.query.partial import Partial
from merlot.server.keeper import TableKeeper, TableState
from merlot.server.pruning import is_skipped, prune
from merlot.server.scheduler import CORES, Scheduler
from merlot.server.tables import Acquired
from merlot.sql.tree import Column, Expr, Literal
from merlot.sql.tree_json import from_json, split
from merlot.sql.types import SqlType
from merlot.wire.messages import ServerRequest, ServerResponse

_LOG = logging.getLogger(__name__)

SHUTTING_DOWN: Final = 210
TABLE_MISSING: Final = 230
SEGMENT_MISSING: Final = 235
MAX_PLANS: Final = 2_000
INLINE_SEGMENTS: Final = 32
INLINE_DOCS: Final = 65_536
INLINE_QUERY_BYTES: Final = 4_096
MIN_SHARED_DOCS: Final = 131_072
"""Fewest docs for which a query borrows other threads."""
_LIGHT: Final = frozenset(
    {"count", "sum", "min", "max", "avg", "and", "or", "not", "equals", "not_equals", "between", "in", "not_in"}
    | {"less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal", "is_null", "is_not_null"}
)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A plan, and the columns it reads with the types that the broker knew."""

    plan: LogicalPlan
    columns: Mapping[str, SqlType]
    is_light: bool = False
    """Sums and counts of plain columns under plain comparisons: a few nanoseconds a row, whatever the rows are."""


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
        _counter(request.table, code).inc()
        _histogram(request.table).observe(self._clock.monotonic() - started)
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

        if self._is_inline(request, acquired):
            try:
                partial = self._work(request, acquired, state, context)
                return ServerResponse(partial=partial, missing=acquired.missing)
            finally:
                keeper.segments.release(acquired)

        def work() -> Partial:
            telemetry.SERVER_WAIT_SECONDS.observe(self._clock.monotonic() - asked_at)
            return self._work(request, acquired, state, context)

        try:
            partial = await self._scheduler.run(
                request.table, work, timeout_s, on_done=lambda: keeper.segments.release(acquired)
            )
        except asyncio.CancelledError:
            cancel.cancel()
            raise
        return ServerResponse(partial=partial, missing=acquired.missing)

    @staticmethod
    def _is_inline(request: ServerRequest, acquired: Acquired) -> bool:
        """Whether to run it on the event loop: two changes of thread and waiting for the interpreter's lock cost more
        than a point query itself. Only what surely takes well under a millisecond: few rows, in memory, light work."""
        if len(request.query) > INLINE_QUERY_BYTES or len(acquired.segments) > INLINE_SEGMENTS:
            return False
        if sum(segment.num_docs for segment in acquired.segments) > INLINE_DOCS:
            return False
        prepared = _prepare(request.query)
        return prepared.is_light and acquired.has_read(prepared.columns)

    @staticmethod
    def _work(request: ServerRequest, acquired: Acquired, state: TableState, context: ExecutionContext) -> Partial:
        prepared = _prepare(request.query)
        _check_schema(prepared, state)
        context.cancel.check()
        kept = prune(prepared.plan, acquired.segments, acquired.statistics, context.schema)
        # Waking helpers for a few thousand rows costs more than reading them: 208 us alone, 243 with them, in all.
        is_small = sum(segment.num_docs for segment in kept.segments) < MIN_SHARED_DOCS
        pool = None if is_small else context.pool
        wanted = replace(context, pool=pool, prunes=not is_skipped(prepared.plan))
        partial = kept.count(execute(prepared.plan, kept.segments, wanted))
        if len(acquired.held) <= INLINE_SEGMENTS:
            acquired.note_read(prepared.columns)
        return partial

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
    return _Prepared(logical, columns, template.is_light and _is_light(where))


@functools.lru_cache(maxsize=MAX_PLANS)
def _prepare_rest(query: bytes) -> _Prepared:
    """Of a query without WHERE: the same for all that differ in constants."""
    logical = plan(from_json(query))
    roots = [*logical.keys, *logical.aggregates, *logical.columns, *(one.filter for one in logical.aggregates)]
    columns: dict[str, SqlType] = {}
    for root in roots:
        columns.update(_columns(root) if root is not None else {})
    return _Prepared(logical, columns, logical.kind is PlanKind.AGGREGATION and all(map(_is_light, roots)))


def _is_light(expr: Expr | None) -> bool:
    """Whether no row can cost much: no arrays, no functions but comparisons."""
    return expr is None or all(
        not node.type.is_array if isinstance(node, Column) else isinstance(node, Literal) or node.function in _LIGHT
        for node in walk(expr)
    )


def _columns(expr: Expr) -> Mapping[str, SqlType]:
    return {node.name: node.type for node in walk(expr) if isinstance(node, Column) and not node.name.startswith("$")}


def _check_schema(prepared: _Prepared, state: TableState) -> None:
    if not prepared.columns.items() <= state.column_types.items():
        raise _StaleSchemaError("schema of the server differs from the broker's")


@functools.lru_cache(maxsize=1024)
def _counter(table: TableName, code: int) -> Any:
    """Looking up a child costs more than counting."""
    return telemetry.SERVER_QUERIES.labels(table, code)


@functools.lru_cache(maxsize=1024)
def _histogram(table: TableName) -> Any:
    return telemetry.SERVER_QUERY_SECONDS.labels(table)
