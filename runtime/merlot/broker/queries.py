"""Run a query from text to answer: plan, choose routes, scatter, reduce. Every outcome is an answer, errors included.

If segments are lost because the routes have moved on (a replacement, a refresh past its grace period), the whole query
runs again on the new routes, within its deadline. An answer never mixes two states of a table.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

from merlot.broker import metrics
from merlot.broker.audited_queries import audit_query
from merlot.broker.concealment import ConcealingConsumer, conceal, concealed_plan, is_concealed, with_views
from merlot.broker.directory import Directory
from merlot.broker.leaves import Leaves, QueryCall, summed_stats
from merlot.broker.offloading import in_thread, is_quick, last_step
from merlot.broker.planning.explain import EVALUATED, Explained, explain
from merlot.broker.planning.planner import PlannedQuery, Planner
from merlot.broker.query_errors import QueryException, named
from merlot.broker.query_log import QueryLog
from merlot.broker.quotas import IdentityQuotas, Quotas
from merlot.broker.response import BrokerAnswer, ResultColumns, ResultRows
from merlot.broker.scatter_gather.channels import Channels
from merlot.broker.scatter_gather.scatter import Gathered
from merlot.broker.selections import RowConsumer, Selections
from merlot.broker.settings import BrokerSettings
from merlot.broker.stages import Stages
from merlot.broker.stages_explained import with_rewrites
from merlot.broker.tables import ServedTable
from merlot.clock import Clock
from merlot.codes import QueryErrorCode
from merlot.errors import MerlotError, UnavailableError
from merlot.functions.evaluate import evaluate
from merlot.ids import InstanceId
from merlot.kernels import compile_time
from merlot.query.answer.partial import Partial
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import pinot_values
from merlot.query.context import CancelToken
from merlot.query.plan.expressions import has_aggregate
from merlot.query.shortcuts import scalar_aggregates
from merlot.query.slots import SlotSource
from merlot.security.access import ANONYMOUS, Identity, Right
from merlot.security.door import Door, check
from merlot.security.views import IdentityViews, Views
from merlot.sql.budget import Budget
from merlot.tree.errors import UnsupportedSqlError
from merlot.tree.nodes import BoundQuery, Literal
from merlot.vectors import account

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

INLINE_CONSTANTS = 100


class StartingError(UnavailableError):
    """Raised until the broker knows its tables."""

    code: ClassVar[int] = QueryErrorCode.BROKER_RESOURCE_MISSING


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """A client's query."""

    sql: str
    options: str = ""
    client_request_id: str | None = None
    by_column: bool = False
    """True if the result stays in columns, for a caller that sends it in blocks."""
    taker: RowConsumer | None = None
    """Takes the rows of a large answer as they come; the answer then lacks these rows."""
    identity: Identity = ANONYMOUS
    """Who asks."""
    client: str = ""
    """Address that they ask from."""
    views: Views | None = None
    """The asker's views of tables; None: those of the access document."""


class Answers(Protocol):
    """The part of a broker that endpoints need to answer requests."""

    @property
    def broker_id(self) -> str:
        """`Broker_host_port`."""
        ...

    async def query(self, request: SqlRequest) -> BrokerAnswer:
        """Run a query."""
        ...


@dataclass(slots=True)
class _RunningQuery:
    sql: str
    client_request_id: str | None
    task: asyncio.Task[Any]
    asker: str
    views: Views | None
    """The asker's views of tables; None to see everything."""
    is_withdrawn: bool = False
    plan: PlannedQuery | None = None


