"""A query from text to answer: plan, choose routes, scatter, reduce. Every outcome is an answer, errors included.

If segments are lost because the routes have moved on meanwhile (a replacement, a refresh past its grace period), the
whole query runs again on the new routes, within its deadline: parts of two states of a table are never mixed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from merlot.broker import metrics
from merlot.broker.asking import scatter
from merlot.broker.asking.channels import Channels
from merlot.broker.asking.scatter import Gathered, ScatterRequest
from merlot.broker.directory import Directory
from merlot.broker.planning.cuts import cut_filters
from merlot.broker.planning.explain import Explained, explain
from merlot.broker.planning.planner import PlannedQuery, Planner
from merlot.broker.query_errors import QueryException, named
from merlot.broker.response import BrokerAnswer, ResultColumns, ResultRows
from merlot.broker.routing import pruning
from merlot.broker.routing.pruning import Selection
from merlot.broker.settings import BrokerSettings
from merlot.broker.tables import ServedTable
from merlot.clock import Clock
from merlot.codes import QueryErrorCode
from merlot.errors import MerlotError, NotFoundError, UnavailableError
from merlot.functions.evaluate import evaluate
from merlot.ids import InstanceId, TableName, raw_name
from merlot.query.answer.partial import Partial
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import QueryStats, pinot_values
from merlot.query.plan.expressions import has_aggregate
from merlot.query.plan.nodes import Leaf, Reduce
from merlot.query.shortcuts import one_row
from merlot.query.slots import SlotSource
from merlot.tree.errors import UnsupportedSqlError
from merlot.tree.nodes import BoundQuery
from merlot.vectors.errors import LimitExceededError

_LOG = logging.getLogger(__name__)

MAX_RUNS = 3
MIN_COLUMNS = 10
"""A row costs as much as so many values, however few it has."""
INLINE_CONSTANTS = 100
INLINE_FILTER_BYTES = 16_384
"""Longer filters are held against segments in a thread: thousands of conditions take a second over 10,000 segments."""


class StartingError(UnavailableError):
    """The broker does not know its tables yet."""

    code: ClassVar[int] = QueryErrorCode.BROKER_RESOURCE_MISSING


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """What a client asks."""

    sql: str
    options: str = ""
    client_request_id: str | None = None
    by_column: bool = False
    """Whether the result is left in columns, for who takes it in blocks."""


@dataclass(slots=True)
class _Running:
    sql: str
    client_request_id: str | None
    task: asyncio.Task[Any]
    is_withdrawn: bool = False


class Queries:
    """Runs queries. On the event loop's thread."""

    def __init__(self, directory: Directory, channels: Channels, clock: Clock, settings: BrokerSettings) -> None:
        self._directory = directory
        self._channels = channels
        self._clock = clock
        self._inline_values = settings.inline_values
        self._planner = Planner(directory.find, clock, max_bytes=settings.plan_cache_bytes)
        self._numbers = itertools.count(1)
        self._first_number = clock.now_ms() << 20
        self._running: dict[str, _Running] = {}
        self.broker_id = InstanceId("")
        self.is_open = False
        """Whether the cluster was read: before that no table is known, which says nothing of the tables."""

    def close(self) -> None:
        """Take no more long texts."""
        self._planner.close()

    async def run(self, request: SqlRequest) -> BrokerAnswer:
        """The answer; raises only what cancels this task."""
        started = self._clock.monotonic()
        number = next(self._numbers)
        answer = BrokerAnswer(
            request_id=str(self._first_number + number),
            client_request_id=request.client_request_id,
            broker_id=self.broker_id,
            num_servers_queried=0,
            num_servers_responded=0,
            by_column=request.by_column,
        )
        task = asyncio.current_task()
        assert task is not None
        running = self._running[answer.request_id] = _Running(request.sql, request.client_request_id, task)
        try:
            await self._fill(answer, request, number)
        except asyncio.CancelledError:
            if not running.is_withdrawn:
                raise
            running.task.uncancel()
            text = "query was cancelled"
            answer.exceptions = (named(QueryErrorCode.QUERY_CANCELLATION, text),)
        finally:
            del self._running[answer.request_id]
        elapsed_s = self._clock.monotonic() - started
        answer.time_used_ms = int(elapsed_s * 1000)
        metrics.observe(answer, elapsed_s)
        return answer

    @property
    def running(self) -> Mapping[str, str]:
        """Texts of the queries under way, by request id."""
        return {request_id: running.sql for request_id, running in self._running.items()}

    def cancel(self, wanted: str, *, by_client_id: bool = False) -> bool:
        """Make a running query answer that it was cancelled; False if there is none of that id."""
        found = [
            running
            for request_id, running in self._running.items()
            if wanted == (running.client_request_id if by_client_id else request_id)
        ]
        for running in found:
            running.is_withdrawn = True
            running.task.cancel()
        return bool(found)

    async def _fill(self, answer: BrokerAnswer, request: SqlRequest, number: int) -> None:
        """Write into the answer what became of the query."""
        deadline_base = asyncio.get_running_loop().time()
        try:
            if not self.is_open:
                raise StartingError("broker is starting")
            plan = await self._planner.plan(request.sql, request.options)
            answer.warnings = plan.wishes.warnings
            if plan.wishes.client_request_id is not None:
                answer.client_request_id = plan.wishes.client_request_id
                self._running[answer.request_id].client_request_id = answer.client_request_id
            if plan.constant is not None:
                if len(plan.constant.select) > INLINE_CONSTANTS:
                    answer.result = await asyncio.to_thread(_constant_rows, plan.constant)
                else:
                    answer.result = _constant_rows(plan.constant)
                answer.num_servers_queried = answer.num_servers_responded = 1
            else:
                await self._fill_from_servers(answer, plan, number, deadline_base + plan.timeout_ms / 1000)
            if plan.wishes.drops_rows:
                answer.result = None
        except MerlotError as error:
            answer.exceptions = (QueryException.of(error),)
        except Exception:  # noqa: BLE001 - the outermost frame of a query: a bug must not show its traceback
            _LOG.exception("query failed by a bug requestId=%s sql=%.1000s", answer.request_id, request.sql)
            text = f"internal error, see the broker's log for requestId={answer.request_id}"
            answer.exceptions = (named(QueryErrorCode.INTERNAL, text),)

    async def _fill_from_servers(self, answer: BrokerAnswer, plan: PlannedQuery, number: int, deadline: float) -> None:
        assert plan.table is not None
        assert plan.tree is not None
        leaf = plan.tree.leaf
        for run in range(1, MAX_RUNS + 1):
            table = self._table(plan.table)
            if plan.prunes_by_functions:
                await _prepare(table, leaf)
            selection = await _selected(table, plan, leaf, number)
            request = ScatterRequest(
                request_id=answer.request_id,
                table=table.name,
                query=plan.query,
                where=plan.where,
                cut_wheres=cut_filters(table, plan.where),
                snapshot=table.snapshot,
                routes=selection.routes,
                deadline=deadline,
                unavailable=selection.unavailable,
            )
            gathered = await scatter.gather(request, self._channels, self._directory.report_call)
            if gathered.num_retries:
                metrics.observe_retries(table.raw_name, gathered.num_retries)
            if run == MAX_RUNS or not self._has_moved_on(table, gathered):
                explained = None
                if plan.is_explain and gathered.failed is None:
                    explained = explain(plan, plan.tree, table, selection, gathered.partials)
                await self._fill_from_gathered(answer, plan.tree, table, gathered, explained)
                break
        answer.num_segments_pruned_by_broker = selection.num_pruned
        answer.total_docs = table.snapshot.total_docs + _consumed_docs(table, selection, answer.stats)
        answer.tables = (table.raw_name,)

    def _table(self, name: TableName) -> ServedTable:
        table = self._directory.find(name)
        if table is None:
            raise NotFoundError(f"table does not exist table={raw_name(name)}")
        return table

    def _has_moved_on(self, table: ServedTable, gathered: Gathered) -> bool:
        """Whether what was lost is no longer what should be asked for."""
        if not gathered.lost or gathered.late:
            return False
        current = self._directory.find(table.name)
        if current is None or current.snapshot is table.snapshot:
            return False
        segments = (current.snapshot.by_key.get(key) for key in gathered.lost)
        return any(segment is None or not gathered.silent.issuperset(segment.replicas) for segment in segments)

    async def _fill_from_gathered(
        self, answer: BrokerAnswer, tree: Reduce, table: ServedTable, gathered: Gathered, explained: Explained | None
    ) -> None:
        started = self._clock.monotonic()
        if explained is not None:
            answer.result = explained.rows
            answer.num_empty_filter_segments = explained.num_empty_filter
            answer.num_match_all_filter_segments = explained.num_match_all
        elif gathered.failed is None:
            answer.result = await self._reduced(tree, gathered.partials, table, by_column=answer.by_column)
        answer.exceptions = gathered.exceptions()
        answer.stats = _added(gathered.partials)
        answer.num_servers_queried = gathered.num_servers_queried
        answer.num_servers_responded = gathered.num_servers_responded
        answer.reduce_time_ms = int((self._clock.monotonic() - started) * 1000)

    async def _reduced(
        self, tree: Reduce, partials: Sequence[Partial], table: ServedTable, *, by_column: bool
    ) -> ResultRows | ResultColumns:
        num_rows = sum([partial.num_rows for partial in partials])
        if num_rows * max(len(tree.finish.outputs), MIN_COLUMNS) > self._inline_values:
            return await asyncio.to_thread(_reduce, tree, partials, table, by_column=by_column)
        return _reduce(tree, partials, table, by_column=by_column)


