"""Write the answer to a query as Pinot's `BrokerResponseNative`: same fields, same order.

An answer is complete exactly if it has no exceptions. Then `numServersResponded` equals `numServersQueried`, and both
are at least one, since clients (pinotdb, Trino) take zero for a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import orjson

from merlot.broker.query_errors import NO_ERROR, QueryException
from merlot.query.answer.result import QueryStats, ResultTable, pinot_values, to_pinot_rows

Row = Sequence[Any]
_NO_STATS = QueryStats()


@dataclass(frozen=True, slots=True)
class ResultRows:
    """A result as JSON-ready rows."""

    column_names: Sequence[str]
    column_types: Sequence[str]
    rows: Sequence[Row]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def values(self, start: int, stop: int) -> list[Sequence[Any]]:
        """Return the JSON values of the rows from `start` to `stop`, by column."""
        return list(zip(*self.rows[start:stop], strict=True))


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """A result as Arrow columns, for a caller that takes its rows in parts: as JSON values they need ten times the
    memory."""

    table: ResultTable

    @property
    def column_names(self) -> Sequence[str]:
        """Labels, which may repeat."""
        return self.table.column_names

    @property
    def column_types(self) -> Sequence[str]:
        """Names of the columns' types."""
        return [str(type_) for type_ in self.table.column_types]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.table.columns[0])

    @property
    def rows(self) -> Sequence[Row]:
        """All rows at once."""
        return to_pinot_rows(self.table)

    def values(self, start: int, stop: int) -> list[Sequence[Any]]:
        """Return the JSON values of the rows from `start` to `stop`, by column."""
        columns = zip(self.table.column_types, self.table.columns, strict=True)
        return [pinot_values(type_, column.slice(start, stop - start)) for type_, column in columns]


