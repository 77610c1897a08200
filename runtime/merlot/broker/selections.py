"""Selections of many rows, for a client that takes them in blocks: asked for in pieces, handed on as they come.

First the rows are counted, by the routes that the pieces are asked by: the answer's head tells what finding them took,
and rows that go missing are noticed. Then servers are asked for pieces of the docs, few at a time and no faster than
rows are taken. So the broker holds some pieces, whatever LIMIT is (ADR 45). Rows that the routes know are all there, or
the answer ends with an error: the pieces are of one state of the table, which servers keep as long as for any query.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Protocol

from merlot.broker.asking.pieces import Piece, Pieces
from merlot.broker.asking.scatter import Gathered
from merlot.broker.leaves import Asked, Asking, Leaves, added
from merlot.broker.planning.planner import PlannedQuery
from merlot.broker.query_errors import QueryException, named
from merlot.broker.response import BrokerAnswer, ResultColumns
from merlot.broker.tables import ServedTable
from merlot.codes import QueryErrorCode
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import ResultTable
from merlot.query.plan.make import plan as make_plan
from merlot.query.plan.nodes import Leaf, LeafKind, Reduce, refilter
from merlot.tree import tree_json
from merlot.tree.nodes import Aggregate, BoundQuery, Output
from merlot.tree.types import LONG

FEW_ROWS: Final = 20_000
"""Answers of no more are gathered as any other."""
FIRST_ROWS: Final = 1_000
"""Of the first piece, which tells how wide rows are."""
MOST_ROWS: Final = 1 << 15
PIECE_BYTES: Final = 1 << 20
"""About what a piece should take."""
GROWTH: Final = 8
"""How many times larger a piece may be than the one before."""
SLACK: Final = 4
"""How many times more than it should a piece may bring; else it is asked for in halves."""
AHEAD: Final = 3
"""Pieces asked for while the client takes another."""
_ALL: Final = 1 << 60


class Taker(Protocol):
    """Takes the rows of an answer, at its own pace."""

    async def take(self, answer: BrokerAnswer, rows: ResultColumns) -> None:
        """The next rows, one at least, of an answer that tells everything but its rows."""


class Selections:
    """Answers them. On the event loop's thread; rows are made in others."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves

    async def fill(self, answer: BrokerAnswer, plan: PlannedQuery, asking: Asking, taker: Taker) -> bool:
        """Write what became of the query into the answer, and hand on its rows. Raises MerlotError.

        False: it is to be answered as any other, for it may not be answered in pieces, or has few rows."""
        assert plan.tree is not None
        assert plan.table is not None
        table = self._leaves.table(plan.table)
        if not _comes_in_pieces(plan, table):
            return False
        bound = tree_json.from_json(plan.query)
        asked = await self._leaves.ask_settled(_counting(plan, bound), asking)
        counts = [sum(partial.data.column(0).to_pylist()) for partial in asked.gathered.partials]  # no row: no match
        _fill_head(answer, plan.tree, asked, counts)
        if answer.exceptions:
            return True
        answer.num_rows = max(0, min(sum(counts), plan.tree.finish.rows_needed) - plan.tree.finish.offset)
        if answer.num_rows <= FEW_ROWS:
            return False
        asked.table.check_rows(answer.num_rows)
        answer.time_used_ms = int(1000 * (asyncio.get_running_loop().time() - asking.deadline) + plan.timeout_ms)
        taking = _Taking(self._leaves, plan, bound, asked, asking, sum(counts))
        async with aclosing(taking.rows()) as pieces:
            async for rows in pieces:
                await taker.take(answer, ResultColumns(rows))
        answer.exceptions = taking.exceptions
        return True


def _comes_in_pieces(plan: PlannedQuery, table: ServedTable) -> bool:
    """Docs of upsert tables become invalid between two pieces, and bounds of a whole answer's size need it whole."""
    assert plan.tree is not None
    work = plan.tree.leaf.work
    is_plain = work.kind is LeafKind.SELECTION and not work.order_by and work.max_bytes is None
    is_plain = is_plain and not plan.is_explain and not plan.wishes.drops_rows
    return is_plain and plan.tree.finish.limit > FEW_ROWS and table.spec.upsert is None