def _consumed_docs(table: ServedTable, selection: Selection, stats: QueryStats) -> int:
    """Rows that streams have brought and that no record counts: servers tell of them with those they were asked for."""
    if not table.snapshot.tails:
        return 0
    asked = (key for route in selection.routes for key in route.segments)
    return max(0, stats.total_docs - sum(table.snapshot.by_key[key].record.total_docs for key in asked))


async def _prepare(table: ServedTable, leaf: Leaf) -> None:
    """Off the loop: bounds of a function of 10,000 segments took 20 ms, kernels that were never called a second."""
    if table.pruning is not None and not table.pruning.is_prepared(leaf.filter):
        await asyncio.to_thread(table.pruning.prepare, leaf.filter)


async def _selected(table: ServedTable, plan: PlannedQuery, leaf: Leaf, number: int) -> Selection:
    if len(plan.where) <= INLINE_FILTER_BYTES:
        return _select(table, plan, leaf, number)
    return await asyncio.to_thread(_select, table, plan, leaf, number)


def _select(table: ServedTable, plan: PlannedQuery, leaf: Leaf, number: int) -> Selection:
    if plan.skips_pruning:
        return pruning.select(table.snapshot, number)
    return table.select(leaf.filter, number, null_handling=leaf.work.null_handling)


