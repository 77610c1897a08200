"""A broker over HTTP: Pinot's paths, headers and codes, and never a traceback."""

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectionError, ClientResponse, ClientSession
from jsonschema import Draft202012Validator
from tests.described_answers import DescribedAnswers

from merlot.broker.http.answers import ANSWER
from merlot.broker.http.listener import GRACE_S
from merlot.broker.planning.planner import Planner
from merlot.broker.role import BrokerConfig, BrokerRole
from merlot.cluster.instances import liveness, reports
from merlot.cluster.manifests import tables
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments import publish
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load
from merlot.testing.patience import PATIENCE_S
from merlot.vectors import account
from merlot.wire.client import LocalChannel
from merlot.wire.messages import ServerRequest, ServerResponse

FLIGHTS = TableName("flights_OFFLINE")
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights}
spec:
  schema:
    fields:
      - {name: carrier, type: STRING, role: dimension}
      - {name: delay, type: INT, role: metric}
"""


class FaultyServer:
    """A server without segments whose next answer a test chooses."""

    def __init__(self) -> None:
        self.response: ServerResponse | BaseException = ServerResponse(missing=("s@1",))
        self.arrived = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.was_cancelled = asyncio.Event()

    async def handle(self, request: ServerRequest) -> ServerResponse:
        self.arrived.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise
        if isinstance(self.response, BaseException):
            raise self.response
        return self.response


class Client:
    """One broker and somebody who asks it."""

    def __init__(self, role: BrokerRole, port: int, session: ClientSession, store: Metastore) -> None:
        self.role = role
        self.store = store
        self.url = f"http://127.0.0.1:{port}"
        self.session = session

    async def post(self, sql: str, **more: Any) -> tuple[ClientResponse, dict[str, Any]]:
        headers = more.pop("headers", {})
        async with self.session.post(f"{self.url}/query/sql", json={"sql": sql, **more}, headers=headers) as response:
            answer = await response.json()
            Draft202012Validator(ANSWER).validate(answer)
            return response, answer

    async def codes(self, sql: str, **more: Any) -> list[int]:
        response, answer = await self.post(sql, **more)
        assert response.status == 200
        found = [one["errorCode"] for one in answer["exceptions"]]
        assert response.headers["X-Pinot-Error-Code"] == str(found[0] if found else -1)
        assert "Traceback" not in str(answer)
        return found


@pytest.fixture
async def server() -> FaultyServer:
    return FaultyServer()


@pytest.fixture
async def client(tmp_path: Path, server: FaultyServer) -> AsyncIterator[Client]:
    store = SqliteMetastore(tmp_path / "meta.db")
    await asyncio.to_thread(prepare, store)
    role = BrokerRole(store, BrokerConfig(http_port=0, drain_s=10), lambda record: LocalChannel(server.handle))
    port = await role.start()
    async with ClientSession() as session:
        yield Client(role, port, session, store)
    await role.stop()
    await asyncio.to_thread(store.close)


def prepare(store: Metastore) -> None:
    tables.put_table(store, load(MANIFEST)[0])
    tables.confirm_table(store, FLIGHTS)
    publish.publish(store, FLIGHTS, [SegmentRecord(name="s", crc=1, size_bytes=1, url="", total_docs=10)])
    server = InstanceRecord(id=InstanceId("Server_h_1"), role=Role.SERVER, host="h", query_port=1)
    reports.write_report(store, FLIGHTS, server.id, ["s@1"], {})
    liveness.register(store, server)


async def test_select_without_a_table_is_answered_by_the_broker_alone(client: Client) -> None:
    response, answer = await client.post("SELECT 1", headers={"X-Correlation-Id": "abc"})
    assert response.status == 200
    assert response.headers["X-Pinot-Error-Code"] == "-1"
    assert answer["resultTable"]["rows"] == [[1]]
    assert (answer["numServersQueried"], answer["numServersResponded"]) == (1, 1)
    assert answer["clientRequestId"] == "abc"
    assert answer["brokerId"] == client.role.broker_id
    assert answer["brokerId"].startswith("Broker_127.0.0.1_")


async def test_option_that_nobody_knows_is_told_of_in_an_answer_that_is_no_error(client: Client) -> None:
    assert await client.codes("SET timeOut=5; SELECT 1", queryOptions="useMultistageEngine=true;zzz=1") == []
    _, answer = await client.post("SET timeOut=5; SELECT 1", queryOptions="useMultistageEngine=true;zzz=1")
    assert answer["resultTable"]["rows"] == [[1]]
    assert answer["queryWarnings"] == [
        "unknown query option ignored name=timeOut; did you mean timeoutMs?",
        "unknown query option ignored name=zzz",
    ]
    _, answer = await client.post("SELECT 1", queryOptions="useMultistageEngine=true")
    assert "queryWarnings" not in answer


async def test_plan_of_constants_is_that_the_broker_evaluates_them(client: Client) -> None:
    _, answer = await client.post("EXPLAIN PLAN FOR SELECT 1")
    assert answer["resultTable"]["rows"] == [["BROKER_EVALUATE", 0, -1]]
    assert answer["resultTable"]["dataSchema"]["columnNames"] == ["Operator", "Operator_Id", "Parent_Id"]


async def test_constants_alone_are_labelled_without_quotes(client: Client) -> None:
    _, answer = await client.post("SELECT 1, 1.5, 'x', true, NULL, 1 + 1, 'y' AS z")
    assert answer["resultTable"]["dataSchema"]["columnNames"] == ["1", "1.5", "'x'", "true", "null", "2", "z"]


async def test_results_are_dropped_if_asked_for(client: Client) -> None:
    _, answer = await client.post("SET dropResults=true; SELECT 1")
    assert "resultTable" not in answer
    assert (answer["numRowsResultSet"], answer["exceptions"]) == (0, [])


async def test_a_query_names_itself_by_an_option(client: Client, server: FaultyServer) -> None:
    _, answer = await client.post("SELECT 1", queryOptions="clientQueryId=mine", headers={"X-Correlation-Id": "abc"})
    assert answer["clientRequestId"] == "mine"
    server.may_answer.clear()
    query = asyncio.create_task(client.post("SELECT COUNT(*) FROM flights", queryOptions="clientQueryId=mine"))
    await asyncio.wait_for(server.arrived.wait(), PATIENCE_S)
    async with client.session.delete(f"{client.url}/query/mine?client=true") as response:
        assert response.status == 200
    _, answer = await query
    assert [one["errorCode"] for one in answer["exceptions"]] == [503]


async def test_get_takes_the_query_from_the_url(client: Client) -> None:
    async with client.session.get(f"{client.url}/query/sql", params={"sql": "SELECT 1"}) as response:
        assert (await response.json())["resultTable"]["rows"] == [[1]]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELEC 1", 150),
        ("SELECT * FROM flights WHERE (", 150),
        ("SELECT * FROM planes", 190),
        ("SELECT altitude FROM flights", 710),
        ("SELECT carrier FROM flights GROUP BY delay", 150),
        ("SELECT * FROM flights OPTION(timeoutMs=soon)", 150),
        ("SELECT * FROM flights OPTION(useStarTree=perhaps)", 150),
        ("SELECT * FROM flights OPTION(getCursor=true)", 700),
    ],
)
async def test_wrong_query_has_pinots_code_and_status_200(client: Client, sql: str, code: int) -> None:
    assert await client.codes(sql) == [code]


async def test_status_follows_the_code_only_if_asked_for(client: Client) -> None:
    headers = {"Pinot-Use-Http-Status-For-Errors": "true"}
    response, _ = await client.post("SELECT * FROM planes", headers=headers)
    assert response.status == 404
    response, _ = await client.post("SELECT 1", headers=headers)
    assert response.status == 200


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[]", b'{"query": "SELECT 1"}', b'{"sql": 1}', b'{"sql":"", "queryOptions": 1}']
)
async def test_request_that_is_no_query_is_status_400(client: Client, body: bytes) -> None:
    async with client.session.post(f"{client.url}/query/sql", data=body) as response:
        assert response.status == 400
        assert response.headers["X-Pinot-Error-Code"] == "100"
        assert (await response.json())["exceptions"][0]["errorCode"] == 100


async def test_server_that_lacks_the_segment_leaves_it_unavailable(client: Client) -> None:
    _, answer = await client.post("SELECT COUNT(*) FROM flights")
    assert 305 in [one["errorCode"] for one in answer["exceptions"]]
    assert answer["partialResult"] is True
    assert answer["numServersResponded"] < answer["numServersQueried"]


async def test_servers_timeout_and_the_brokers_have_their_codes(client: Client, server: FaultyServer) -> None:
    server.response = ServerResponse(error=(250, "query timed out"))
    _, answer = await client.post("SELECT COUNT(*) FROM flights")
    assert answer["exceptions"] == [{"errorCode": 250, "message": "EXECUTION_TIMEOUT: query timed out"}]
    server.may_answer.clear()
    assert await client.codes("SELECT COUNT(*) FROM flights", queryOptions=";timeoutMs=20") == [400]


async def test_bug_is_an_internal_error_without_a_traceback(
    client: Client, server: FaultyServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.response = ZeroDivisionError("secret")
    _, answer = await client.post("SELECT COUNT(*) FROM flights")
    (problem,) = answer["exceptions"]
    assert problem["errorCode"] == 450
    assert answer["requestId"] in problem["message"]
    assert "secret" not in problem["message"]
    assert answer["requestId"] in caplog.text


@pytest.mark.parametrize("method", ["HEAD", "GET", "POST"])
async def test_unknown_path_is_not_found(client: Client, method: str) -> None:
    async with client.session.request(method, f"{client.url}/mytables") as response:
        assert response.status == 404


async def test_table_of_one_type_has_no_time_boundary(client: Client) -> None:
    async with client.session.get(f"{client.url}/debug/timeBoundary/flights") as response:
        assert response.status == 404


async def test_tables_and_their_schemas_are_answered_without_a_controller(client: Client) -> None:
    async with client.session.get(f"{client.url}/tables") as response:
        assert await response.json() == {"tables": ["flights"]}
    async with client.session.get(f"{client.url}/tables/flights_OFFLINE/schema") as response:
        assert await response.json() == {
            "schemaName": "flights",
            "dimensionFieldSpecs": [{"name": "carrier", "dataType": "STRING", "singleValueField": True}],
            "metricFieldSpecs": [{"name": "delay", "dataType": "INT"}],
            "dateTimeFieldSpecs": [],
        }
    async with client.session.get(f"{client.url}/tables/planes/schema") as response:
        assert (response.status, await response.json()) == (
            404,
            {"code": 404, "error": "table does not exist table=planes"},
        )


async def test_routing_table_names_servers_and_segments(client: Client) -> None:
    async with client.session.get(f"{client.url}/debug/routingTable/flights") as response:
        assert await response.json() == {"flights_OFFLINE": {"Server_h_1": ["s"]}}
    async with client.session.get(f"{client.url}/debug/routingTable/planes") as response:
        assert response.status == 404


async def test_routing_table_is_of_the_half_that_a_name_says(client: Client) -> None:
    for path in ("routingTable", "lineage"):
        async with client.session.get(f"{client.url}/debug/{path}/flights_OFFLINE") as response:
            assert list(await response.json()) == ["flights_OFFLINE"]
        async with client.session.get(f"{client.url}/debug/{path}/flights_REALTIME") as response:
            assert response.status == 404


async def test_a_broker_tells_which_replacements_it_follows(client: Client) -> None:
    async with client.session.get(f"{client.url}/debug/lineage/flights") as response:
        assert (await response.json())["flights_OFFLINE"]["completed"] == []
    async with client.session.get(f"{client.url}/debug/lineage/planes") as response:
        assert response.status == 404


@pytest.mark.parametrize(("sql", "status"), [("SELECT * FROM flights", 200), ("SELECT * FROM planes", 404), ("S", 400)])
async def test_routing_table_of_a_query(client: Client, sql: str, status: int) -> None:
    async with client.session.get(f"{client.url}/debug/routingTable/sql", params={"query": sql}) as response:
        assert response.status == status


async def test_routing_table_of_a_query_is_flat_as_spark_reads_it(client: Client) -> None:
    for name in ("flights_OFFLINE", "flights"):
        params = {"query": f"SELECT carrier FROM {name} LIMIT 5"}
        async with client.session.get(f"{client.url}/debug/routingTable/sql", params=params) as response:
            assert await response.json() == {"Server_h_1": ["s"]}
    params = {"query": "SELECT carrier FROM flights_REALTIME"}
    async with client.session.get(f"{client.url}/debug/routingTable/sql", params=params) as response:
        assert response.status == 404


async def test_a_table_is_queried_by_its_name_and_by_that_of_its_only_half(client: Client) -> None:
    assert await client.codes("EXPLAIN PLAN FOR SELECT carrier FROM flights_OFFLINE") != [190]
    assert await client.codes("SELECT carrier FROM flights_REALTIME") == [190]
    assert await client.codes("SET useMultistageEngine = 'TRUE'; SELECT carrier FROM flights_realtime") == [190]


@pytest.mark.parametrize(
    "sql", ["SELECT COUNT(*) FROM flights", "SELECT a.carrier FROM flights a JOIN flights b ON a.carrier = b.carrier"]
)
async def test_a_suspended_table_answers_no_query(client: Client, sql: str) -> None:
    for is_suspended in (True, False):
        text = MANIFEST + f"  suspend: {str(is_suspended).lower()}\n"
        await asyncio.to_thread(tables.put_table, client.store, load(text)[0])
        async with asyncio.timeout(PATIENCE_S):
            while (await client.codes(sql) == [191]) != is_suspended:
                await asyncio.sleep(0.01)


async def test_client_that_hangs_up_cancels_its_query(client: Client, server: FaultyServer) -> None:
    server.may_answer.clear()
    query = asyncio.create_task(client.post("SELECT COUNT(*) FROM flights"))
    await server.arrived.wait()
    query.cancel()
    await asyncio.gather(query, return_exceptions=True)
    await asyncio.wait_for(server.was_cancelled.wait(), PATIENCE_S)


@pytest.mark.parametrize("by_client_id", [True, False])
async def test_running_query_can_be_listed_and_cancelled(
    client: Client, server: FaultyServer, by_client_id: bool
) -> None:
    server.may_answer.clear()
    query = asyncio.create_task(client.post("SELECT COUNT(*) FROM flights", headers={"X-Correlation-Id": "mine"}))
    await server.arrived.wait()
    async with client.session.get(f"{client.url}/queries") as response:
        ((request_id, sql),) = (await response.json()).items()
    assert sql == "SELECT COUNT(*) FROM flights"
    path = "mine?client=true" if by_client_id else request_id
    async with client.session.delete(f"{client.url}/query/{path}") as response:
        assert response.status == 200
    response, answer = await query
    assert (response.status, answer["exceptions"][0]["errorCode"]) == (200, 503)
    assert server.was_cancelled.is_set()
    async with client.session.delete(f"{client.url}/query/{path}") as response:
        assert response.status == 404


async def test_stopping_waits_for_running_queries(client: Client, server: FaultyServer) -> None:
    server.response = ServerResponse(error=(245, "x"))
    server.may_answer.clear()
    query = asyncio.create_task(client.codes("SELECT COUNT(*) FROM flights"))
    await server.arrived.wait()
    stopping = asyncio.create_task(client.role.stop())
    while client.role.unready_reason() is None:
        await asyncio.sleep(0)
    async with client.session.get(f"{client.url}/health") as response:
        assert (response.status, await response.text()) == (503, "draining")
    server.may_answer.set()
    assert await query == [245]
    await stopping


@pytest.mark.parametrize("path", ["/query/sql", "/query/sql?plain=false"])
async def test_queries_that_arrive_while_the_broker_stops_are_waited_for_as_well(
    client: Client, server: FaultyServer, path: str
) -> None:
    server.response = ServerResponse(error=(245, "x"))
    server.may_answer.clear()
    first = asyncio.create_task(client.codes("SELECT COUNT(*) FROM flights"))
    await server.arrived.wait()
    stopping = asyncio.create_task(client.role._drain())
    server.arrived.clear()
    body = {"sql": "SELECT MAX(delay) FROM flights"}
    second = asyncio.create_task(client.session.post(client.url + path, json=body))
    await server.arrived.wait()
    [sql] = [key for key, text in client.role.running().items() if "COUNT" in text]
    assert client.role.cancel(sql)
    assert await first == [503]
    await asyncio.wait([stopping, second], timeout=GRACE_S + 0.2, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(ClientConnectionError):
        await client.post("SELECT 1")
    server.may_answer.set()
    async with await second as response:
        assert (await response.json())["exceptions"][0]["errorCode"] == 245
    await stopping


async def test_health_and_metrics(client: Client) -> None:
    async with client.session.get(f"{client.url}/health") as response:
        assert await response.text() == "OK"
    await client.codes("SELECT * FROM planes")
    async with client.session.get(f"{client.url}/metrics") as response:
        text = await response.text()
    assert 'merlot_broker_queries_total{code="190",table=""}' in text


async def test_changed_schema_makes_a_new_plan(client: Client, tmp_path: Path) -> None:
    assert await client.codes("SELECT origin FROM flights LIMIT 0") == [710]
    wider = MANIFEST + "      - {name: origin, type: STRING, role: dimension}\n"
    await asyncio.to_thread(tables.put_table, client.role._metastore, load(wider)[0])
    for _ in itertools.count():
        if 710 not in await client.codes("SELECT origin FROM flights LIMIT 0"):
            break
        await asyncio.sleep(0.01)


async def test_a_table_over_its_quota_refuses_queries_until_there_is_room_again(client: Client) -> None:
    limited = MANIFEST + "  limits: {maxQueriesPerSecond: 0.01}\n"
    await asyncio.to_thread(tables.put_table, client.store, load(limited)[0])
    directory = client.role.directory
    while directory.tables[FLIGHTS].spec.limits.max_queries_per_second is None:
        await asyncio.sleep(0.01)
    first = await client.codes("SELECT COUNT(*) FROM flights")
    assert 429 not in first
    assert await client.codes("SELECT COUNT(*) FROM flights") == [429]
    assert await client.codes("SELECT a.delay FROM flights a JOIN flights b ON a.delay = b.delay") == [429]
    response, _ = await client.post("SELECT 1 FROM flights", headers={"Pinot-Use-Http-Status-For-Errors": "true"})
    assert response.status == 429
    assert await client.codes("SELECT 1") == []


async def test_a_text_is_checked_without_being_run(client: Client) -> None:
    async def checked(body: object) -> tuple[int, Any]:
        async with client.session.post(f"{client.url}/query/sql/validateSyntax", json=body) as response:
            return response.status, await response.json(content_type=None) if response.status == 200 else None

    assert await checked({"sql": "SELECT x FROM nowhere"}) == (
        200,
        {"compiledSuccessfully": True, "errorMessage": None, "errorCode": None},
    )
    status, told = await checked({"sql": "SELEC 1"})
    assert (status, told["compiledSuccessfully"], told["errorCode"]) == (200, False, 150)
    assert (await checked({"query": "SELECT 1"}))[0] == 400
    assert (await checked([]))[0] == 400


async def test_texts_that_differ_in_constants_have_one_fingerprint(client: Client) -> None:
    async def fingerprint(sql: str) -> tuple[int, Any]:
        async with client.session.post(f"{client.url}/query/sql/queryFingerprint", json={"sql": sql}) as response:
            return response.status, await response.json() if response.status == 200 else await response.text()

    status, told = await fingerprint("SELECT x FROM t WHERE y IN (1, 2) AND z = 'a'")
    assert (status, told["fingerprint"]) == (200, "SELECT x FROM t WHERE y IN (?) AND z = ?")
    assert len(told["queryHash"]) == 16
    assert await fingerprint("SELECT x FROM  t WHERE y IN (3) AND z = 'b'") == (200, told)
    assert (await fingerprint("SELECT x FROM t WHERE y > 3"))[1]["queryHash"] != told["queryHash"]
    assert (await fingerprint("SELEC 1"))[0] == 400


@pytest.mark.parametrize(
    "path", ["/query/sql/validateSyntax", "/query/sql/queryFingerprint", "/debug/routingTable/sql"]
)
async def test_a_text_that_is_only_checked_has_a_deadline_as_a_query_has(
    client: Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(Planner, "run", functools.partialmethod(Planner.run, timeout_s=0.001))
    sql = f"SELECT {', '.join('a + 1' for _ in range(10_000))} FROM t"
    url = f"{client.url}{path}"
    is_get = "routing" in path
    asked = (
        client.session.get(url, params={"query": sql[:6000]}) if is_get else client.session.post(url, json={"sql": sql})
    )
    async with asked as response:
        assert response.status == 503
        assert "deadline" in await response.text()


async def test_every_path_of_the_broker_is_described(client: Client) -> None:
    async with client.session.get(f"{client.url}/openapi.json") as response:
        document = await response.json()
    answers, described = DescribedAnswers(document), document["paths"]
    assert set(described["/query/sql"]) == {"get", "post"}
    assert {"/tables", "/uptime", "/start-time", "/debug/timeBoundary/{table}", "/openapi.json"} <= set(described)
    for path in (path for path, methods in described.items() if "get" in methods):
        filled = path.replace("{", "").replace("}", "")
        async with client.session.get(client.url + filled) as response:
            assert response.status in (200, 400, 404), path
            answers.check("GET", filled, response.status, response.content_type, await response.text())


PAGED = "SELECT x FROM (VALUES (1), (2), (3), (4), (5)) AS v (x) ORDER BY x"


async def test_a_cursor_has_all_rows_of_one_run_page_by_page(client: Client) -> None:
    async def get(path: str) -> tuple[int, Any]:
        async with client.session.get(client.url + path) as response:
            return response.status, await response.json() if response.status == 200 else await response.text()

    async with client.session.post(
        f"{client.url}/query/sql?getCursor=true&numRows=2", json={"sql": PAGED}, headers={"X-Correlation-Id": "mine"}
    ) as response:
        first = await response.json()
    assert (response.status, response.headers["X-Pinot-Error-Code"]) == (200, "-1")
    assert first["resultTable"]["rows"] == [[1], [2]]
    assert (first["offset"], first["numRows"], first["numRowsResultSet"]) == (0, 2, 5)
    assert (first["clientRequestId"], first["brokerHost"]) == ("mine", "127.0.0.1")
    at = f"/responseStore/{first['requestId']}"
    _, second = await get(f"{at}/results?offset=2&numRows=2")
    _, last = await get(f"{at}/results?offset=4")
    _, past = await get(f"{at}/results?offset=99")
    assert [page["resultTable"]["rows"] for page in (second, last, past)] == [[[3], [4]], [[5]], []]
    assert {page["requestId"] for page in (first, second, last, past)} == {first["requestId"]}
    status, head = await get(at + "/")
    assert (status, head["numRowsResultSet"], "resultTable" in head) == (200, 5, False)
    assert [one["requestId"] for one in (await get("/responseStore"))[1]] == [first["requestId"]]
    assert (await get(f"{at}/results?offset=-1"))[0] == 400
    assert (await get(f"{at}/results?numRows=0"))[0] == 400
    async with client.session.delete(client.url + at) as response:
        assert response.status == 200
    assert (await get(f"{at}/results"))[0] == 404
    async with client.session.delete(client.url + at) as response:
        assert response.status == 404


async def test_an_answer_with_errors_is_sent_as_it_is_and_not_kept(client: Client) -> None:
    async def post(body: object, rows: str = "5") -> tuple[int, list[int]]:
        url = f"{client.url}/query/sql?getCursor=true&numRows={rows}"
        async with client.session.post(url, json=body) as response:
            return response.status, [one["errorCode"] for one in (await response.json())["exceptions"]]

    assert await post({"sql": "SELEC 1"}) == (200, [150])
    assert await post({"sql": "SELECT 1"}, rows="many") == (200, [700])
    assert await post({"text": 1}) == (400, [100])
    async with client.session.get(f"{client.url}/query/sql", params={"sql": PAGED, "getCursor": "true"}) as response:
        assert (await response.json())["numRows"] == 5
    async with client.session.get(f"{client.url}/responseStore") as response:
        assert len(await response.json()) == 1


async def test_a_long_constant_is_worked_out_within_the_memory_of_a_query(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it stopped the broker for as long as it took, and a longer one ended it."""
    monkeypatch.setattr(account, "TOTAL", account.Total(64 << 20))
    _, answer = await client.post("SELECT LENGTH(REPEAT(REPEAT('a', 10000), 500)), 1 + 1")
    assert answer["resultTable"]["rows"] == [[5_000_000, 2]]
    for sql, bytes_ in (
        ("SELECT LENGTH(REPEAT(REPEAT('a', 10000), 10000))", 200_000_000),
        ("SELECT LENGTH(REPEAT(REPEAT(REPEAT('a', 10000), 1000), 10000))", 200_000_000_000),
    ):
        assert await client.codes(sql) == [245]
        _, answer = await client.post(sql)
        assert f"query needs too much memory for REPEAT bytes={bytes_} " in answer["exceptions"][0]["message"]
    assert account.TOTAL.held_bytes == 0


async def test_running_out_of_memory_is_no_internal_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("merlot.broker.queries._constant_rows", fail)
    assert await client.codes("SELECT 1") == [245]
