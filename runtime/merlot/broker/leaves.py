"""Ask the servers of one table: choose routes by the filter, scatter, and tell whether the routes have moved on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from merlot.broker import metrics
from merlot.broker.directory import Directory
from merlot.broker.planning.boundary_filters import boundary_filters
from merlot.broker.planning.planner import PlannedQuery
from merlot.broker.routing import pruning
from merlot.broker.routing.pruning import Selection
from merlot.broker.scatter_gather import scatter
from merlot.broker.scatter_gather.channels import Channels
from merlot.broker.scatter_gather.pieces import RoutePiece
from merlot.broker.scatter_gather.scatter import Gathered, ScatterRequest
from merlot.broker.tables import ServedTable
from merlot.errors import NotFoundError
from merlot.ids import TableName, raw_name
from merlot.query import explain
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.query.plan.nodes import Leaf

MAX_RUNS = 3
INLINE_FILTER_BYTES = 16_384
"""Longest filter that is compared with segments on the event loop; thousands of conditions take a second over 10,000
segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCall:
    """Facts that all leaves of a query share. `deadline` is in the event loop's time."""

    request_id: str
    number: int
    deadline: float


@dataclass(frozen=True, slots=True)
class TableAnswers:
    """Result of asking a table."""

    table: ServedTable
    selection: Selection
    gathered: Gathered

    def total_docs(self, stats: QueryStats) -> int:
        """Return the rows of the table, rows of its streams included."""
        snapshot = self.table.snapshot
        if not snapshot.consuming_ranges:
            return snapshot.total_docs
        # No record counts the rows of open segments. Servers count them, together with those of the sealed segments.
        asked = (key for route in self.selection.routes for key in route.segments)
        recorded = sum(snapshot.by_key[key].record.total_docs for key in asked)
        return snapshot.total_docs + max(0, stats.total_docs - recorded)


class Leaves:
    """Asks servers for the leaves of queries. Belongs to the event loop's thread."""

    def __init__(self, directory: Directory, channels: Channels) -> None:
        self._directory = directory
        self._channels = channels

    def table(self, name: TableName) -> ServedTable:
        """Return the table as it is now. Raise NotFoundError if there is none."""
        table = self._directory.find(name)
        if table is None:
            raise NotFoundError(f"table does not exist table={raw_name(name)}")
        return table

    def num_docs(self, plan: PlannedQuery, table: ServedTable, asking: QueryCall) -> int:
        """Return the docs of the sealed segments that the plan's filter does not rule out; of all segments if pruning
        by the filter takes long."""
        assert plan.tree is not None
        if plan.prunes_by_functions or len(plan.where) > INLINE_FILTER_BYTES:
            return table.snapshot.total_docs
        routes = _select(table, plan, plan.tree.leaf, asking.number).routes
        by_key = table.snapshot.by_key
        return sum(by_key[key].record.total_docs for route in routes for key in route.segments)

    async def ask(self, plan: PlannedQuery, table: ServedTable, asking: QueryCall) -> TableAnswers:
        """Ask the servers of all segments that the plan's filter does not rule out."""
        assert plan.tree is not None
        leaf = plan.tree.leaf
        if plan.prunes_by_functions:
            await _prepare(table, leaf)
        selection = await _selected(table, plan, leaf, asking.number)
        request = ScatterRequest(
            request_id=asking.request_id,
            table=table.name,
            query=plan.query,
            where=plan.where,
            boundary_wheres=boundary_filters(table, plan.where),
            snapshot=table.snapshot,
            routes=selection.routes,
            deadline=asking.deadline,
            unavailable=selection.unavailable,
            schema=_schema(plan),
        )
        return TableAnswers(table, selection, await self._gather(request, table))

    async def ask_settled(self, plan: PlannedQuery, asking: QueryCall) -> TableAnswers:
        """Ask the plan's table. Ask again if segments were lost because the routes have moved on."""
        assert plan.table is not None
        for _ in range(1, MAX_RUNS):
            asked = await self.ask(plan, self.table(plan.table), asking)
            if not self.has_moved_on(asked):
                return asked
        return await self.ask(plan, self.table(plan.table), asking)

    async def ask_for(self, piece: RoutePiece, plan: PlannedQuery, asked: TableAnswers, asking: QueryCall) -> Gathered:
        """Ask for a piece of what `asked` has asked for, in the same state of the table."""
        cuts = boundary_filters(asked.table, plan.where)
        request = ScatterRequest(
            request_id=asking.request_id,
            table=asked.table.name,
            query=plan.query,
            where=piece.where(plan.where),
            boundary_wheres={cut: piece.where(where) for cut, where in cuts.items()},
            snapshot=asked.table.snapshot,
            routes=(piece.route,),
            deadline=asking.deadline,
            unavailable=(),
            schema=_schema(plan),
        )
        return await self._gather(request, asked.table)

    async def _gather(self, request: ScatterRequest, table: ServedTable) -> Gathered:
        gathered = await scatter.gather(request, self._channels, self._directory.report_call)
        if gathered.num_retries:
            metrics.observe_retries(table.raw_name, gathered.num_retries)
        return gathered

    def has_moved_on(self, asked: TableAnswers) -> bool:
        """Return True if segments were lost, and the table's newest routes would ask elsewhere for them."""
        gathered, table = asked.gathered, asked.table
        if not gathered.lost or gathered.late:
            return False
        current = self._directory.find(table.name)
        if current is None or current.snapshot is table.snapshot:
            return False
        segments = (current.snapshot.by_key.get(key) for key in gathered.lost)
        return any(segment is None or not gathered.silent.issuperset(segment.replicas) for segment in segments)


def _schema(plan: PlannedQuery) -> pa.Schema:
    """Return the columns of a server's answer."""
    assert plan.tree is not None
    return explain.SCHEMA if plan.is_explain else plan.tree.leaf.work.partial_schema


def summed_stats(partials: Sequence[Partial]) -> QueryStats:
    """Add the statistics of partial answers."""
    if not partials:
        return QueryStats()
    first, *others = (partial.stats for partial in partials)
    return sum(others, first)


async def _prepare(table: ServedTable, leaf: Leaf) -> None:
    """Prepare the pruning in a thread: bounds of a function of 10,000 segments took 20 ms, and a kernel's first call a
    second."""
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
