"""Answer selections of many rows piece by piece, for a client that takes them in blocks.

First the rows are counted, by the routes that the pieces are asked by: so the answer's head can tell the cost of
finding them, and missing rows are noticed. Then servers are asked for pieces of the docs, few at a time and no faster
than the client takes rows. So the broker holds a few pieces, however large LIMIT is (ADR 45). Either all rows of the
routed segments are sent, or the answer ends with an error: the pieces are of one state of the table, which servers keep
as long as for any query.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Protocol

from merlot.broker.leaves import Leaves, QueryCall, TableAnswers, summed_stats
from merlot.broker.offloading import in_thread, last_step
from merlot.broker.planning.planner import PlannedQuery
from merlot.broker.query_errors import QueryException, named
from merlot.broker.response import BrokerAnswer, ResultColumns
from merlot.broker.scatter_gather.pieces import Pieces, RoutePiece
from merlot.broker.scatter_gather.scatter import Gathered
from merlot.broker.tables import ServedTable
from merlot.codes import QueryErrorCode
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import ResultTable
from merlot.query.context import CancelToken
from merlot.query.plan.make import plan as make_plan
from merlot.query.plan.nodes import Leaf, LeafKind, Reduce, refilter
from merlot.tree import tree_json
from merlot.tree.nodes import Aggregate, BoundQuery, Output
from merlot.tree.types import LONG
from merlot.vectors import account

FEW_ROWS: Final = 20_000
"""Most rows of an answer that is gathered at once, like any other."""
FIRST_ROWS: Final = 1_000
"""Rows of the first piece, which shows how wide rows are."""
MOST_ROWS: Final = 1 << 15
PIECE_BYTES: Final = 1 << 20
"""Size that a piece should have."""
GROWTH: Final = 8
"""Largest ratio of a piece's target in rows to that of the previous piece."""
SLACK: Final = 4
"""Largest ratio of a piece's rows or bytes to its target; a larger piece is requested again in halves."""
AHEAD: Final = 3
"""Pieces that are asked for while the client takes another."""
_ALL: Final = 1 << 60


class RowConsumer(Protocol):
    """Takes the rows of an answer, at its own pace."""

    async def take(self, answer: BrokerAnswer, rows: ResultColumns) -> None:
        """Take the next rows, at least one. `answer` has all facts but the rows."""


class Selections:
    """Answers selections in pieces. Belongs to the event loop's thread; rows are made in other threads."""

    def __init__(self, leaves: Leaves, *, few_rows: int = FEW_ROWS) -> None:
        self._leaves = leaves
        self.few_rows = few_rows

    async def fill(self, answer: BrokerAnswer, plan: PlannedQuery, asking: QueryCall, taker: RowConsumer) -> bool:
        """Run the query, hand its rows on, and write all else into the answer. Raise MerlotError.

        Return False if the query is to be answered like any other: it may not be answered in pieces, or has few
        rows."""
        assert plan.tree is not None
        assert plan.table is not None
        table = self._leaves.table(plan.table)
        if not _comes_in_pieces(plan, table, self.few_rows):
            return False
        bound = tree_json.from_json(plan.query)
        asked = await self._leaves.ask_settled(_counting(plan, bound), asking)
        counts = [sum(partial.data.column(0).to_pylist()) for partial in asked.gathered.partials]  # no row: no match
        _fill_head(answer, plan.tree, asked, counts)
        if answer.exceptions:
            return True
        answer.num_rows = max(0, min(sum(counts), plan.tree.finish.rows_needed) - plan.tree.finish.offset)
        if answer.num_rows <= self.few_rows:
            return False
        asked.table.check_rows(answer.num_rows)
        answer.time_used_ms = int(1000 * (asyncio.get_running_loop().time() - asking.deadline) + plan.timeout_ms)
        taking = _PieceStream(self._leaves, plan, bound, asked, asking, sum(counts))
        async with aclosing(taking.rows()) as pieces:
            async for rows in pieces:
                await taker.take(answer, ResultColumns(rows))
        answer.exceptions = taking.exceptions
        return True


