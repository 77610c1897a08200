"""Run queries of several stages: ask for the leaves, and let the engine compute the answer from them.

Leaves are asked for at once, except that a much larger leaf waits for the keys of those that it is joined with.

If a leaf is incomplete the query fails: a join over part of a table is no part of the answer. A limited number of
queries run at a time, since each may fill the memory that it is allowed; the others wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final

from merlot import memory
from merlot.broker.leaves import MAX_RUNS, Leaves, QueryCall, TableAnswers, summed_stats
from merlot.broker.offloading import in_thread, last_step
from merlot.broker.planning.planner import PlannedQuery, PlannedStages
from merlot.broker.response import BrokerAnswer, ResultColumns, ResultRows
from merlot.broker.settings import BrokerSettings, stage_memory_bytes
from merlot.broker.stages_explained import explain_stages
from merlot.broker.tables import ServedTable
from merlot.codes import QueryErrorCode
from merlot.errors import UnavailableError
from merlot.kernels import compile_time
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import ResultTable
from merlot.query.context import CancelToken
from merlot.query.plan.nodes import refilter
from merlot.query.plan.rewrite import rewritten
from merlot.query.stages.engine import BATCH_ROWS, EngineRun, StageInterruptedError, relation_of
from merlot.query.stages.engine_instances import EngineLimits
from merlot.query.stages.key_filters import KeyFilter, estimated_rows, narrowed, worthwhile
from merlot.query.stages.spill_folders import clear_abandoned
from merlot.tree.tree_json import where_to_json
from merlot.vectors import account
from merlot.vectors.errors import LimitExceededError

MAX_WAITING: Final = 50
MAX_ROWS: Final = 10_000_000
"""Most rows of an answer, if no table has a lower limit."""
INTERRUPT_S: Final = 0.1
"""Time between two interrupts of a query that is to end."""


class StagesBusyError(UnavailableError):
    """Raised if too many queries of several stages wait (Pinot's TOO_MANY_REQUESTS)."""

    code: ClassVar[int] = QueryErrorCode.TOO_MANY_REQUESTS


class StagesLateError(UnavailableError):
    """Raised if the query's turn does not come within its time (Pinot's QUERY_SCHEDULING_TIMEOUT)."""

    code: ClassVar[int] = QueryErrorCode.QUERY_SCHEDULING_TIMEOUT


class Stages:
    """Runs queries of several stages. Belongs to the event loop's thread; the engine has threads of its own."""

    def __init__(self, leaves: Leaves, settings: BrokerSettings) -> None:
        self._leaves = leaves
        self._settings = settings
        self._memory_bytes = stage_memory_bytes(settings, memory.total_bytes())
        self._turns = asyncio.Semaphore(settings.stage_queries)
        self._executor = ThreadPoolExecutor(settings.stage_queries, thread_name_prefix="stages")
        self._executor.submit(clear_abandoned)
        self._num_waiting = 0

    def close(self) -> None:
        """Start no more queries."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def fill(self, answer: BrokerAnswer, plan: PlannedQuery, stages: PlannedStages, asking: QueryCall) -> None:
        """Run the query and write its result into the answer. Raise MerlotError."""
        counted_s = compile_time.seconds()
        async with self._turn(asking.deadline):
            asked = await self._ask_all(stages, asking)
            answers = {id_: leaf.answers for id_, leaf in asked.items()}
            _add_stats(answer, answers)
            failed = next((leaf.gathered for leaf in answers.values() if leaf.gathered.exceptions()), None)
            if failed is not None:
                answer.exceptions = failed.exceptions()
            elif plan.is_explain:
                answer.result = explain_stages(stages, answers)
            else:
                deadline = asking.deadline + compile_time.seconds() - counted_s
                columns = ResultColumns(await self._run_engine(stages, asked, deadline))
                clock = asyncio.get_running_loop().time
                rows = partial(_rows, columns, lambda: clock() > deadline)
                answer.result = columns if answer.by_column else await asyncio.to_thread(rows)

    @asynccontextmanager
    async def _turn(self, deadline: float) -> AsyncIterator[None]:
        if self._num_waiting >= MAX_WAITING:
            raise StagesBusyError(f"too many queries of several stages wait limit={MAX_WAITING}")
        self._num_waiting += 1
        try:
            async with compile_time.timeout(deadline - asyncio.get_running_loop().time()):
                await self._turns.acquire()
        except TimeoutError as error:
            raise StagesLateError("query of several stages had no turn within its time") from error
        finally:
            self._num_waiting -= 1
        try:
            yield
        finally:
            self._turns.release()

    async def _ask_all(self, stages: PlannedStages, asking: QueryCall) -> Mapping[str, LeafAnswers]:
        """Ask for all leaves. All leaves of a table are answered from the same state of it."""
        for run in range(1, MAX_RUNS + 1):
            tables = {plan.table: self._leaves.table(plan.table) for plan in stages.leaves.values() if plan.table}
            asked = await self._ask(stages, tables, asking)
            if run == MAX_RUNS or not any(self._leaves.has_moved_on(leaf.answers) for leaf in asked.values()):
                break
        return asked

    async def _ask(
        self, stages: PlannedStages, tables: Mapping[Any, ServedTable], asking: QueryCall
    ) -> dict[str, LeafAnswers]:
        waits = self._filters(stages, tables, asking)
        tasks: dict[_LeafKey, asyncio.Task[LeafAnswers]] = {}

        async def ask(plan: PlannedQuery, filters: Sequence[KeyFilter]) -> LeafAnswers:
            if filters:
                sources = [await tasks[_key(stages.leaves[key_filter.source])] for key_filter in filters]
                cancel = last_step(asking.deadline)
                plan = await in_thread(cancel, _narrowed, plan, filters, sources, cancel)
            return LeafAnswers(plan, await self._leaves.ask(plan, tables[plan.table], asking))

        for id_, plan in stages.leaves.items():
            if _key(plan) not in tasks:
                tasks[_key(plan)] = asyncio.create_task(ask(plan, waits.get(id_, ())))
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
        return {id_: tasks[_key(plan)].result() for id_, plan in stages.leaves.items()}

    def _filters(
        self, stages: PlannedStages, tables: Mapping[Any, ServedTable], asking: QueryCall
    ) -> Mapping[str, Sequence[KeyFilter]]:
        """Return the filters by keys of other leaves for which leaves wait. A leaf that is asked once for several
        relations has none: each of them may need other rows."""
        if not stages.bound.filters or stages.bound.statement.explain:
            return {}
        keys = Counter(map(_key, stages.leaves.values()))
        filters = [key_filter for key_filter in stages.bound.filters if keys[_key(stages.leaves[key_filter.leaf])] == 1]
        rows = {
            id_: estimated_rows(self._leaves.num_docs(plan, tables[plan.table], asking), plan.tree.leaf.filter)
            for id_, plan in stages.leaves.items()
            if plan.tree is not None
        }
        return worthwhile(filters, rows)

    async def _run_engine(
        self, stages: PlannedStages, asked: Mapping[str, LeafAnswers], deadline: float
    ) -> ResultTable:
        limits = [table.spec.limits for table in stages.bound.tables.values()]
        settings = self._settings
        memory_bytes = min(self._memory_bytes, account.TOTAL.query_bytes)
        engine = EngineRun(
            EngineLimits(memory_bytes=memory_bytes, spill_bytes=settings.stage_spill_bytes),
            max_rows=min((limit.max_rows for limit in limits if limit.max_rows is not None), default=MAX_ROWS),
        )
        cancel = CancelToken()
        work = _EngineRun(stages, asked, memory_bytes, cancel)
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._executor, work.run, engine)
        try:
            async with compile_time.timeout(deadline - loop.time()):
                return await asyncio.shield(running)
        except TimeoutError as error:
            raise StageInterruptedError("query passed its deadline in its stages") from error
        finally:
            cancel.cancel()
            # The next query needs the thread and the memory: wait until this one has let go of both.
            await ended(running, engine)


_LeafKey = tuple[bytes, bytes]


@dataclass(frozen=True)
class LeafAnswers:
    """Answers to a leaf, and the plan that was asked: it may have filters by the keys of other leaves."""

    plan: PlannedQuery
    answers: TableAnswers

    @cached_property
    def reduced(self) -> ResultTable:
        """The whole answer."""
        assert self.plan.tree is not None
        table, partials = self.answers.table, self.answers.gathered.partials
        max_groups = table.spec.limits.max_groups
        return reduce(self.plan.tree, partials, table.schema, max_groups=max_groups, nothing_is_null=True)


@dataclass(frozen=True, slots=True)
class _EngineRun:
    """The engine's work, which runs in a thread."""

    stages: PlannedStages
    asked: Mapping[str, LeafAnswers]
    max_bytes: int
    cancel: CancelToken

    def run(self, engine: EngineRun) -> ResultTable:
        """Compute the answer. Raise MerlotError."""
        with account.Working(check=self.cancel.check):
            return self._run(engine)

    def _run(self, engine: EngineRun) -> ResultTable:
        num_bytes = 0
        # Leaves that were asked for once share their answers.
        for asked in {id(asked): asked for asked in self.asked.values()}.values():
            leaf_bytes = sum(column.nbytes for column in asked.reduced.columns)
            account.current().hold("leaves of stages", leaf_bytes)
            num_bytes += leaf_bytes
            if num_bytes > self.max_bytes:
                raise LimitExceededError(f"leaves bring more bytes than a query may take limit={self.max_bytes}")
        leaves = self.stages.bound.leaves
        relations = {id_: relation_of(leaves[id_], asked.reduced) for id_, asked in self.asked.items()}
        return engine.run(self.stages.bound.engine, relations)


def _rows(columns: ResultColumns, is_late: Callable[[], bool]) -> ResultRows:
    rows: list[Sequence[Any]] = []
    with account.Working():
        for start in range(0, columns.num_rows, BATCH_ROWS):
            if is_late():
                raise StageInterruptedError("query passed its deadline while its rows were written")
            rows += map(list, zip(*columns.values(start, start + BATCH_ROWS), strict=True))
    return ResultRows(columns.column_names, columns.column_types, rows)


def _key(plan: PlannedQuery) -> _LeafKey:
    """Return the leaf's key: leaves with the same query and filter are asked once."""
    return plan.query, plan.where


def _narrowed(
    plan: PlannedQuery, filters: Sequence[KeyFilter], sources: Sequence[LeafAnswers], cancel: CancelToken
) -> PlannedQuery:
    """Return a leaf's plan with filters by the keys of other leaves. The plan stays if one of those failed, since the
    query then fails too."""
    assert plan.tree is not None
    if any(source.answers.gathered.exceptions() for source in sources):
        return plan
    with account.Working(check=cancel.check):
        keys = [
            source.reduced.columns[key_filter.position] for key_filter, source in zip(filters, sources, strict=True)
        ]
        where = rewritten(narrowed(plan.tree.leaf.filter, filters, keys))
    return replace(plan, tree=refilter(plan.tree, where), where=where_to_json(where))


def _add_stats(answer: BrokerAnswer, asked: Mapping[str, TableAnswers]) -> None:
    leaves = list({id(leaf.gathered): leaf for leaf in asked.values()}.values())
    for leaf in leaves:
        stats = summed_stats(leaf.gathered.partials)
        answer.stats = stats if leaf is leaves[0] else answer.stats + stats
        answer.total_docs += leaf.total_docs(stats)
        answer.num_segments_pruned_by_broker += leaf.selection.num_pruned
    if leaves:
        responded = frozenset().union(*(leaf.gathered.responded for leaf in leaves))
        lacking = max(leaf.gathered.num_servers_queried - leaf.gathered.num_servers_responded for leaf in leaves)
        answer.num_servers_responded = len(responded) or 1
        answer.num_servers_queried = answer.num_servers_responded + lacking
    else:
        answer.num_servers_queried = answer.num_servers_responded = 1
    answer.tables = tuple(sorted({leaf.table.raw_name for leaf in leaves}))


async def ended(running: asyncio.Future[ResultTable], engine: EngineRun) -> None:
    """Interrupt a run until it has ended, even if the caller is cancelled meanwhile."""
    while not running.done():
        # More than once: DuckDB loses an interrupt that comes between two of its steps.
        engine.interrupt()
        try:
            await asyncio.wait([running], timeout=INTERRUPT_S)
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()
