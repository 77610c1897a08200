"""Scatter asks other replicas for what is lost, inside the deadline, and says plainly what stays lost."""

import asyncio
from collections.abc import Mapping

import pyarrow as pa
import pytest

from merlot.broker.routing.health import CallOutcome, ServerStanding
from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot, build
from merlot.broker.scatter_gather import scatter
from merlot.broker.scatter_gather.channels import Channels
from merlot.broker.scatter_gather.scatter import Gathered, ScatterRequest
from merlot.cluster.records import InstanceRecord, Role, RootRecord, SegmentRecord
from merlot.cluster.segments.view import Bucket, TableView
from merlot.codes import QueryErrorCode
from merlot.errors import CorruptionError, UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.testing.patience import PATIENCE_S
from merlot.vectors import account
from merlot.wire.client import Handler, LocalChannel
from merlot.wire.messages import ServerRequest, ServerResponse

A, B = InstanceId("Server_h_1"), InstanceId("Server_h_2")
TABLE = TableName("t_OFFLINE")
KEYS = {"s1@1", "s2@1"}
SCHEMA = pa.schema([("segment", pa.string())])


async def answers(request: ServerRequest) -> ServerResponse:
    """A healthy server: one row per asked segment."""
    rows = pa.table({"segment": list(request.segments)})
    return ServerResponse(partial=Partial(rows, QueryStats(num_segments_queried=len(request.segments))))


async def is_down(request: ServerRequest) -> ServerResponse:
    raise UnavailableError("connection refused")


async def is_draining(request: ServerRequest) -> ServerResponse:
    return ServerResponse(error=(210, "shutting down"))


async def never_answers(request: ServerRequest) -> ServerResponse:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def lacks_everything(request: ServerRequest) -> ServerResponse:
    return ServerResponse(missing=request.segments)


async def hits_a_limit(request: ServerRequest) -> ServerResponse:
    return ServerResponse(error=(245, "too many groups"))


def snapshot_of(reports: Mapping[InstanceId, set[str]], num_segments: int = 2) -> RoutingSnapshot:
    names = [f"s{number}" for number in range(1, num_segments + 1)]
    records = [SegmentRecord(name=name, crc=1, size_bytes=1, url="", total_docs=1) for name in names]
    bucket = Bucket("x", {one.name: one for one in records}, {})
    view = TableView(TABLE, RootRecord(epoch=1, num_buckets=1), 1, {0: bucket})
    standings = dict.fromkeys(reports, ServerStanding.PREFERRED)
    return build(RoutingInputs(view=view, reports=reports, standings=standings, now_ms=10**12))


async def gather(
    handlers: Mapping[InstanceId, Handler],
    snapshot: RoutingSnapshot | None = None,
    timeout_s: float = 5.0,
) -> tuple[Gathered, list[tuple[InstanceId, CallOutcome]]]:
    """Scatter over servers that behave as told; returns what came back and what was reported of their health."""
    channels = Channels(lambda record: LocalChannel(handlers[record.id]))
    channels.observe({one: InstanceRecord(id=one, role=Role.SERVER, host="h") for one in handlers})
    snapshot = snapshot or snapshot_of(dict.fromkeys(handlers, KEYS))
    calls: list[tuple[InstanceId, CallOutcome]] = []
    request = ScatterRequest(
        request_id="1",
        table=TABLE,
        query=b"",
        snapshot=snapshot,
        routes=snapshot.select(0),
        deadline=asyncio.get_running_loop().time() + timeout_s,
        schema=SCHEMA,
    )
    gathered = await scatter.gather(request, channels, lambda *call: calls.append(call))
    await channels.close()
    return gathered, calls


def rows_of(gathered: Gathered) -> list[str]:
    return sorted(key for partial in gathered.partials for key in partial.data["segment"].to_pylist())


async def test_all_servers_answer() -> None:
    gathered, _ = await gather({A: answers, B: answers})
    assert rows_of(gathered) == sorted(KEYS)
    assert (gathered.num_servers_queried, gathered.num_servers_responded) == (2, 2)
    assert gathered.exceptions() == ()


async def test_answers_that_are_too_large_together_end_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "TOTAL", account.Total(4 << 20))
    hung_up = asyncio.Event()

    async def is_large(request: ServerRequest) -> ServerResponse:
        return ServerResponse(partial=Partial(pa.table({"segment": ["x" * (3 << 19)]}), QueryStats()))

    async def waits(request: ServerRequest) -> ServerResponse:
        try:
            return await never_answers(request)
        finally:
            hung_up.set()

    both, _ = await gather({A: is_large, B: answers})
    assert both.exceptions() == ()
    handlers = {A: is_large, B: is_large, InstanceId("Server_h_3"): waits}
    every = {f"s{number}@1" for number in range(1, 7)}
    gathered, _ = await gather(handlers, snapshot_of(dict.fromkeys(handlers, every), num_segments=6))
    assert [problem.code for problem in gathered.exceptions()] == [QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED]
    assert gathered.partials == []
    await asyncio.wait_for(hung_up.wait(), PATIENCE_S)
    assert account.TOTAL.held_bytes == 0


