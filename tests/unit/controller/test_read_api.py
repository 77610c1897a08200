"""Pinot's reading paths over HTTP, for tables of either half and of both."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.described_answers import DescribedAnswers

from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import write_report
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments import publish
from merlot.cluster.segments.transaction import PutSegments, mutate
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.http.api import make_app, routes
from merlot.controller.service import ControllerService
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import EVERY_FOLDER

Client = TestClient[web.Request, web.Application]
PLACES = AllowedPlaces(streams=AllowedStreams(folders=EVERY_FOLDER))

BATCHES = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: batches}
spec:
  suspend: true
  limits: {maxQueriesPerSecond: 5}
  schema:
    fields: [{name: carrier, type: STRING}, {name: delay, type: INT, role: metric}]
"""
STREAM = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: live}
spec:
  timeColumn: at
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: carrier, type: STRING}
  ingestion:
    stream: {type: files, topic: /tmp/live, decoder: {type: JSON}}
"""
HYBRID = STREAM.replace("name: live", "name: both") + "    timeBoundary: {}\n"
"""The same, with batches beside it."""


@pytest.fixture
async def client(store: SqliteMetastore) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(ControllerService(store, places=PLACES)))) as client:
        for manifest in (BATCHES, STREAM, HYBRID):
            answer = await client.post("/apply", data=manifest)
            assert answer.status == 200, await answer.text()
        yield client


async def get(client: Client, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status == 200, await answer.text()
    return await answer.json()


async def test_clients_find_brokers_under_the_names_of_a_table_s_halves(client: Client, store: SqliteMetastore) -> None:
    record = InstanceRecord(id=InstanceId("Broker_h_1"), role=Role.BROKER, host="h", http_port=1)
    registration = register(store, record)
    found = await get(client, "/tables/livebrokers")
    assert sorted(found) == ["batches_OFFLINE", "both_OFFLINE", "both_REALTIME", "live_REALTIME"]
    assert sorted(await get(client, "/tables/livebrokers?tables=both")) == ["both_OFFLINE", "both_REALTIME"]
    assert (await get(client, "/brokers/tables"))["live_REALTIME"] == ["Broker_h_1"]
    assert await get(client, "/brokers/tables/live") == ["Broker_h_1"]
    assert await get(client, "/brokers") == {
        "tenants": {"default": ["Broker_h_1"]},
        "tables": {name: ["Broker_h_1"] for name in found},
    }
    registration.close()


async def test_configs_come_by_half_with_their_names_and_types(client: Client) -> None:
    configs = await get(client, "/tables/both")
    named = {half: (config["tableName"], config["tableType"]) for half, config in configs.items()}
    assert named == {"OFFLINE": ("both_OFFLINE", "OFFLINE"), "REALTIME": ("both_REALTIME", "REALTIME")}
    assert list(await get(client, "/tables/live")) == ["REALTIME"]
    whole = await get(client, "/tableConfigs/batches")
    assert sorted(whole) == ["offline", "schema", "tableName"]
    assert whole["offline"]["quota"] == {"maxQueriesPerSecond": "5.0"}
    assert await get(client, "/tableConfigs") == await get(client, "/schemas") == ["batches", "both", "live"]
    assert await get(client, "/schemas/live") == await get(client, "/tables/live/schema")


async def test_states_tell_what_servers_should_have_and_what_they_have(client: Client, store: SqliteMetastore) -> None:
    table, servers = TableName("batches_OFFLINE"), [InstanceId(f"Server_h_{number}") for number in (1, 2)]
    records = [SegmentRecord(name=name, crc=1, size_bytes=1, url="", total_docs=10) for name in ("a", "b")]
    publish.publish(store, table, records)
    for server in servers:
        register(store, InstanceRecord(id=server, role=Role.SERVER, host="h", query_port=1))
    write_report(store, table, servers[0], ["a@1"], {"b@1": "disk full"})
    assert (await get(client, "/tables/batches/externalview"))["OFFLINE"] == {
        "a": {servers[0]: "ONLINE"},
        "b": {servers[0]: "ERROR"},
    }
    assert await get(client, "/tables/batches/idealstate") == {"OFFLINE": {"a": {}, "b": {}}, "REALTIME": None}
    states = await get(client, "/tables/batches/segmentsStatus")
    assert [one["segmentStatus"] for one in states] == ["BAD", "BAD"]
    assert await get(client, "/segments/batches") == [{"OFFLINE": ["a", "b"]}]
    assert await get(client, "/segments/both") == [{"OFFLINE": []}, {"REALTIME": []}]


async def test_sizes_come_by_half(client: Client, store: SqliteMetastore) -> None:
    """Also of segments in a half that the manifest does not name."""
    fields = {"crc": 1, "total_docs": 1, "url": "u"}
    batch = SegmentRecord(name="batch", size_bytes=100, **fields)
    stream = SegmentRecord(name="stream", size_bytes=7, stream_offsets="0:0-5", **fields)
    for table in ("batches", "live", "both"):
        name = TableName(f"{table}_OFFLINE")
        mutate(store, name, lambda _: [PutSegments((batch, stream))])
        size = await get(client, f"/tables/{table}/size")
        assert size["reportedSizeInBytes"] == 107
        for half, segment, num_bytes in (("offline", "batch", 100), ("realtime", "stream", 7)):
            sizes = size[f"{half}Segments"]
            assert sizes["reportedSizeInBytes"] == sizes["reportedSizePerReplicaInBytes"] == num_bytes
            assert sizes["segments"] == {segment: {"reportedSizeInBytes": num_bytes}}


async def test_the_size_of_a_half_that_there_is_not_is_null(client: Client) -> None:
    by_table = {
        table: [bool(size[f"{half}Segments"]) for half in ("offline", "realtime")]
        for table in ("batches", "live", "both")
        for size in [await get(client, f"/tables/{table}/size")]
    }
    assert by_table == {"batches": [True, False], "live": [False, True], "both": [True, True]}


async def test_small_facts_are_told_in_pinot_s_words(client: Client) -> None:
    assert await get(client, "/tables/batches/state") == {"state": "disabled"}
    assert await get(client, "/tables/live/state") == {"state": "enabled"}
    assert (await get(client, "/tables/live/pauseStatus"))["pauseFlag"] is False
    assert (await client.get("/tables/batches/pauseStatus")).status == 404
    assert (await client.get("/tables/batches/state?state=enable&type=OFFLINE")).status == 400
    assert await get(client, "/tenants") == {"SERVER_TENANTS": ["default"], "BROKER_TENANTS": ["default"]}
    assert await (await client.get("/pinot-controller/admin")).text() == "GOOD"
    assert await get(client, "/auth/info") == {"workflow": "NONE"}
    assert int(await (await client.get("/uptime")).text()) >= 0
    for path in ("/tables/none/idealstate", "/tableConfigs/none", "/schemas/none", "/brokers/tables/none"):
        assert (await client.get(path)).status == 404


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/zk/ls?path=/", "/idealstate"),
        ("/users", "access document"),
        ("/tasks/tasktypes", "/rollups"),
        ("/debug/tables/batches", "/segmentsStatus"),
        ("/tables/batches/indexes", "/tables/{table}"),
    ],
)
async def test_paths_of_pinot_that_are_not_there_say_what_to_ask(client: Client, path: str, instead: str) -> None:
    answer = await client.get(path)
    assert answer.status == 404
    assert instead in (await answer.json())["error"]
    assert (await client.head(path)).status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/zk/put"), ("POST", "/tasks/schedule"), ("POST", "/users"), ("DELETE", "/instances/x")],
)
async def test_what_pinot_writes_there_is_not_there_either(client: Client, method: str, path: str) -> None:
    answer = await client.request(method, path, data=b"{}")
    assert answer.status == 404
    assert "not there" in (await answer.json())["error"]


async def test_every_path_of_a_table_takes_the_names_of_its_halves(client: Client) -> None:
    described = (await get(client, "/openapi.json"))["paths"]
    paths = [path for path, methods in described.items() if "get" in methods and "{table}" in path]
    for path in paths:
        for table, halves in (("batches", ["OFFLINE"]), ("live", ["REALTIME"]), ("both", ["OFFLINE", "REALTIME"])):
            plain = (await client.get(path.format(table=table, segment="s", entry="e"))).status
            typed = [
                (await client.get(path.format(table=f"{table}_{half}", segment="s", entry="e"))).status
                for half in halves
            ]
            assert typed == [plain] * len(halves), (path, table)


async def test_a_typed_name_tells_of_its_half_alone(client: Client) -> None:
    assert list(await get(client, "/tables/both_REALTIME")) == ["REALTIME"]
    assert list(await get(client, "/tables/both?type=offline")) == ["OFFLINE"]
    assert await get(client, "/segments/both_REALTIME") == [{"REALTIME": []}]
    assert await get(client, "/tables/both/idealstate?type=OFFLINE") == {"OFFLINE": {}, "REALTIME": None}
    assert (await client.get("/tables/both?type=HYBRID")).status == 400


async def test_every_route_is_described_and_none_else(client: Client, store: SqliteMetastore) -> None:
    described = (await get(client, "/openapi.json"))["paths"]
    expected: dict[str, set[str]] = {}
    for route in routes(ControllerService(store)):
        expected.setdefault(route.path, set()).add(route.method.lower())
    assert {path: set(methods) for path, methods in described.items()} == expected | {"/openapi.json": {"get"}}
    for path, methods in described.items():
        for operation in methods.values():
            names = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
            assert all(f"{{{name}}}" in path for name in names)
            assert path.count("{") == len(names)


async def test_every_path_that_reads_answers_of_every_table_as_it_is_described(client: Client) -> None:
    described = await get(client, "/openapi.json")
    answers = DescribedAnswers(described)
    for path in (path for path, methods in described["paths"].items() if "get" in methods and path != "/sql"):
        for table in ("batches", "live", "both", "none"):
            filled = path.replace("{table}", table).replace("{", "").replace("}", "")
            answer = await client.get(filled)
            assert answer.status in (200, 400, 404, 409), (filled, answer.status, await answer.text())
            answers.check("GET", filled, answer.status, answer.content_type, await answer.text())
