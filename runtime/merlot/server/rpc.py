"""Answer brokers' requests: the plan (cached by its bytes), the segments (held while the query runs), the result.

No exception is raised for what is wrong with a query: it becomes Pinot's code and a message. Codes that say nothing
about the query (shutting down, no capacity, table or segment missing) make the broker ask another replica.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from merlot import telemetry
from merlot.aggregates import registry as aggregates
from merlot.clock import Clock
from merlot.codes import QueryErrorCode
from merlot.errors import CorruptionError, MerlotError, NotFoundError
from merlot.functions import registry as functions
from merlot.ids import TableName
from merlot.query.answer.partial import Partial
from merlot.query.context import CancelToken, ExecutionContext, TooMuchWorkError
from merlot.query.execute import execute
from merlot.query.plan.expressions import children
from merlot.query.plan.make import plan
from merlot.query.plan.nodes import Leaf, LeafKind
from merlot.query.plan.rewrite import rewritten
from merlot.query.plan.validity import check, check_filter, check_length
from merlot.segment import lost_pages
from merlot.server.explain import explain
from merlot.server.pruning import PrunedSegments, prune
from merlot.server.scheduler import Scheduler
from merlot.server.settings import ServerSettings
from merlot.server.table_data_manager import TableDataManager
from merlot.server.table_state import ServedTableState
from merlot.server.tables import Acquired
from merlot.tree.errors import InvalidPlanError
from merlot.tree.nodes import Column, Expr, Literal
from merlot.tree.tree_json import from_json, split, where_from_json
from merlot.tree.types import SqlType
from merlot.wire.messages import ServerRequest, ServerResponse

_LOG = logging.getLogger(__name__)

MAX_PLANS: Final = 2_000
MAX_LONG_PLANS: Final = 32
MAX_KEPT_BYTES: Final = 262_144
INLINE_SEGMENTS: Final = 32
"""Segments whose docs may be read on the event loop."""
JUDGED_SEGMENTS: Final = 4_096
"""Segments of one request that may be pruned by statistics on the event loop: a range of times takes 10 us, a Bloom
filter 0.1 ms."""
INLINE_QUERY_BYTES: Final = 4_096
_LOST: Final = "pages of a segment's file could not be read"
_LIGHT: Final = functions.names_that("is_light") | {
    function.name for function in aggregates.FUNCTIONS if function.is_light
}


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Prepared leaf, and the columns it reads with the types that the broker knew."""

    leaf: Leaf
    columns: Mapping[str, SqlType]
    is_light: bool
    """True for sums and counts of plain columns under plain comparisons: a few nanoseconds a row, whatever the rows
    are."""
    is_explain: bool = False
    """True if the query asks for the plan, not for the answer."""

    def fits(self, state: ServedTableState) -> bool:
        """Return True if this server's copy of the schema has the columns, with the types that the broker knew."""
        return self.columns.items() <= state.column_types.items()


class _StaleSchemaError(InvalidPlanError):
    """Raised if the query names columns or types that this server's copy of the schema does not have."""