class Queries:
    """Runs queries. Belongs to the event loop's thread."""

    def __init__(
        self,
        directory: Directory,
        channels: Channels,
        clock: Clock,
        settings: BrokerSettings,
        door: Door | None = None,
    ) -> None:
        self._directory = directory
        self._door = door or Door()
        self._identity_quotas = IdentityQuotas()
        self._channels = channels
        self._clock = clock
        self._inline_values = settings.inline_values
        self._leaves = Leaves(directory, channels)
        self._selections = Selections(self._leaves)
        self._stages = Stages(self._leaves, settings)
        self._quotas = Quotas()
        self._planner = Planner(directory.find, clock, max_bytes=settings.plan_cache_bytes)
        self._numbers = itertools.count(1)
        self._first_number = clock.now_ms() << 20
        self._running: dict[str, _RunningQuery] = {}
        self.log = QueryLog(clock, settings)
        self.broker_id = InstanceId("")
        self.is_open = False
        """True once the cluster was read. Until then the broker knows no table, which does not mean that there is
        none."""

    def close(self) -> None:
        """Stop planning long texts and running queries of several stages."""
        self._planner.close()
        self.log.close()
        self._stages.close()

    async def run(self, request: SqlRequest) -> BrokerAnswer:
        """Return the answer. Raise only CancelledError, if this task is cancelled."""
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
        views, access = request.views, self._door.access
        if views is None and not self._door.is_open:
            views = IdentityViews(access, request.identity)
        running = self._running[answer.request_id] = _RunningQuery(
            request.sql, request.client_request_id, task, request.identity.name, views
        )
        try:
            limits = access.limits(request.identity)
            with self._identity_quotas.taken(request.identity, limits, self._directory.num_brokers, started):
                await self._fill(answer, request, running, number)
        except MerlotError as error:
            answer.exceptions = (QueryException.of(error),)
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
        plan = running.plan
        if plan is not None and plan.views:
            conceal(answer, plan, views)  # before it is logged: askers may read what they asked
        metrics.observe(answer, elapsed_s)
        audit_query(self._door.audit, request, answer)
        self.log.observe(request.sql, request.options, answer, elapsed_s, asker=request.identity.name)
        return answer

    def running(self, asker: str | None = None) -> Mapping[str, str]:
        """Return the texts of the queries under way by request id: all, or those that `asker` has asked."""
        return {
            request_id: running.sql for request_id, running in self._running.items() if asker in (None, running.asker)
        }

    async def plan_with(self, sql: str, work: Callable[[Budget], T]) -> T:
        """Run work on a text among the texts that are planned. Raise UnavailableError at a query's deadline, or if too
        many wait."""
        return await self._planner.run(sql, work)

    def cancel(self, wanted: str, *, by_client_id: bool = False, asker: str | None = None) -> bool:
        """Make a running query answer that it was cancelled. Return False if no query has the id, or if `asker` has
        not asked it; None may cancel any."""
        matches = [
            running
            for request_id, running in self._running.items()
            if wanted == (running.client_request_id if by_client_id else request_id) and asker in (None, running.asker)
        ]
        for running in matches:
            running.is_withdrawn = True
            running.task.cancel()
        return bool(matches)

    async def _fill(self, answer: BrokerAnswer, request: SqlRequest, running: _RunningQuery, number: int) -> None:
        """Run the query and write its result into the answer."""
        # Planning may also compile a kernel; the time that takes is not counted against the query's deadline.
        deadline_base = asyncio.get_running_loop().time() - compile_time.seconds()
        try:
            if not self.is_open:
                raise StartingError("broker is starting")
            plan = running.plan = await self._planner.plan(request.sql, request.options, running.views)
            answer.warnings = plan.wishes.warnings
            self._charge(plan, request.identity)
            if plan.wishes.client_request_id is not None:
                answer.client_request_id = plan.wishes.client_request_id
                running.client_request_id = answer.client_request_id
            if plan.is_explain and plan.views and is_concealed(plan, running.views):
                answer.result = concealed_plan(plan)
                answer.num_servers_queried = answer.num_servers_responded = 1
            elif plan.stages is not None:
                ask = QueryCall(
                    request_id=answer.request_id,
                    number=number,
                    deadline=deadline_base + compile_time.seconds() + plan.timeout_ms / 1000,
                )
                await self._stages.fill(answer, plan, plan.stages, ask)
                if plan.is_explain and plan.views and isinstance(answer.result, ResultRows):
                    answer.result = with_views(answer.result, plan)
            elif plan.constant is not None:
                answer.result = await self._constants(plan.constant, plan.timeout_ms / 1000)
                answer.num_servers_queried = answer.num_servers_responded = 1
            else:
                ask = QueryCall(
                    request_id=answer.request_id,
                    number=number,
                    deadline=deadline_base + compile_time.seconds() + plan.timeout_ms / 1000,
                )
                taker = request.taker
                if taker is not None and plan.views:
                    taker = ConcealingConsumer(taker, plan, running.views)
                if taker is None or not await self._selections.fill(answer, plan, ask, taker):
                    await self._fill_from_servers(answer, plan, ask)
            if plan.wishes.drops_rows:
                answer.result = None
        except MerlotError as error:
            answer.exceptions = (QueryException.of(error),)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a query: a bug must not show its traceback
            answer.exceptions = (_unexpected(error, request.sql, answer.request_id),)

    async def _constants(self, bound: BoundQuery, timeout_s: float) -> ResultRows:
        """Return the row of a SELECT without FROM. Values that planning did not compute are computed in a thread."""
        is_short = len(bound.select) <= INLINE_CONSTANTS
        if is_short and all(isinstance(output.expr, Literal) for output in bound.select):
            return _constant_rows(bound)
        cancel = CancelToken.after(timeout_s, self._clock)
        return await in_thread(cancel, _constant_rows, bound, cancel.check)

    def _charge(self, plan: PlannedQuery, identity: Identity) -> None:
        """Charge the query to its tables' quotas. Raise AccessDeniedError, QuotaExceededError or TableDisabledError.

        Planning has refused tables that the asker's views do not show. They are checked again, by the document of this
        moment: a long text may be planned for seconds, and a right may be withdrawn meanwhile."""
        if plan.stages is not None:
            tables = set(plan.stages.specs)
        elif plan.table is not None:
            tables = {plan.table}
        else:
            return
        for name in sorted(tables):
            check(self._door.access, identity, Right.QUERY, name)
        served = [table for name in sorted(tables) if (table := self._directory.tables.get(name)) is not None]
        for table in served:
            table.check_enabled()
        self._quotas.take(served, self._directory.num_brokers, self._clock.monotonic())

    async def _fill_from_servers(self, answer: BrokerAnswer, plan: PlannedQuery, ask: QueryCall) -> None:
        assert plan.tree is not None
        asked = await self._leaves.ask_settled(plan, ask)
        table = asked.table
        explained = None
        if plan.is_explain and asked.gathered.failed is None:
            explained = explain(plan, plan.tree, table, asked.selection, asked.gathered.partials)
            if plan.rewrites is not None:
                explained = replace(explained, rows=with_rewrites(explained.rows, plan.rewrites))
            if plan.views:
                explained = replace(explained, rows=with_views(explained.rows, plan))
        cancel = last_step(ask.deadline, self._clock)
        await self._fill_from_gathered(answer, plan, table, asked.gathered, explained, cancel)
        answer.num_segments_pruned_by_broker = asked.selection.num_pruned
        answer.total_docs = asked.total_docs(answer.stats)
        answer.tables = (table.raw_name,)

    async def _fill_from_gathered(
        self,
        answer: BrokerAnswer,
        plan: PlannedQuery,
        table: ServedTable,
        gathered: Gathered,
        explained: Explained | None,
        cancel: CancelToken,
    ) -> None:
        started = self._clock.monotonic()
        if explained is not None:
            answer.result = explained.rows
            answer.num_empty_filter_segments = explained.num_empty_filter
            answer.num_match_all_filter_segments = explained.num_match_all
        elif gathered.failed is None:
            answer.result = await self._reduced(plan, gathered.partials, table, cancel, by_column=answer.by_column)
        answer.exceptions = gathered.exceptions()
        answer.stats = summed_stats(gathered.partials)
        answer.num_servers_queried = gathered.num_servers_queried
        answer.num_servers_responded = gathered.num_servers_responded
        answer.reduce_time_ms = int((self._clock.monotonic() - started) * 1000)

    async def _reduced(
        self,
        plan: PlannedQuery,
        partials: Sequence[Partial],
        table: ServedTable,
        cancel: CancelToken,
        *,
        by_column: bool,
    ) -> ResultRows | ResultColumns:
        assert plan.tree is not None
        if is_quick(plan.tree, partials, self._inline_values):
            return _reduce(plan, partials, table, cancel, by_column=by_column)
        return await in_thread(cancel, _reduce, plan, partials, table, cancel, by_column=by_column)