def _counting(plan: PlannedQuery, bound: BoundQuery) -> PlannedQuery:
    """The same plan, for which servers count; segments are chosen as for its rows."""
    assert plan.tree is not None
    count = Output("count(*)", Aggregate("count", (), LONG))
    counting = replace(bound, select=(count,), limit=1, offset=0)
    tree = refilter(make_plan(counting), plan.tree.leaf.filter)
    return replace(plan, query=tree_json.to_json(counting), tree=tree)


def _fill_head(answer: BrokerAnswer, tree: Reduce, asked: Asked, counts: list[int]) -> None:
    """As if the rows that decide the answer had been gathered."""
    stats = added(asked.gathered.partials)
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
class _Came:
    """What came of a piece; no rows: there are too many of them, or they were not all there."""

    piece: Piece
    rows: ResultTable | None
    gathered: Gathered
    num_bytes: int = 0
    is_too_large: bool = False


class _Taking:
    """The pieces of one answer."""

    def __init__(
        self, leaves: Leaves, plan: PlannedQuery, bound: BoundQuery, asked: Asked, asking: Asking, num_counted: int
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
        self._tasks: deque[asyncio.Task[_Came]] = deque()
        self.exceptions: tuple[QueryException, ...] = ()
        """Why the answer ended early, once `rows` has ended."""

    async def rows(self) -> AsyncGenerator[ResultTable]:
        """The rows of the answer; what it waits for its taker is not the query's time."""
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

    async def _next(self) -> _Came | None:
        """What came of the piece that was asked for first; None: there are no more."""
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

    def _asked_for(self, piece: Piece) -> asyncio.Task[_Came]:
        return asyncio.create_task(self._ask(piece))

    async def _ask(self, piece: Piece) -> _Came:
        most_rows = SLACK * self._rows_wanted if piece.is_cuttable else None
        gathered = await self._leaves.ask_for(
            piece,
            replace(self._plan, query=self._query(most_rows)),
            self._asked,
            replace(self._asking, deadline=asyncio.get_running_loop().time() + self._left_s),
        )
        failed = gathered.failed
        if failed is not None and piece.is_cuttable and failed.code == QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED:
            return _Came(piece, None, gathered, is_too_large=True)
        if failed is not None or gathered.lost:
            return _Came(piece, None, gathered)
        if most_rows is not None and any(partial.num_rows > most_rows for partial in gathered.partials):
            return _Came(piece, None, gathered, is_too_large=True)
        num_bytes = sum(partial.data.nbytes for partial in gathered.partials)
        rows = await asyncio.to_thread(reduce, self._tree, gathered.partials, self._asked.table.schema)
        return _Came(piece, rows, gathered, num_bytes)

    def _query(self, most_rows: int | None) -> bytes:
        """The query of a piece, encoded. A row too many tells that there are more."""
        if most_rows is None:
            return tree_json.to_json(replace(self._bound, limit=self._bound.limit + self._bound.offset, offset=0))
        most_bytes = ("maxServerResponseSizeBytes", str(SLACK * PIECE_BYTES))
        options = (*self._bound.options, most_bytes)
        return tree_json.to_json(replace(self._bound, limit=most_rows + 1, offset=0, options=options))

    def _measure(self, came: _Came) -> None:
        """Have pieces take about what they should, by what the last one took."""
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
    """What is made of the rows of a piece: pieces bring no more than they should."""
    work = replace(tree.leaf.work, rows_needed=_ALL, memo={})
    return Reduce(Leaf(work, tree.leaf.filter), replace(tree.finish, limit=_ALL, offset=0, memo={}))


def _power_of_two(number: int) -> int:
    """The largest one that is no more: servers keep the plans of a few."""
    return 1 << (number.bit_length() - 1)


def _num_rows(rows: ResultTable) -> int:
    return len(rows.columns[0])


def _slice(rows: ResultTable, offset: int, limit: int) -> ResultTable:
    if not offset and _num_rows(rows) <= limit:
        return rows
    return replace(rows, columns=tuple(column.slice(offset, limit) for column in rows.columns))