def _reduce(
    plan: Reduce, partials: Sequence[Partial], table: ServedTable, *, by_column: bool
) -> ResultRows | ResultColumns:
    limits = table.spec.limits
    taken_over = one_row.answer(plan, partials)
    if taken_over is not None:
        return ResultRows(*taken_over[:2], [taken_over[2]])
    reduced = reduce(plan, partials, table.schema, max_groups=limits.max_groups)
    columns = ResultColumns(reduced)
    _check_rows(columns.num_rows, limits.max_rows)
    return columns if by_column else ResultRows(columns.column_names, columns.column_types, columns.rows)


def _added(partials: Sequence[Partial]) -> QueryStats:
    if not partials:
        return QueryStats()
    first, *others = (partial.stats for partial in partials)
    return sum(others, first)


def _check_rows(num_rows: int, max_rows: int | None) -> None:
    if max_rows is not None and num_rows > max_rows:
        raise LimitExceededError(f"answer has more rows than the table allows rows={num_rows} limit={max_rows}")


def _constant_rows(bound: BoundQuery) -> ResultRows:
    """A SELECT without FROM: one row of constants, from the broker alone."""
    if bound.group_by or bound.order_by or bound.where is not None or bound.having is not None:
        raise UnsupportedSqlError("clauses without FROM")
    exprs = [output.expr for output in bound.select]
    if any(map(has_aggregate, exprs)):
        raise UnsupportedSqlError("aggregates without FROM")
    single = SlotSource({}, 1)
    values = [pinot_values(expr.type, evaluate(expr, single).to_arrow(1))[0] for expr in exprs]
    is_shown = bound.limit != 0 and bound.offset == 0
    labels = [output.label for output in bound.select]
    return ResultRows(labels, [str(expr.type) for expr in exprs], [values] if is_shown else [])