def _unexpected(error: Exception, sql: str, request_id: str) -> QueryException:
    """Return what a client reads of an error that nobody raised on purpose; a bug is logged."""
    if (shortage := account.out_of_memory(error)) is not None:
        return QueryException.of(shortage)
    _LOG.exception("query failed by a bug requestId=%s sql=%.1000s", request_id, sql)
    return named(QueryErrorCode.INTERNAL, f"internal error, see the broker's log for requestId={request_id}")


def _reduce(
    plan: PlannedQuery, partials: Sequence[Partial], table: ServedTable, cancel: CancelToken, *, by_column: bool
) -> ResultRows | ResultColumns:
    tree, is_staged = plan.tree, plan.rewrites is not None
    assert tree is not None
    taken_over = None if is_staged else scalar_aggregates.answer(tree, partials)
    if taken_over is not None:
        return ResultRows(*taken_over[:2], [taken_over[2]])
    with account.Working(check=cancel.check):
        max_groups = table.spec.limits.max_groups
        reduced = reduce(tree, partials, table.schema, max_groups=max_groups, nothing_is_null=is_staged)
        columns = ResultColumns(reduced)
        table.check_rows(columns.num_rows)
        return columns if by_column else ResultRows(columns.column_names, columns.column_types, columns.rows)


def _constant_rows(bound: BoundQuery, check: Callable[[], None] | None = None) -> ResultRows:
    """Return the row of a SELECT without FROM, computed by the broker alone."""
    if bound.group_by or bound.order_by or bound.where is not None or bound.having is not None:
        raise UnsupportedSqlError("clauses without FROM")
    exprs = [output.expr for output in bound.select]
    if any(map(has_aggregate, exprs)):
        raise UnsupportedSqlError("aggregates without FROM")
    if bound.explain:
        return EVALUATED
    single = SlotSource({}, 1)
    with account.Working(check=check):
        values = [pinot_values(expr.type, evaluate(expr, single).to_arrow(1))[0] for expr in exprs]
    is_shown = bound.limit != 0 and bound.offset == 0
    labels = [output.label for output in bound.select]
    return ResultRows(labels, [str(expr.type) for expr in exprs], [values] if is_shown else [])
