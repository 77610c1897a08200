"""A broker's request becomes a partial result, a list of what is missing, or a code; never a traceback."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.sample import ORDERS, orders_manifest, publish_orders, total_amount
from tests.support.servers import TableDataBench

from merlot.clock import SystemClock
from merlot.cluster.manifests.tables import put_table
from merlot.codes import QueryErrorCode
from merlot.ids import TableName
from merlot.query.plan.binding import bind
from merlot.query.shortcuts import coalesced_segments
from merlot.server import pruning, rpc, tables
from merlot.server.rpc import QueryHandler
from merlot.server.scheduler import Scheduler, SchedulerConfig
from merlot.server.settings import ServerSettings
from merlot.server.table_data_manager import TableDataManager
from merlot.spec.table import Table
from merlot.sql.parse import parse
from merlot.testing.patience import until
from merlot.tree import limits
from merlot.tree.tree_json import to_json
from merlot.wire.client import TcpChannel
from merlot.wire.endpoint import TcpEndpoint
from merlot.wire.messages import ServerRequest, ServerResponse


class HandlerBench:
    """Query handler over one table data manager with three segments."""

    def __init__(self, bench: TableDataBench, manager: TableDataManager) -> None:
        self.bench = bench
        self.manager = manager
        self.scheduler = Scheduler(SchedulerConfig(max_young=2, max_running=2, max_waiting=4, num_helpers=1))
        self.handler = self.make_handler(ServerSettings())

    def make_handler(self, settings: ServerSettings) -> QueryHandler:
        return QueryHandler({ORDERS: self.manager}.get, self.scheduler, SystemClock(), "here", settings)

    def request(
        self, sql: str, *, segments: tuple[str, ...] | None = None, timeout_ms: int = 60_000, table: Table | None = None
    ) -> ServerRequest:
        schema = (table or orders_manifest()).spec.table_schema
        return ServerRequest(
            request_id="1",
            table=ORDERS,
            query=to_json(bind(parse(sql), schema, {})),
            segments=tuple(self.manager.segments.keys) if segments is None else segments,
            timeout_ms=timeout_ms,
        )

    async def ask(self, sql: str, **named: Any) -> ServerResponse:
        return await self.handler(self.request(sql, **named))


@pytest.fixture
async def handlers(bench: TableDataBench) -> AsyncIterator[HandlerBench]:
    records = publish_orders(bench.metastore, bench.deep_store, [0, 1, 2])
    bench.assign(bench.me)
    manager = await bench.start_manager()
    await until(lambda: len(bench.report().loaded) == len(records))
    handlers = HandlerBench(bench, manager)
    yield handlers
    handlers.scheduler.close()


async def test_the_asked_segments_are_answered_and_the_others_named(handlers: HandlerBench) -> None:
    one = next(iter(handlers.manager.segments.keys))
    response = await handlers.ask("SELECT sum(amount) FROM orders", segments=(one, "orders_9@5"))
    assert response.missing == ("orders_9@5",)
    assert response.partial is not None
    assert response.partial.stats.num_segments_processed == 1
    assert response.error is None


async def test_a_partial_covers_all_segments(handlers: HandlerBench) -> None:
    response = await handlers.ask("SELECT sum(amount), count(*) FROM orders")
    assert response.partial is not None
    row = response.partial.data.to_pylist()[0]
    assert total_amount([0, 1, 2]) in row.values()
    assert response.partial.stats.num_docs_scanned == 300


async def test_rows_know_which_server_read_them(handlers: HandlerBench) -> None:
    response = await handlers.ask(
        "SELECT $hostName, COUNT(*) FROM orders WHERE $hostName <> 'there' GROUP BY $hostName"
    )
    assert response.partial is not None
    assert response.partial.data.to_pylist() == [{"k0": "here", "a0.count": 300}]


async def test_a_file_taken_away_sends_the_broker_elsewhere_and_is_fetched_again(handlers: HandlerBench) -> None:
    key = next(iter(handlers.manager.segments.keys))
    handlers.bench.path_of(key).unlink()
    response = await handlers.ask("SELECT sum(amount) FROM orders")
    assert response.error is not None
    assert response.error[0] == QueryErrorCode.SERVER_SEGMENT_MISSING
    await until(lambda: handlers.bench.path_of(key).exists() and key in handlers.manager.segments)
    response = await handlers.ask("SELECT sum(amount) FROM orders")
    assert response.partial is not None
    assert total_amount([0, 1, 2]) in response.partial.data.to_pylist()[0].values()


async def test_nothing_held_is_no_partial(handlers: HandlerBench) -> None:
    response = await handlers.ask("SELECT sum(amount) FROM orders", segments=("orders_9@5",))
    assert (response.partial, response.missing, response.error) == (None, ("orders_9@5",), None)


async def test_an_unknown_table_and_a_draining_server_send_the_broker_elsewhere(handlers: HandlerBench) -> None:
    request = ServerRequest(request_id="1", table=TableName("x_OFFLINE"), query=b"", segments=(), timeout_ms=1)
    assert (await handlers.handler(request)).error == (230, "server has no such table table=x_OFFLINE")
    handlers.handler.is_draining = True
    response = await handlers.ask("SELECT count(*) FROM orders")
    assert response.error is not None
    assert response.error[0] == 210


async def test_a_query_that_is_none_is_refused(handlers: HandlerBench) -> None:
    keys = tuple(handlers.manager.segments.keys)
    request = ServerRequest(request_id="1", table=ORDERS, query=b"{}", segments=keys, timeout_ms=1000)
    response = await handlers.handler(request)
    assert response.error is not None
    assert response.error[0] == QueryErrorCode.QUERY_PLANNING


async def test_plans_that_no_broker_makes_are_refused_without_a_word_in_the_log(
    handlers: HandlerBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A length that SQL refuses kept a server busy for a minute, and types of fields were tracebacks."""
    request = handlers.request("SELECT sum(amount), count(*) FROM orders WHERE amount > 5")
    text = b'["L","STRING","x"]'
    padded = b'["F","STRING","lpad",[%b,["L","INT",2000000000],%b]]' % (text, text)
    long = b'["F","BOOLEAN","equals",[%b,%b]]' % (padded, text)
    for spoiled in (
        replace(request, where=long),
        replace(request, query=request.query.replace(b'"limit":10', b'"limit":"10"')),
        replace(request, query=request.query.replace(b'"options":[]', b'"options":[["a"]]')),
        replace(request, query=request.query.replace(b'"explain":false', b'"explain":false,"more":1')),
        replace(request, query=request.query.replace(b'"amount"', b'"amounts"')),
        replace(request, where=b'["F","BOOLEAN","is_null",[["C","STRING","amount"]]]'),
        replace(request, query=b" " * (limits.MAX_PLAN_BYTES + 1)),
    ):
        for ask in (handlers.handler, lambda one: _now(handlers, one)):
            response = await ask(spoiled)
            assert response is not None
            assert response.error is not None
            assert response.error[0] == QueryErrorCode.QUERY_PLANNING, response.error
    assert not caplog.records