def _comes_in_pieces(plan: PlannedQuery, table: ServedTable, few_rows: int) -> bool:
    """Return True if a query may be answered in pieces. Docs of upsert tables may become invalid between two pieces,
    and a bound of the whole answer's size needs the whole answer."""
    assert plan.tree is not None
    work = plan.tree.leaf.work
    is_plain = work.kind is LeafKind.SELECTION and not work.order_by and work.max_bytes is None
    is_plain = is_plain and not plan.is_explain and not plan.wishes.drops_rows
    return is_plain and plan.tree.finish.limit > few_rows and table.spec.upsert is None


def _counting(plan: PlannedQuery, bound: BoundQuery) -> PlannedQuery:
    """Return the plan that counts the rows; segments are chosen as for the rows themselves."""
    assert plan.tree is not None
    count = Output("count(*)", Aggregate("count", (), LONG))
    counting = replace(bound, select=(count,), limit=1, offset=0)
    tree = refilter(make_plan(counting), plan.tree.leaf.filter)
    return replace(plan, query=tree_json.to_json(counting), tree=tree)


def _fill_head(answer: BrokerAnswer, tree: Reduce, asked: TableAnswers, counts: list[int]) -> None:
    """Write the facts into the answer as if all rows that decide it had been gathered."""
    stats = summed_stats(asked.gathered.partials)
    num_docs = sum(min(count, tree.finish.rows_needed) for count in counts)
    answer.stats = replace(
        stats,
        num_docs_scanned=num_docs,
        num_entries_scanned_post_filter=num_docs * len(tree.leaf.work.columns_after_filter),
    )
    answer.exceptions = asked.gathered.exceptions()
    answer.num_servers_queried = asked.gathered.num_servers_queried
    answer.num_servers_responded = asked.gathered.num_servers_responded
    answer.num_segments_pruned_by_broker = asked.selection.num_pruned
    answer.total_docs = asked.total_docs(stats)
    answer.tables = (asked.table.raw_name,)


@dataclass(frozen=True, slots=True)
class _PieceResult:
    """Result of asking for a piece. `rows` is None if there are too many rows, if some are missing, or if the call
    failed."""

    piece: RoutePiece
    rows: ResultTable | None
    gathered: Gathered
    num_bytes: int = 0
    is_too_large: bool = False