@dataclass(slots=True, kw_only=True)
class BrokerAnswer:
    """Facts of the response object; fields of features that do not exist yet are written as zeros.

    Not frozen: `Queries` creates one for each query and fills it in, since every frozen copy costs 4 us."""

    request_id: str
    client_request_id: str | None
    broker_id: str
    by_column: bool = False
    """True if the result is to stay in columns."""
    num_rows: int = 0
    """Rows of a result that are sent apart from the answer."""
    result: ResultRows | ResultColumns | None = None
    exceptions: tuple[QueryException, ...] = ()
    warnings: tuple[str, ...] = ()
    """Lines that do not change the answer, for example about options that nobody knows."""
    stats: QueryStats = _NO_STATS
    total_docs: int = 0
    num_servers_queried: int = 1
    num_servers_responded: int = 1
    num_segments_pruned_by_broker: int = 0
    num_empty_filter_segments: int = 0
    num_match_all_filter_segments: int = 0
    time_used_ms: int = 0
    reduce_time_ms: int = 0
    tables: tuple[str, ...] = ()
    rls_filters_applied: bool = False
    """True if rows were left out because the asker does not see them."""

    @classmethod
    def refusal(cls, broker_id: str, exception: QueryException, client_request_id: str | None = None) -> Self:
        """Return the answer to a request that is no query."""
        return cls(
            request_id="0",
            client_request_id=client_request_id,
            broker_id=broker_id,
            exceptions=(exception,),
            num_servers_queried=0,
            num_servers_responded=0,
        )

    @property
    def error_code(self) -> int:
        """Value of `X-Pinot-Error-Code`."""
        return self.exceptions[0].code if self.exceptions else NO_ERROR

    def to_bytes(self) -> bytes:
        """Encode the answer as JSON."""
        return self._bytes(self._result_json())

    def without_rows(self) -> bytes:
        """Encode the answer as JSON without its rows, which are sent apart from it."""
        return self._bytes({"numRowsResultSet": self.num_rows if self.result is None else self.result.num_rows})

    def _bytes(self, result: dict[str, Any]) -> bytes:
        fields = {**result, **self._rest_json()}
        if self.warnings:
            # A field of our own, written only if it is not empty: clients take any entry of `exceptions` for a failure.
            fields["queryWarnings"] = self.warnings
        return orjson.dumps(fields)

    def _result_json(self) -> dict[str, Any]:
        result = self.result
        if result is None:
            return {"numRowsResultSet": 0}
        schema = {"columnNames": result.column_names, "columnDataTypes": result.column_types}
        return {"resultTable": {"dataSchema": schema, "rows": result.rows}, "numRowsResultSet": result.num_rows}

    def _rest_json(self) -> dict[str, Any]:
        stats, cpu_ns = self.stats, self.stats.thread_cpu_time_ns
        return {
            "partialResult": bool(self.exceptions) or stats.num_groups_limit_reached,
            "exceptions": [{"errorCode": error.code, "message": error.message} for error in self.exceptions],
            "numGroupsLimitReached": stats.num_groups_limit_reached,
            "numGroupsWarningLimitReached": False,
            "maxRowsInDistinctReached": False,
            "maxRowsWithoutChangeInDistinctReached": False,
            "maxExecutionTimeInDistinctReached": False,
            "timeUsedMs": self.time_used_ms,
            "requestId": self.request_id,
            "clientRequestId": self.client_request_id,
            "brokerId": self.broker_id,
            "numDocsScanned": stats.num_docs_scanned,
            "totalDocs": self.total_docs,
            "numEntriesScannedInFilter": stats.num_entries_scanned_in_filter,
            "numEntriesScannedPostFilter": stats.num_entries_scanned_post_filter,
            "numServersQueried": self.num_servers_queried,
            "numServersResponded": self.num_servers_responded,
            "numSegmentsQueried": stats.num_segments_queried,
            "numSegmentsProcessed": stats.num_segments_processed,
            "numSegmentsMatched": stats.num_segments_matched,
            "numConsumingSegmentsQueried": stats.num_consuming_segments_queried,
            "numConsumingSegmentsProcessed": stats.num_consuming_segments_processed,
            "numConsumingSegmentsMatched": stats.num_consuming_segments_matched,
            "minConsumingFreshnessTimeMs": stats.min_consuming_freshness_time_ms,
            "numSegmentsPrunedByBroker": self.num_segments_pruned_by_broker,
            "numSegmentsPrunedByServer": stats.num_segments_pruned_by_server,
            "numSegmentsPrunedInvalid": stats.num_segments_pruned_invalid,
            "numSegmentsPrunedByLimit": stats.num_segments_pruned_by_limit,
            "numSegmentsPrunedByValue": stats.num_segments_pruned_by_value,
            "brokerReduceTimeMs": self.reduce_time_ms,
            "offlineThreadCpuTimeNs": cpu_ns,
            "realtimeThreadCpuTimeNs": 0,
            "offlineSystemActivitiesCpuTimeNs": 0,
            "realtimeSystemActivitiesCpuTimeNs": 0,
            "offlineResponseSerializationCpuTimeNs": 0,
            "realtimeResponseSerializationCpuTimeNs": 0,
            "offlineTotalCpuTimeNs": cpu_ns,
            "realtimeTotalCpuTimeNs": 0,
            "explainPlanNumEmptyFilterSegments": self.num_empty_filter_segments,
            "explainPlanNumMatchAllFilterSegments": self.num_match_all_filter_segments,
            "traceInfo": {},
            "tablesQueried": self.tables,
            "offlineThreadMemAllocatedBytes": 0,
            "realtimeThreadMemAllocatedBytes": 0,
            "offlineResponseSerMemAllocatedBytes": 0,
            "realtimeResponseSerMemAllocatedBytes": 0,
            "offlineTotalMemAllocatedBytes": 0,
            "realtimeTotalMemAllocatedBytes": 0,
            "pools": (),
            "rlsFiltersApplied": self.rls_filters_applied,
            "groupsTrimmed": False,
        }