async def _now(handlers: HandlerBench, request: ServerRequest) -> ServerResponse:
    return handlers.handler.answer_now(request) or await handlers.handler(request)


async def test_time_that_is_over_is_pinots_code(handlers: HandlerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def dawdle(*args: object) -> object:
        context = args[2]
        while True:
            context.cancel.check()  # type: ignore[attr-defined]

    monkeypatch.setattr(rpc, "execute", dawdle)
    response = await handlers.ask("SELECT count(*) FROM orders", timeout_ms=30)
    assert response.error is not None
    assert response.error[0] == 250


async def test_cancelling_a_request_stops_its_thread_and_frees_its_segments(
    handlers: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = asyncio.Event()
    loop = asyncio.get_running_loop()

    def dawdle(*args: object) -> object:
        loop.call_soon_threadsafe(running.set)
        while True:
            args[2].cancel.check()  # type: ignore[attr-defined]

    monkeypatch.setattr(rpc, "execute", dawdle)
    task = asyncio.create_task(handlers.ask("SELECT count(*) FROM orders"))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await handlers.scheduler.wait_idle(5.0)
    held = [held for held in handlers.manager.segments._held.values() if held.num_readers]
    assert held == []


async def test_a_column_that_was_just_added_is_looked_up_before_it_is_refused(handlers: HandlerBench) -> None:
    table = orders_manifest(more_fields="      - {name: note, type: STRING}")
    put_table(handlers.bench.metastore, table)
    response = await handlers.ask("SELECT count(*) FROM orders WHERE note = 'null'", table=table)
    assert response.error is None
    assert response.partial is not None
    assert 300 in response.partial.data.to_pylist()[0].values()


async def test_corrupt_data_met_by_a_query_sends_the_broker_elsewhere_and_is_mended(handlers: HandlerBench) -> None:
    key = next(iter(handlers.manager.segments.keys))
    path = handlers.bench.path_of(key)

    def fail(*_: object) -> None:
        raise rpc.CorruptionError("segment is damaged")

    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rpc, "execute", fail)
        response = await handlers.ask("SELECT count(*) FROM orders")
    assert response.error is not None
    assert response.error[0] == 235
    await until(lambda: list(handlers.bench.quarantine.glob("*")))
    await until(lambda: key in handlers.manager.segments)


LIGHT = "SELECT sum(amount), count(*) FROM orders WHERE id > 1"


@pytest.fixture
def executions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads that executed something, in order."""
    threads: list[str] = []
    execute = rpc.execute

    def noted(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return execute(*args)

    monkeypatch.setattr(rpc, "execute", noted)
    return threads


async def test_a_light_query_of_columns_in_memory_is_answered_on_the_loop(
    handlers: HandlerBench, executions: list[str]
) -> None:
    request = handlers.request(LIGHT)
    assert handlers.handler.answer_now(request) is None
    by_thread = await handlers.handler(request)
    now = handlers.handler.answer_now(request)
    assert now is not None
    assert now.partial is not None
    assert by_thread.partial is not None
    assert now.partial.data == by_thread.partial.data
    assert [name == threading.current_thread().name for name in executions] == [False, True]


async def test_a_query_that_turns_out_heavy_is_tried_once_on_the_loop(
    handlers: HandlerBench, executions: list[str]
) -> None:
    await handlers.ask(LIGHT)
    handler = handlers.make_handler(ServerSettings(inline_docs=10))
    executions.clear()
    server = TcpEndpoint(handler, lambda: "Server_x_1", answer_now=handler.answer_now)
    channel = TcpChannel("127.0.0.1", server.bind("127.0.0.1", 0))
    await server.start()
    answer = await channel.execute(handlers.request(LIGHT), 5.0)
    await channel.close()
    await server.stop(0)
    assert answer.partial is not None
    assert [name == threading.current_thread().name for name in executions] == [True, False]


@pytest.fixture
def long_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three segments are many."""
    monkeypatch.setattr(rpc, "INLINE_SEGMENTS", 1)
    monkeypatch.setattr(tables, "SHARED_KEYS", 2)
    monkeypatch.setattr(pruning, "FEW_SEGMENTS", 1)


@pytest.mark.parametrize(
    ("condition", "is_light"), [("id BETWEEN 120 AND 130", True), ("id > 900", True), ("id > 1", False)]
)
async def test_of_many_segments_the_loop_looks_at_the_few_that_statistics_leave(
    handlers: HandlerBench, executions: list[str], long_requests: None, condition: str, is_light: bool
) -> None:
    request = handlers.request(f"SELECT sum(amount), count(*) FROM orders WHERE {condition}")
    assert handlers.handler.answer_now(request) is None
    by_thread = await handlers.handler(request)
    now = handlers.handler.answer_now(request)
    assert (now is not None) is is_light
    assert by_thread.partial is not None
    if now is not None and now.partial is not None:
        assert now.partial.data == by_thread.partial.data
        timeless = [replace(one.partial.stats, thread_cpu_time_ns=0) for one in (now, by_thread) if one.partial]
        assert timeless[0] == timeless[1]
    assert not [held for held in handlers.manager.segments._held.values() if held.num_readers > 1]


async def test_statistics_of_other_columns_are_made_by_a_thread(handlers: HandlerBench, long_requests: None) -> None:
    await handlers.ask("SELECT sum(amount), count(*) FROM orders WHERE id = 120")
    other = handlers.request("SELECT sum(id), count(*) FROM orders WHERE amount = -1")
    assert handlers.handler.answer_now(other) is None
    assert (await handlers.handler(other)).partial is not None
    assert handlers.handler.answer_now(other) is not None


async def test_segments_are_joined_by_a_thread_and_held_meanwhile(
    handlers: HandlerBench, executions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    joiners: list[str] = []
    held: list[int] = []
    join = coalesced_segments.coalesce

    def noted(*args: Any) -> Any:
        joiners.append(threading.current_thread().name)
        held.extend(one.num_readers for one in handlers.manager.segments._held.values())
        return join(*args)

    monkeypatch.setattr(coalesced_segments, "coalesce", noted)
    monkeypatch.setattr(coalesced_segments, "MIN_SEGMENTS", 1)
    await handlers.ask(LIGHT)
    for _ in range(4):
        assert handlers.handler.answer_now(handlers.request(LIGHT)) is not None
    await until(lambda: len(joiners) == 2)
    assert threading.current_thread().name not in joiners
    assert min(held) >= 1
    await until(lambda: not any(one.num_readers for one in handlers.manager.segments._held.values()))
    answer = handlers.handler.answer_now(handlers.request(LIGHT))
    assert answer is not None
    assert len(joiners) == 2


async def test_queries_in_threads_are_answered_while_their_segments_are_being_joined(
    handlers: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_let_go = threading.Event()
    joiners: list[str] = []
    join = coalesced_segments.coalesce

    def stuck(*args: Any) -> Any:
        joiners.append(threading.current_thread().name)
        assert is_let_go.wait(30)
        return join(*args)

    monkeypatch.setattr(coalesced_segments, "coalesce", stuck)
    monkeypatch.setattr(coalesced_segments, "MIN_SEGMENTS", 1)
    answers = [await handlers.ask(LIGHT) for _ in range(4)]
    await until(lambda: len(joiners) == 1)
    answers.append(await handlers.ask(LIGHT))
    is_let_go.set()
    await until(lambda: len(joiners) == 2)
    await until(lambda: not any(one.num_readers for one in handlers.manager.segments._held.values()))
    answers.append(await handlers.ask(LIGHT))
    partials = [answer.partial for answer in answers if answer.partial is not None]
    assert len(partials) == 6
    assert all(partial.data == partials[0].data for partial in partials)
    assert len(joiners) == 2
    assert all(name.startswith("join") for name in joiners)


async def test_a_server_that_stops_joins_no_more_columns(
    handlers: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_let_go = threading.Event()
    joined: list[Any] = []
    join = coalesced_segments.coalesce

    def stuck(*args: Any) -> Any:
        assert is_let_go.wait(30)
        joined.append(join(*args))
        return joined[-1]

    monkeypatch.setattr(coalesced_segments, "coalesce", stuck)
    monkeypatch.setattr(coalesced_segments, "MIN_SEGMENTS", 1)
    for _ in range(3):
        await handlers.ask(LIGHT)
    handlers.scheduler.close()
    is_let_go.set()
    await until(lambda: not any(one.num_readers for one in handlers.manager.segments._held.values()))
    assert len(joined) == 1
