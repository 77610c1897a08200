"""The response object has Pinot's fields, in Pinot's order."""

import json

import pytest

from merlot.broker.query_errors import QueryException, http_status, named
from merlot.broker.response import BrokerAnswer, ResultRows
from merlot.codes import QueryErrorCode
from merlot.errors import CorruptionError, InvalidInputError, NotFoundError, UnavailableError
from merlot.query.answer.result import QueryStats

FIELDS = [
    "resultTable",
    "numRowsResultSet",
    "partialResult",
    "exceptions",
    "numGroupsLimitReached",
    "numGroupsWarningLimitReached",
    "maxRowsInDistinctReached",
    "maxRowsWithoutChangeInDistinctReached",
    "maxExecutionTimeInDistinctReached",
    "timeUsedMs",
    "requestId",
    "clientRequestId",
    "brokerId",
    "numDocsScanned",
    "totalDocs",
    "numEntriesScannedInFilter",
    "numEntriesScannedPostFilter",
    "numServersQueried",
    "numServersResponded",
    "numSegmentsQueried",
    "numSegmentsProcessed",
    "numSegmentsMatched",
    "numConsumingSegmentsQueried",
    "numConsumingSegmentsProcessed",
    "numConsumingSegmentsMatched",
    "minConsumingFreshnessTimeMs",
    "numSegmentsPrunedByBroker",
    "numSegmentsPrunedByServer",
    "numSegmentsPrunedInvalid",
    "numSegmentsPrunedByLimit",
    "numSegmentsPrunedByValue",
    "brokerReduceTimeMs",
    "offlineThreadCpuTimeNs",
    "realtimeThreadCpuTimeNs",
    "offlineSystemActivitiesCpuTimeNs",
    "realtimeSystemActivitiesCpuTimeNs",
    "offlineResponseSerializationCpuTimeNs",
    "realtimeResponseSerializationCpuTimeNs",
    "offlineTotalCpuTimeNs",
    "realtimeTotalCpuTimeNs",
    "explainPlanNumEmptyFilterSegments",
    "explainPlanNumMatchAllFilterSegments",
    "traceInfo",
    "tablesQueried",
    "offlineThreadMemAllocatedBytes",
    "realtimeThreadMemAllocatedBytes",
    "offlineResponseSerMemAllocatedBytes",
    "realtimeResponseSerMemAllocatedBytes",
    "offlineTotalMemAllocatedBytes",
    "realtimeTotalMemAllocatedBytes",
    "pools",
    "rlsFiltersApplied",
    "groupsTrimmed",
]


def answer(**changes: object) -> BrokerAnswer:
    fields = {"request_id": "1", "client_request_id": None, "broker_id": "Broker_h_1", **changes}
    return BrokerAnswer(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("times_ms", "expected"), [((0, 0), 0), ((0, 70), 70), ((70, 0), 70), ((70, 40), 40), ((40, 70), 40)]
)
def test_consuming_segments_are_counted_and_as_fresh_as_the_one_farthest_behind(
    times_ms: tuple[int, int], expected: int
) -> None:
    one, other = (
        QueryStats(
            num_consuming_segments_queried=int(ms > 0),
            num_consuming_segments_processed=int(ms > 40),
            num_consuming_segments_matched=int(ms > 40),
            min_consuming_freshness_time_ms=ms,
        )
        for ms in times_ms
    )
    got = json.loads(answer(stats=one + other).to_bytes())
    assert got["numConsumingSegmentsQueried"] == sum(ms > 0 for ms in times_ms)
    assert got["numConsumingSegmentsProcessed"] == sum(ms > 40 for ms in times_ms)
    assert got["numConsumingSegmentsMatched"] == sum(ms > 40 for ms in times_ms)
    assert got["minConsumingFreshnessTimeMs"] == expected


def test_complete_answer_has_pinots_fields_in_order() -> None:
    rows = ResultRows(["carrier", "count(*)"], ["STRING", "LONG"], [["UA", 3]])
    stats = QueryStats(num_docs_scanned=3, num_segments_queried=2)
    got = json.loads(answer(result=rows, stats=stats, total_docs=9, tables=("flights",)).to_bytes())
    assert list(got) == FIELDS
    assert got["resultTable"] == {
        "dataSchema": {"columnNames": ["carrier", "count(*)"], "columnDataTypes": ["STRING", "LONG"]},
        "rows": [["UA", 3]],
    }
    assert (got["numRowsResultSet"], got["totalDocs"], got["numDocsScanned"]) == (1, 9, 3)
    assert (got["partialResult"], got["exceptions"], got["tablesQueried"]) == (False, [], ["flights"])


def test_answer_with_exceptions_has_no_result_table_and_is_partial() -> None:
    failed = answer(exceptions=(named(QueryErrorCode.UNKNOWN_COLUMN, "no column x"),))
    got = json.loads(failed.to_bytes())
    assert "resultTable" not in got
    assert got["partialResult"] is True
    assert got["exceptions"] == [{"errorCode": 710, "message": "UNKNOWN_COLUMN: no column x"}]
    assert failed.error_code == 710
    assert answer().error_code == -1


def test_each_error_family_has_a_code() -> None:
    families = [InvalidInputError, NotFoundError, UnavailableError, CorruptionError]
    assert [QueryException.of(family("x")).code for family in families] == [700, 190, 427, 200]


def test_http_status_follows_the_first_exception() -> None:
    assert http_status(()) == 200
    assert http_status((named(190, "x"), named(450, "y"))) == 404
    assert http_status((named(450, "x"),)) == 500
    assert http_status((named(12345, "x"),)) == 500