class QueryHandler:
    """Handler of a server's endpoint. Used on the event loop."""

    def __init__(
        self,
        manager_of: Callable[[TableName], TableDataManager | None],
        scheduler: Scheduler,
        clock: Clock,
        host: str,
        settings: ServerSettings,
    ) -> None:
        self._manager_of = manager_of
        self._scheduler = scheduler
        self._clock = clock
        self._host = host
        self._settings = settings
        self.is_draining = False

    async def __call__(self, request: ServerRequest) -> ServerResponse:
        """Answer any request, by a thread; callers may try `answer_now` first."""
        started = self._clock.monotonic()
        return self._observed(request, await self._respond(request), started)

    def answer_now(self, request: ServerRequest) -> ServerResponse | None:
        """Return the answer to a query that surely takes well under a millisecond; None if that is not certain.

        Two changes of thread, and waiting for the interpreter's lock, cost more than a point query itself: few rows, in
        memory, light work."""
        if not _is_short(request):
            return None
        manager = None if self.is_draining else self._manager_of(request.table)
        if manager is None or manager.state is None:
            return None
        started = self._clock.monotonic()
        acquired: Acquired | None = None
        try:
            prepared = _prepare(request.query, request.where)
            if not prepared.is_light or prepared.is_explain:
                return None
            is_few = len(request.segments) <= INLINE_SEGMENTS
            take = manager.segments.acquire if is_few else manager.segments.acquire_again
            acquired = take(request.segments)
            faults = lost_pages.num_faults()
            pruned = None if acquired is None else _light_work(prepared, acquired, manager.state)
            if acquired is None or pruned is None:
                return None
            context = self._light_context(manager, manager.state, request)
            partial = _executed(prepared, pruned, acquired, context, faults)
            response = ServerResponse(partial=partial, missing=acquired.missing)
        except TooMuchWorkError:
            return None
        except MerlotError as error:
            response = self._respond_error(request, manager, error)
        finally:
            if acquired is not None:
                manager.segments.release(acquired)
        return self._observed(request, response, started)

    def _observed(self, request: ServerRequest, response: ServerResponse, started: float) -> ServerResponse:
        code = 0 if response.error is None else response.error[0]
        _counter(request.table, code).inc()
        _histogram(request.table).observe(self._clock.monotonic() - started)
        if response.missing:
            telemetry.SERVER_MISSING.labels(request.table).inc(len(response.missing))
        return response

    async def _respond(self, request: ServerRequest) -> ServerResponse:
        if self.is_draining:
            return ServerResponse(error=(QueryErrorCode.SERVER_SHUTTING_DOWN, "server is shutting down"))
        manager = self._manager_of(request.table)
        if manager is None or manager.state is None:
            return ServerResponse(
                error=(QueryErrorCode.SERVER_TABLE_MISSING, f"server has no such table table={request.table}")
            )
        try:
            try:
                return await self._run(request, manager, manager.state)
            except _StaleSchemaError:
                return await self._run(request, manager, await manager.refresh())
        except MerlotError as error:
            return self._respond_error(request, manager, error)

    async def _run(self, request: ServerRequest, manager: TableDataManager, state: ServedTableState) -> ServerResponse:
        acquired = manager.segments.acquire(request.segments)
        if not acquired.segments and not acquired.rows:
            manager.segments.release(acquired)
            return ServerResponse(missing=acquired.missing)
        context = self._heavy_context(manager, state, request)
        asked_at = self._clock.monotonic()

        def work() -> Partial:
            telemetry.SERVER_WAIT_SECONDS.observe(self._clock.monotonic() - asked_at)
            prepared = _prepare(request.query, request.where)
            _check_schema(prepared, state)
            if prepared.is_explain:
                is_light = prepared.is_light and _is_short(request)
                light = _light_work(prepared, acquired, state) if is_light else None
                return explain(prepared.leaf, acquired, context, light, max_docs=self._settings.inline_docs)
            return _work(prepared, acquired, context)

        try:
            partial = await self._scheduler.run(
                request.table,
                work,
                request.timeout_ms / 1000,
                on_done=lambda: manager.segments.release(acquired),
            )
        except asyncio.CancelledError:
            context.cancel.cancel()
            raise
        return ServerResponse(partial=partial, missing=acquired.missing)

    def _context(self, state: ServedTableState, request: ServerRequest) -> ExecutionContext:
        return ExecutionContext(
            schema=state.spec.table_schema,
            indexing=state.spec.indexing,
            pool=self._scheduler.helpers,
            threads=self._settings.query_threads,
            docs_per_thread=self._settings.docs_per_thread,
            cancel=CancelToken.after(request.timeout_ms / 1000, self._clock),
            limits=state.limits,
            host=self._host,
        )

    def _heavy_context(
        self, manager: TableDataManager, state: ServedTableState, request: ServerRequest
    ) -> ExecutionContext:
        """Return the context of a query in a thread: it is answered from separate segments while these are being
        coalesced."""
        loop = asyncio.get_running_loop()

        def coalesce_later(work: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(self._coalesce_later, manager, request.segments, work)

        return replace(self._context(state, request), coalesce_later=coalesce_later)

    def _light_context(
        self, manager: TableDataManager, state: ServedTableState, request: ServerRequest
    ) -> ExecutionContext:
        """Return the context of a query on the loop: one thread, few docs, and nothing to be made for other queries."""
        return replace(
            self._context(state, request),
            pool=None,
            most_docs=self._settings.inline_docs,
            coalesce_later=functools.partial(self._coalesce_later, manager, request.segments),
        )

    def _coalesce_later(self, manager: TableDataManager, segments: Sequence[str], work: Callable[[], None]) -> None:
        """Coalesce a column of segments on another thread, and hold the segments meanwhile."""
        acquired = manager.segments.acquire(segments)
        future = asyncio.get_running_loop().run_in_executor(self._scheduler.coalescer, work)

        def done(joining: asyncio.Future[None]) -> None:
            manager.segments.release(acquired)
            error = None if joining.cancelled() else joining.exception()
            if error is not None:
                _LOG.warning("segments not joined table=%s cause=%s", manager.table, error)

        future.add_done_callback(done)

    def _respond_error(self, request: ServerRequest, manager: TableDataManager, error: MerlotError) -> ServerResponse:
        if not isinstance(error, CorruptionError | NotFoundError):
            return ServerResponse(error=(error.code, str(error)))
        # A file was changed or removed. The segments are checked, and the broker asks another replica.
        text = "query met corrupt or missing data table=%s request=%s cause=%s"
        _LOG.error(text, request.table, request.request_id, error)
        manager.suspect(request.segments)
        return ServerResponse(
            error=(QueryErrorCode.SERVER_SEGMENT_MISSING, f"server set segments aside table={request.table}")
        )


def _is_short(request: ServerRequest) -> bool:
    return len(request.query) + len(request.where) <= INLINE_QUERY_BYTES and len(request.segments) <= JUDGED_SEGMENTS


def _light_work(prepared: _Prepared, acquired: Acquired, state: ServedTableState) -> PrunedSegments | None:
    """Return the segments to read on the event loop. None unless few are left to read of those that are here, their
    columns were read before, and the schema is the broker's."""
    if not (acquired.segments or acquired.rows) or not prepared.fits(state):
        return None
    # Reading so few docs costs less than pruning their segments by statistics; and sets of segments that are always
    # the same are coalesced already.
    pruned = PrunedSegments(acquired.segments)
    if len(acquired.segments) > INLINE_SEGMENTS:
        schema = state.spec.table_schema
        if not acquired.statistics.has(schema, prepared.leaf):
            return None
        pruned = prune(prepared.leaf, acquired.segments, acquired.statistics, schema)
    is_light = len(pruned.segments) <= INLINE_SEGMENTS and acquired.has_read(prepared.columns, pruned.positions)
    return pruned if is_light else None


def _work(prepared: _Prepared, acquired: Acquired, context: ExecutionContext) -> Partial:
    context.cancel.check()
    faults = lost_pages.num_faults()
    pruned = prune(prepared.leaf, acquired.segments, acquired.statistics, context.schema)
    partial = _executed(prepared, pruned, acquired, context, faults)
    if len(pruned.segments) <= INLINE_SEGMENTS:
        acquired.note_read(prepared.columns, pruned.positions)
    return partial


def _executed(
    prepared: _Prepared, pruned: PrunedSegments, acquired: Acquired, context: ExecutionContext, faults: int
) -> Partial:
    """Return the answer. Raises CorruptionError if pages were lost since `faults` was counted, or earlier in one of the
    segments: zeros may have been read in their place, whatever the result was."""
    try:
        partial = execute(prepared.leaf, (*pruned.segments, *acquired.rows), context)
    except Exception as error:
        if _has_lost(acquired, faults):
            raise CorruptionError(_LOST) from error
        raise
    if _has_lost(acquired, faults):
        raise CorruptionError(_LOST)
    return acquired.count(pruned.count(partial))


def _has_lost(acquired: Acquired, faults: int) -> bool:
    now = lost_pages.num_faults()
    return now > 0 and (now != faults or any(held.segment.is_lost for held in acquired.held))


def _prepare(query: bytes, where: bytes) -> _Prepared:
    """Prepare a query. A tree takes some twenty times the bytes of its text: many short plans are cached, few long
    plans, and no huge plans."""
    size = len(query) + len(where)
    check_length(size)
    if size <= INLINE_QUERY_BYTES:
        return _prepare_short(query, where)
    return (_prepare_long if size <= MAX_KEPT_BYTES else _prepare_anew)(query, where)


def _prepare_anew(query: bytes, where: bytes) -> _Prepared:
    if where:
        condition = where_from_json(where)  # rewritten by the broker
        check_filter(condition)
    else:
        query, condition = split(query)
        check_filter(condition)
        condition = rewritten(condition)
    template = (_prepare_rest if len(query) <= INLINE_QUERY_BYTES else _prepare_rest_anew)(query)
    columns = dict(template.columns)
    is_light = _scan(condition, columns) and template.is_light
    return _Prepared(Leaf(template.leaf.work, condition), columns, is_light, template.is_explain)


def _prepare_rest_anew(query: bytes) -> _Prepared:
    """Prepare a query without its WHERE: the result is the same for all that differ in constants."""
    bound = from_json(query)
    check(bound)
    leaf = plan(bound).leaf
    work = leaf.work
    roots = [*work.keys, *work.aggregates, *work.columns, *(aggregate.filter for aggregate in work.aggregates)]
    columns: dict[str, SqlType] = {}
    are_light = [_scan(root, columns) for root in roots]
    return _Prepared(leaf, columns, work.kind is LeafKind.AGGREGATION and all(are_light), bound.explain)


_prepare_short = functools.lru_cache(maxsize=MAX_PLANS)(_prepare_anew)
_prepare_long = functools.lru_cache(maxsize=MAX_LONG_PLANS)(_prepare_anew)
_prepare_rest = functools.lru_cache(maxsize=MAX_PLANS)(_prepare_rest_anew)


def _scan(expr: Expr | None, columns: dict[str, SqlType]) -> bool:
    """Add the columns of an expression to `columns`. Return True if no row can cost much: no arrays, no functions but
    comparisons.

    One walk for both, since it is done for every query."""
    if expr is None or isinstance(expr, Literal):
        return True
    if isinstance(expr, Column):
        if not expr.name.startswith("$") and columns.setdefault(expr.name, expr.type) != expr.type:
            raise InvalidPlanError(f"column has several types column={expr.name:.100}")
        return not expr.type.is_array
    is_light = expr.function in _LIGHT
    for child in children(expr):
        is_light &= _scan(child, columns)
    return is_light


def _check_schema(prepared: _Prepared, state: ServedTableState) -> None:
    if not prepared.fits(state):
        raise _StaleSchemaError("schema of the server differs from the broker's")


@functools.lru_cache(maxsize=1024)
def _counter(table: TableName, code: int) -> Any:
    """Return the counter; cached, since looking up a child costs more than counting."""
    return telemetry.SERVER_QUERIES.labels(table, code)


@functools.lru_cache(maxsize=1024)
def _histogram(table: TableName) -> Any:
    return telemetry.SERVER_QUERY_SECONDS.labels(table)
