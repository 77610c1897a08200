"""Leave out of an answer what would tell of rows and columns that the asker does not see. Pure; ADR 102 has the rules.

Kept are the statistics that follow from the rows which pass the row filter. Those that also follow from other rows,
from segments that were pruned by their values, or from the work done, are zero. The texts of errors that a query meets
while it runs are withheld, for they may quote values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from merlot.broker.planning.planner import PlannedQuery
from merlot.broker.query_errors import QueryException, named
from merlot.broker.response import BrokerAnswer, ResultColumns, ResultRows
from merlot.broker.selections import RowConsumer
from merlot.codes import QueryErrorCode
from merlot.ids import TableName, raw_name
from merlot.query.answer.result import QueryStats
from merlot.security.access import AccessView
from merlot.security.views import Views

_SHOWN: Final = frozenset(
    {
        QueryErrorCode.ACCESS_DENIED,
        QueryErrorCode.TABLE_DOES_NOT_EXIST,
        QueryErrorCode.TABLE_IS_DISABLED,
        QueryErrorCode.SERVER_SHUTTING_DOWN,
        QueryErrorCode.SERVER_OUT_OF_CAPACITY,
        QueryErrorCode.SERVER_TABLE_MISSING,
        QueryErrorCode.SERVER_SEGMENT_MISSING,
        QueryErrorCode.QUERY_SCHEDULING_TIMEOUT,
        QueryErrorCode.EXECUTION_TIMEOUT,
        QueryErrorCode.BROKER_SEGMENT_UNAVAILABLE,
        QueryErrorCode.BROKER_TIMEOUT,
        QueryErrorCode.BROKER_RESOURCE_MISSING,
        QueryErrorCode.BROKER_INSTANCE_MISSING,
        QueryErrorCode.BROKER_REQUEST_SEND,
        QueryErrorCode.SERVER_NOT_RESPONDING,
        QueryErrorCode.TOO_MANY_REQUESTS,
        QueryErrorCode.QUERY_CANCELLATION,
    }
)
"""Codes of errors whose texts are about processes, tables and time, and quote no value."""
_COLUMNS: Final = ["Operator", "Operator_Id", "Parent_Id"]
_TYPES: Final = ["STRING", "INT", "INT"]
_WITHHELD: Final = "withheld"


def is_concealed(plan: PlannedQuery, views: Views | None) -> bool:
    """Return True if the asker must not know all about the tables of a plan: the rules of a table are known to those
    who may manage it."""
    return views is not None and not all(map(views.may_manage, plan.views))


def conceal(answer: BrokerAnswer, plan: PlannedQuery, views: Views | None) -> None:
    """Mark an answer whose rows were filtered, and remove what the asker must not know. May be called again."""
    answer.rls_filters_applied = any(view.row_filters for view in plan.views.values())
    if not is_concealed(plan, views):
        return
    stats = answer.stats
    answer.stats = QueryStats(
        num_docs_scanned=stats.num_docs_scanned,
        num_entries_scanned_post_filter=stats.num_entries_scanned_post_filter,
        num_groups_limit_reached=stats.num_groups_limit_reached,
    )
    answer.total_docs = answer.num_segments_pruned_by_broker = 0
    answer.num_empty_filter_segments = answer.num_match_all_filter_segments = 0
    answer.exceptions = tuple(_shown(exception, answer.request_id) for exception in answer.exceptions)


def _shown(exception: QueryException, request_id: str) -> QueryException:
    if exception.code in _SHOWN:
        return exception
    text = "query failed; the reason is withheld, as it may quote values that you do not see"
    return named(exception.code, f"{text}: ask whoever manages the tables requestId={request_id}")


@dataclass(frozen=True, slots=True)
class ConcealingConsumer:
    """Takes rows of a large answer, whose facts are concealed before any of them is sent."""

    taker: RowConsumer
    plan: PlannedQuery
    views: Views | None

    async def take(self, answer: BrokerAnswer, rows: ResultColumns) -> None:
        """Take the next rows."""
        conceal(answer, self.plan, self.views)
        await self.taker.take(answer, rows)


def concealed_plan(plan: PlannedQuery) -> ResultRows:
    """Return EXPLAIN's rows for an asker who must not know all about the tables: which tables are read, and that rows
    are filtered or columns masked, but neither how, nor what segments hold."""
    root = f"BROKER_REDUCE(limit:{plan.tree.finish.limit})" if plan.tree is not None else "BROKER_STAGES"
    rows: list[list[str | int]] = [[root, 1, 0]]
    for table in sorted(plan.tables):
        rows.append([f"SCATTER(table:{raw_name(table)})", len(rows) + 1, 1])
        parent = len(rows)
        rows += [[line, len(rows) + 1 + number, parent] for number, line in enumerate(_lines(plan.views, table, {}))]
    return ResultRows(_COLUMNS, _TYPES, rows)


def with_views(explained: ResultRows, plan: PlannedQuery) -> ResultRows:
    """Add to EXPLAIN's rows what the access document says, for an asker who may know it."""
    rows = list(explained.rows)
    for table in sorted(plan.views):
        number = 1 + max(int(row[1]) for row in rows)
        view = plan.views[table]
        texts = {"predicate": " AND ".join(f"({each})" for each in view.row_filters)}
        texts["expressions"] = ", ".join(f"{name}: {text}" for name, text in sorted(view.masks.items()))
        rows += [[line, number + added, 0] for added, line in enumerate(_lines(plan.views, table, texts))]
    return ResultRows(explained.column_names, explained.column_types, rows)


def _lines(views: Mapping[TableName, AccessView], table: TableName, texts: Mapping[str, str]) -> list[str]:
    view, name = views.get(table), raw_name(table)
    lines = []
    if view is not None and view.row_filters:
        lines.append(f"ROW_FILTER(table:{name},predicate:{texts.get('predicate', _WITHHELD)})")
    if view is not None and view.masks:
        lines.append(f"COLUMN_MASKS(table:{name},expressions:{texts.get('expressions', _WITHHELD)})")
    return lines