def other_rows(rows: pa.Table) -> Handler:
    async def answer(request: ServerRequest) -> ServerResponse:
        return ServerResponse(partial=Partial(rows, QueryStats()))

    return answer


async def lacks_what_nobody_asked_for(request: ServerRequest) -> ServerResponse:
    return ServerResponse(partial=(await answers(request)).partial, missing=("other@1",))


@pytest.mark.parametrize(
    "answer",
    [
        other_rows(pa.table({"others": ["x"]})),
        other_rows(pa.table({"segment": ["x"], "more": [1]})),
        other_rows(pa.table({"segment": [[1]]})),
        other_rows(pa.table({})),
        lacks_what_nobody_asked_for,
    ],
)
async def test_answer_to_another_question_is_asked_of_another_replica(answer: Handler) -> None:
    gathered, calls = await gather({A: answer, B: answers})
    assert rows_of(gathered) == sorted(KEYS)
    assert gathered.exceptions() == ()
    assert (A, CallOutcome.UNREACHED) in calls


async def test_answer_in_another_width_of_its_types_is_taken() -> None:
    narrow = other_rows(pa.table({"segment": pa.array(["x"], pa.large_string())}))
    gathered, _ = await gather({A: narrow, B: narrow})
    assert rows_of(gathered) == ["x", "x"]
    assert {partial.data.schema for partial in gathered.partials} == {SCHEMA}


async def is_garbled(request: ServerRequest) -> ServerResponse:
    raise CorruptionError("answer cannot be read")


async def says_nothing(request: ServerRequest) -> ServerResponse:
    return ServerResponse()


FAULTS = [is_down, is_draining, lacks_everything, is_garbled, says_nothing]


@pytest.mark.parametrize("fault", FAULTS)
async def test_another_replica_answers_for_a_server_that_cannot(fault: Handler) -> None:
    gathered, _ = await gather({A: fault, B: answers})
    assert rows_of(gathered) == sorted(KEYS)
    assert gathered.exceptions() == ()
    assert gathered.num_servers_queried == gathered.num_servers_responded >= 1


async def test_only_a_server_that_was_not_reached_is_reported_as_failed() -> None:
    _, calls = await gather({A: is_down, B: is_draining})
    assert set(calls) == {(A, CallOutcome.UNREACHED), (B, CallOutcome.ANSWERED)}


@pytest.mark.parametrize("fault", FAULTS)
async def test_segments_that_no_replica_answers_for_are_told(fault: Handler) -> None:
    gathered, _ = await gather({A: fault, B: fault})
    assert rows_of(gathered) == []
    assert 305 in [one.code for one in gathered.exceptions()]
    assert gathered.num_servers_responded < gathered.num_servers_queried


async def test_lost_server_without_replica_makes_the_answer_partial() -> None:
    gathered, _ = await gather({A: answers, B: is_down}, snapshot_of({A: {"s1@1"}, B: {"s2@1"}}))
    assert rows_of(gathered) == ["s1@1"]
    assert [one.code for one in gathered.exceptions()] == [427, 305]
    assert "Server_h_2" in gathered.exceptions()[0].message
    assert "s2@1" in gathered.exceptions()[1].message
    assert (gathered.num_servers_queried, gathered.num_servers_responded) == (2, 1)


async def test_segment_without_any_route_makes_the_answer_partial() -> None:
    gathered, _ = await gather({A: answers}, snapshot_of({A: {"s1@1"}}))
    assert rows_of(gathered) == ["s1@1"]
    assert [one.code for one in gathered.exceptions()] == [305]
    assert gathered.num_servers_responded < gathered.num_servers_queried


async def test_server_that_does_not_answer_in_time_is_a_timeout() -> None:
    gathered, calls = await gather({A: answers, B: never_answers}, timeout_s=0.02)
    assert [one.code for one in gathered.exceptions()] == [400]
    assert (gathered.num_servers_queried, gathered.num_servers_responded) == (2, 1)
    assert (B, CallOutcome.LATE) in calls


async def test_servers_word_about_the_query_ends_it() -> None:
    gathered, _ = await gather({A: hits_a_limit, B: never_answers})
    assert [one.code for one in gathered.exceptions()] == [245]


async def test_cancelling_cancels_the_calls_under_way() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def waits(request: ServerRequest) -> ServerResponse:
        started.set()
        try:
            return await never_answers(request)
        finally:
            ended.set()

    query = asyncio.create_task(gather({A: waits, B: waits}))
    await started.wait()
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    await asyncio.wait_for(ended.wait(), PATIENCE_S)


async def test_table_without_segments_counts_the_broker_as_its_server() -> None:
    view = TableView(TABLE, RootRecord(epoch=1, num_buckets=1), 1, {})
    empty = build(RoutingInputs(view=view, reports={}, standings={}, now_ms=0))
    gathered, _ = await gather({}, empty)
    assert (gathered.num_servers_queried, gathered.num_servers_responded, gathered.exceptions()) == (1, 1, ())