class _PieceStream:
    """The pieces of one answer."""

    def __init__(
        self,
        leaves: Leaves,
        plan: PlannedQuery,
        bound: BoundQuery,
        asked: TableAnswers,
        asking: QueryCall,
        num_counted: int,
    ) -> None:
        assert plan.tree is not None
        self._leaves = leaves
        self._plan = plan
        self._bound = bound
        self._asked = asked
        self._asking = asking
        self._num_counted = num_counted
        self._tree = _without_limit(plan.tree)
        self._pieces = Pieces(asked.selection.routes, self._docs_of)
        num_docs = sum(self._docs_of(key) or 0 for route in asked.selection.routes for key in route.segments)
        self._docs_per_row = max(1.0, num_docs / num_counted)
        self._rows_wanted = FIRST_ROWS
        self._is_measured = False
        self._left_s = asking.deadline - asyncio.get_running_loop().time()
        self._tasks: deque[asyncio.Task[_PieceResult]] = deque()
        self.exceptions: tuple[QueryException, ...] = ()
        """Reasons why the answer ended early, once `rows` has ended."""

    async def rows(self) -> AsyncGenerator[ResultTable]:
        """Yield the rows of the answer. Time spent waiting for the taker does not count against the query."""
        finish = self._plan.tree.finish if self._plan.tree is not None else None
        assert finish is not None
        num_found, offset, limit = 0, finish.offset, finish.limit
        try:
            while limit > 0 and (came := await self._next()) is not None:
                if came.is_too_large:
                    self._tasks.extendleft(self._asked_for(half) for half in reversed(came.piece.halves()))
                    continue
                if came.rows is None:
                    self.exceptions = came.gathered.exceptions()
                    return
                self._measure(came)
                rows = _slice(came.rows, offset, limit)
                num_found += _num_rows(came.rows)
                offset = max(0, offset - _num_rows(came.rows))
                limit -= _num_rows(rows)
                if _num_rows(rows):
                    yield rows
        finally:
            for task in self._tasks:
                task.cancel()
        if limit > 0 and num_found < self._num_counted:
            text = f"rows are gone that were there before counted={self._num_counted} found={num_found}: ask again"
            self.exceptions = (named(QueryErrorCode.BROKER_SEGMENT_UNAVAILABLE, text),)

    async def _next(self) -> _PieceResult | None:
        """Wait for the piece that was asked for first; None if there are no more."""
        self._ask_ahead()
        if not self._tasks:
            return None
        loop = asyncio.get_running_loop()
        started = loop.time()
        came = await self._tasks.popleft()
        self._left_s -= loop.time() - started
        return came

    def _ask_ahead(self) -> None:
        wanted = AHEAD if self._is_measured else 1
        while len(self._tasks) < wanted:
            piece = self._pieces.take(max(1, int(self._rows_wanted * self._docs_per_row)))
            if piece is None:
                return
            self._tasks.append(self._asked_for(piece))

    def _asked_for(self, piece: RoutePiece) -> asyncio.Task[_PieceResult]:
        return asyncio.create_task(self._ask(piece))

    async def _ask(self, piece: RoutePiece) -> _PieceResult:
        most_rows = SLACK * self._rows_wanted if piece.is_cuttable else None
        deadline = asyncio.get_running_loop().time() + self._left_s
        gathered = await self._leaves.ask_for(
            piece,
            replace(self._plan, query=self._query(most_rows)),
            self._asked,
            replace(self._asking, deadline=deadline),
        )
        failed = gathered.failed
        if failed is not None and piece.is_cuttable and failed.code == QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED:
            return _PieceResult(piece, None, gathered, is_too_large=True)
        if failed is not None or gathered.lost:
            return _PieceResult(piece, None, gathered)
        if most_rows is not None and any(partial.num_rows > most_rows for partial in gathered.partials):
            return _PieceResult(piece, None, gathered, is_too_large=True)
        num_bytes = sum(partial.data.nbytes for partial in gathered.partials)
        cancel = last_step(deadline)
        rows = await in_thread(cancel, _reduce, self._tree, gathered, self._asked.table, cancel)
        return _PieceResult(piece, rows, gathered, num_bytes)

    def _query(self, most_rows: int | None) -> bytes:
        """Encode the query of a piece. It asks for a row too many, which shows that there are more."""
        if most_rows is None:
            return tree_json.to_json(replace(self._bound, limit=self._bound.limit + self._bound.offset, offset=0))
        most_bytes = ("maxServerResponseSizeBytes", str(SLACK * PIECE_BYTES))
        options = (*self._bound.options, most_bytes)
        return tree_json.to_json(replace(self._bound, limit=most_rows + 1, offset=0, options=options))

    def _measure(self, came: _PieceResult) -> None:
        """Choose the size of the next pieces by the size of the last one."""
        num_rows = 0 if came.rows is None else _num_rows(came.rows)
        if not num_rows:
            return
        fitting = int(PIECE_BYTES * num_rows / max(came.num_bytes, 1))
        self._rows_wanted = _power_of_two(max(1, min(fitting, MOST_ROWS, GROWTH * self._rows_wanted)))
        self._is_measured = True

    def _docs_of(self, key: str) -> int | None:
        segment = self._asked.table.snapshot.by_key[key]
        return segment.record.total_docs if segment.is_known else None


def _without_limit(tree: Reduce) -> Reduce:
    """Return the plan for the rows of a piece, without LIMIT and OFFSET."""
    work = replace(tree.leaf.work, rows_needed=_ALL)
    return Reduce(Leaf(work, tree.leaf.filter), replace(tree.finish, limit=_ALL, offset=0))


def _reduce(tree: Reduce, gathered: Gathered, table: ServedTable, cancel: CancelToken) -> ResultTable:
    with account.Working(check=cancel.check):
        return reduce(tree, gathered.partials, table.schema)


def _power_of_two(number: int) -> int:
    """Return the largest power of two that is not greater: servers cache the plans of a few sizes."""
    return 1 << (number.bit_length() - 1)


def _num_rows(rows: ResultTable) -> int:
    return len(rows.columns[0])


def _slice(rows: ResultTable, offset: int, limit: int) -> ResultTable:
    if not offset and _num_rows(rows) <= limit:
        return rows
    return replace(rows, columns=tuple(column.slice(offset, limit) for column in rows.columns))
