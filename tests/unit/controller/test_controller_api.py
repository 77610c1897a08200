"""The controller's paths, over HTTP and a real metastore."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import write_report
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.store.allowed import AllowedStores
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import EVERY_FOLDER, AllowedFolders

Client = TestClient[web.Request, web.Application]
PLACES = AllowedPlaces(streams=AllowedStreams(folders=EVERY_FOLDER))

FLIGHTS = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights}
spec:
  timeColumn: time_hour
  retention: 30d
  schema:
    primaryKey: [carrier]
    fields:
      - {name: time_hour, type: TIMESTAMP, role: dateTime, granularity: HOURS|1}
      - {name: carrier, type: STRING}
      - {name: tags, type: STRING, multiValue: true}
      - {name: delay, type: INT, role: metric}
"""


@pytest.fixture
async def client(store: SqliteMetastore) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(ControllerService(store, places=PLACES)))) as client:
        yield client


async def apply(client: Client, text: str) -> tuple[int, Any]:
    answer = await client.post("/apply", data=text)
    return answer.status, await answer.json()


def segment(name: str, *, columns: str = "time_hour:TIMESTAMP,carrier:STRING") -> dict[str, Any]:
    url = f"file:///d/flights_OFFLINE/{name if name.isalnum() else 'x'}@7.mseg"
    record = SegmentRecord(name=name, crc=7, size_bytes=100, url=url, total_docs=10, columns=columns)
    return record.model_dump(mode="json", by_alias=True, exclude_defaults=True)


async def publish(client: Client, *records: dict[str, Any], **more: object) -> Any:
    answer = await client.post("/segments/flights/publish", data=orjson.dumps({"records": records, **more}))
    return await answer.json()


async def test_a_manifest_is_created_then_unchanged_and_warns_of_missing_servers(client: Client) -> None:
    status, results = await apply(client, FLIGHTS)
    assert status == 200
    assert results[0] | {"warnings": []} == {
        "kind": "Table",
        "name": "flights",
        "result": "created",
        "revision": 1,
        "warnings": [],
    }
    assert "1 replicas wanted, 0 servers live" in results[0]["warnings"][0]
    assert [one["result"] for one in (await apply(client, FLIGHTS))[1]] == ["unchanged"]


async def test_one_wrong_document_applies_none_and_every_problem_is_told(client: Client) -> None:
    wrong = FLIGHTS.replace("flights", "other").replace("type: INT", "type: LNG").replace("30d", "thirty days")
    status, body = await apply(client, FLIGHTS + "---" + wrong)
    assert status == 400
    assert {problem["path"] for problem in body["problems"]} == {"spec.schema.fields[3].type", "spec.retention"}
    assert {problem["document"] for problem in body["problems"]} == {2}
    assert await (await client.get("/tables")).json() == {"tables": []}


async def test_a_refused_change_changes_no_document_beside_it(client: Client) -> None:
    await apply(client, FLIGHTS)
    other = FLIGHTS.replace("name: flights", "name: other")
    changed = FLIGHTS.replace("type: INT, role: metric", "type: STRING")
    status, body = await apply(client, other + "---" + changed)
    assert status == 400
    assert [problem["document"] for problem in body["problems"]] == [2, 2]
    assert await (await client.get("/tables")).json() == {"tables": ["flights"]}


async def test_a_dry_run_tells_and_changes_nothing(client: Client) -> None:
    answer = await client.post("/apply?dryRun=true", data=FLIGHTS)
    assert [(one["result"], one["revision"]) for one in await answer.json()] == [("created", 0)]
    assert await (await client.get("/tables")).json() == {"tables": []}


async def test_the_schema_is_pinots(client: Client) -> None:
    await apply(client, FLIGHTS)
    assert await (await client.get("/tables/flights/schema")).json() == {
        "schemaName": "flights",
        "dimensionFieldSpecs": [
            {"name": "carrier", "dataType": "STRING", "singleValueField": True},
            {"name": "tags", "dataType": "STRING", "singleValueField": False},
        ],
        "metricFieldSpecs": [{"name": "delay", "dataType": "INT"}],
        "dateTimeFieldSpecs": [
            {"name": "time_hour", "dataType": "TIMESTAMP", "format": "TIMESTAMP", "granularity": "HOURS|1"}
        ],
        "primaryKeyColumns": ["carrier"],
    }
    config = (await (await client.get("/tables/flights_OFFLINE")).json())["OFFLINE"]
    assert config["tableName"] == "flights_OFFLINE"
    assert config["segmentsConfig"]["retentionTimeValue"] == "30"


async def test_unknown_things_are_404_and_json(client: Client) -> None:
    for path in ("/tables/none", "/tables/none/schema", "/segments/none", "/instances/none", "/v2/brokers/tables/none"):
        answer = await client.get(path)
        assert answer.status == 404
        assert (await answer.json())["code"] == 404
    assert (await client.head("/mytables")).status == 404
    assert (await client.get("/tables/..%2Fx")).status in {400, 404}


async def test_published_segments_are_counted_listed_and_deleted(client: Client) -> None:
    await apply(client, FLIGHTS)
    first = await publish(client, segment("s1"), segment("s2"), publishId="p1")
    assert (first["published"], first["unchanged"]) == (["s1", "s2"], [])
    again = await publish(client, segment("s1"), segment("s2"), publishId="p1")
    assert (again["published"], again["unchanged"], again["epoch"]) == ([], ["s1", "s2"], first["epoch"])
    assert await (await client.get("/segments/flights")).json() == [{"OFFLINE": ["s1", "s2"]}]
    metadata = await (await client.get("/tables/flights/metadata")).json()
    assert (metadata["numSegments"], metadata["numRows"], metadata["diskSizeInBytes"]) == (2, 20, 200)
    assert (await (await client.get("/tables/flights/size")).json())["reportedSizeInBytes"] == 200
    assert (await client.delete("/segments/flights/s1")).status == 200
    assert (await client.delete("/segments/flights/s1")).status == 404
    assert (await publish(client, segment("s3"), replaceAll=True))["removed"] == ["s2"]
    assert (await client.delete("/tables/flights")).status == 200
    assert (await client.get("/tables/flights")).status == 404


async def test_a_publish_that_would_take_rows_is_refused_unless_it_says_so_and_tells_what_it_took(
    client: Client,
) -> None:
    await apply(client, FLIGHTS)
    await publish(client, segment("s1"), segment("s2"))
    fewer = segment("s1") | {"crc": 8, "totalDocs": 9}
    answer = await client.post("/segments/flights/publish", data=orjson.dumps({"records": [fewer]}))
    assert answer.status == 400
    assert "may not hold segments=1: s1: 10 rows -> 9 rows" in (await answer.json())["error"]
    answer = await client.post("/segments/flights/publish", data=orjson.dumps({"replaceAll": True}))
    assert answer.status == 400
    assert "without rows would remove 2 segments" in (await answer.json())["error"]
    told = await publish(client, fewer, replaceRows=True)
    assert (told["published"], told["replaced"]) == (["s1"], ["s1"])
    assert told["rows"] == {"before": 20, "after": 19, "replaced": 10, "replacing": 9, "removed": 0}
    emptied = await publish(client, replaceAll=True, replaceRows=True)
    assert (emptied["removed"], emptied["rows"]["after"]) == (["s1", "s2"], 0)


async def test_a_segments_status_tells_servers_errors_and_defaulted_columns(
    client: Client, store: SqliteMetastore
) -> None:
    server = InstanceId("Server_a_1")
    registration = register(store, InstanceRecord(id=server, role=Role.SERVER, host="a"))
    await apply(client, FLIGHTS)
    await publish(client, segment("s1", columns="time_hour:TIMESTAMP,carrier:STRING,delay:INT"), segment("s2"))
    write_report(store, TableName("flights_OFFLINE"), server, ["s1@7"], {"s2@7": "checksum is wrong"})
    statuses = await (await client.get("/segments/flights/metadata")).json()
    assert statuses["s1"]["defaultedColumns"] == ["tags"]
    assert statuses["s2"]["defaultedColumns"] == ["tags", "delay"]
    assert statuses["s2"]["errors"] == {server: "checksum is wrong"}
    one = await (await client.get("/segments/flights/s1/metadata")).json()
    assert one == statuses["s1"]
    registration.close()


async def test_a_wrong_publish_names_the_field(client: Client) -> None:
    await apply(client, FLIGHTS)
    answer = await client.post("/segments/flights/publish", data=b'{"records": [{"name": "s1"}]}')
    assert answer.status == 400
    assert "records.0.crc" in (await answer.json())["error"]
    twice = await client.post(
        "/segments/flights/publish", data=orjson.dumps({"records": [segment("s1"), segment("s1")]})
    )
    assert twice.status == 400


@pytest.mark.parametrize("name", ["", ".", "..", "../../etc/x", "a/b", "a\\b", "line\nbreak", "x" * 201, "-rf", "a@1"])
async def test_no_segment_has_a_name_that_leads_out_of_its_folder(client: Client, name: str) -> None:
    await apply(client, FLIGHTS)
    answer = await client.post("/segments/flights/publish", data=orjson.dumps({"records": [segment(name)]}))
    assert answer.status == 400
    assert "segment name cannot be a file's" in (await answer.json())["error"]
    assert await (await client.get("/segments/flights")).json() == [{"OFFLINE": []}]


@pytest.mark.parametrize(
    "numbers",
    [
        {"totalDocs": -5},
        {"totalDocs": 10**20},
        {"sizeBytes": 1 << 62},
        {"crc": 1 << 32},
        {"startTimeMs": 10**20},
        {"creationTimeMs": -(10**20)},
        {"ranges": {"time_hour": [1, 10**20]}},
        {"partitions": {"carrier": {"functionName": "Modulo", "numPartitions": 2, "partitions": [10**20]}}},
    ],
    ids=str,
)
async def test_numbers_of_a_segment_that_no_answer_can_hold_are_refused(
    client: Client, numbers: dict[str, Any]
) -> None:
    await apply(client, FLIGHTS)
    body = json.dumps({"records": [segment("s1") | numbers]})
    assert (await client.post("/segments/flights/publish", data=body)).status == 400
    assert (await client.get("/segments/flights/metadata")).status == 200


@pytest.mark.parametrize(
    "request_line",
    [
        "consumeFrom?offsets=0:9223372036854775808",
        f"consumeFrom?offsets=0:{'9' * 5000}",
        "backfill?offsets=0:x",
        f"forceCommit?partitions=0,{'9' * 5000}",
    ],
    ids=["offset beyond 64 bits", "offset of 5,000 digits", "no offset", "partition of 5,000 digits"],
)
async def test_numbers_of_a_stream_that_no_stream_has_are_refused(client: Client, request_line: str) -> None:
    answer = await client.post(f"/tables/flights/{request_line}")
    assert answer.status == 400
    assert "not a whole number from 0 to 9223372036854775807" in await answer.text()


async def test_queries_are_handed_to_a_live_broker(client: Client, store: SqliteMetastore) -> None:
    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"got": body["sql"]}, headers={"X-Pinot-Error-Code": "-1"})

    assert (await client.post("/sql", json={"sql": "SELECT 1"})).status == 503
    app = web.Application()
    app.router.add_post("/query/sql", answer)
    async with TestServer(app) as broker:
        record = InstanceRecord(
            id=InstanceId("Broker_127.0.0.1_1"), role=Role.BROKER, host="127.0.0.1", http_port=broker.port or 0
        )
        registration = register(store, record)
        response = await client.post("/sql", json={"sql": "SELECT 1"})
        assert await response.json() == {"got": "SELECT 1"}
        assert response.headers["X-Pinot-Error-Code"] == "-1"
        await apply(client, FLIGHTS)
        live = await (await client.get("/tables/livebrokers")).json()
        assert [one["instanceName"] for one in live["flights_OFFLINE"]] == ["Broker_127.0.0.1_1"]
        assert (await (await client.get("/instances")).json())["instances"] == ["Broker_127.0.0.1_1"]
        registration.close()


async def test_a_broker_with_an_address_of_ipv6_is_asked(client: Client, store: SqliteMetastore) -> None:
    record = InstanceRecord(id=InstanceId("Broker_::1_1"), role=Role.BROKER, host="::1", http_port=1)
    registration = register(store, record)
    answer = await client.post("/sql", json={"sql": "SELECT 1"})
    assert answer.status == 503
    assert "no broker can be reached" in await answer.text()
    registration.close()


async def test_health_version_databases_and_metrics_answer(client: Client) -> None:
    assert await (await client.get("/health")).text() == "OK"
    assert "pinot-segment-uploader-default" in await (await client.get("/version")).json()
    assert await (await client.get("/databases")).json() == ["default"]
    assert (await client.get("/metrics")).status == 200


async def test_annotations_complete_records_of_their_version_only(client: Client) -> None:
    await apply(client, FLIGHTS)
    await client.post("/segments/flights/publish", data=orjson.dumps({"records": [segment("s1"), segment("s2")]}))
    body = {
        "annotations": [
            {"name": "s1", "crc": 7, "ranges": {"time_hour": [1, 2]}},
            {"name": "s2", "crc": 8, "ranges": {"time_hour": [1, 2]}},
        ]
    }
    answer = await (await client.post("/segments/flights/annotate", data=orjson.dumps(body))).json()
    assert (answer["annotated"], answer["unchanged"], answer["replaced"]) == (["s1"], [], ["s2"])
    statuses = await (await client.get("/segments/flights/metadata")).json()
    assert (statuses["s1"]["ranges"], statuses["s2"]["ranges"]) == ({"time_hour": [1, 2]}, {})
    again = await (await client.post("/segments/flights/annotate", data=orjson.dumps(body))).json()
    assert (again["unchanged"], again["epoch"]) == (["s1"], answer["epoch"])
    for numbers in ({"endTimeMs": 10**20}, {"ranges": {"time_hour": [1, 10**20]}}):
        large = json.dumps({"annotations": [{"name": "s1", "crc": 7, **numbers}]})
        assert (await client.post("/segments/flights/annotate", data=large)).status == 400
    wrong = await client.post(
        "/segments/flights/annotate", data=b'{"annotations": [{"name": "s1", "crc": 7, "url": ""}]}'
    )
    assert wrong.status == 400
    assert "annotations.0.url" in (await wrong.json())["error"]


async def test_deep_store_of_a_table_is_the_one_that_it_declares_or_the_cluster_s(store: SqliteMetastore) -> None:
    stores = AllowedStores(own="file:///d", prefixes=("file:///e",))
    async with TestClient(TestServer(make_app(ControllerService(store, places=AllowedPlaces(stores))))) as client:
        await apply(client, FLIGHTS)
        assert (await (await client.get("/tables/flights/manifest")).json())["deepStore"] == "file:///d"
        declared = FLIGHTS.replace("name: flights", "name: others") + "  deepStore: {uri: 'file:///e/f'}\n"
        assert (await apply(client, declared))[0] == 200
        assert (await (await client.get("/tables/others/manifest")).json())["deepStore"] == "file:///e/f"
        assert (await client.get("/tables/nosuch/manifest")).status == 404


async def test_stream_of_a_folder_that_is_not_allowed_is_refused_by_the_option_to_set(
    store: SqliteMetastore, tmp_path: Path
) -> None:
    allowed = tmp_path / "incoming"
    allowed.mkdir()
    (allowed / "link").symlink_to(tmp_path)
    streams = AllowedStreams(folders=AllowedFolders((str(allowed),)))
    stream = "  ingestion: {{stream: {{type: files, topic: {}}}}}\n"
    async with TestClient(
        TestServer(make_app(ControllerService(store, places=AllowedPlaces(streams=streams))))
    ) as client:
        for folder in ("/etc", f"{allowed}-2", f"{allowed}/../other", f"{allowed}/link", f"{allowed}/link/incoming-2"):
            status, body = await apply(client, FLIGHTS + stream.format(folder))
            assert status == 400, folder
            assert [one["path"] for one in body["problems"]] == ["spec.ingestion.stream.topic"]
            assert "--stream-folders" in body["error"]
            assert "\n" not in body["error"]
        assert (await client.get("/tables/flights/manifest")).status == 404
        for name, folder in (("a", allowed), ("b", allowed / "later" / "0"), ("c", allowed / "link" / "incoming")):
            text = (FLIGHTS + stream.format(folder)).replace("name: flights", f"name: {name}")
            assert (await apply(client, text))[0] == 200
    async with TestClient(TestServer(make_app(ControllerService(store)))) as client:
        assert (await apply(client, FLIGHTS + stream.format(allowed)))[0] == 400, "no folder is allowed by default"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/segments/flights/servers", "ask /tables/{table}/externalview"),
        ("/segments/segmentReloadStatus/1", "servers reload by themselves"),
        ("/segments/flights/tiers", "there is one tier"),
        ("/segments/flights/s1", "a segment's file is in the deep store"),
    ],
)
async def test_paths_of_pinot_that_are_not_there_say_what_to_ask(client: Client, path: str, words: str) -> None:
    answer = await client.get(path)
    assert answer.status == 404
    assert words in (await answer.json())["error"]


async def test_table_whose_stream_cannot_be_read_is_refused_with_every_problem(client: Client) -> None:
    stream = """  ingestion:
    stream:
      type: files
      topic: t
      filter: a < b
      derivedColumns: {carrier: "nosuch(a)", delay: a +}
"""
    status, body = await apply(client, FLIGHTS + stream)
    assert status == 400
    assert [one["path"] for one in body["problems"]] == [
        "spec.ingestion.stream.filter",
        "spec.ingestion.stream.derivedColumns.carrier",
        "spec.ingestion.stream.derivedColumns.delay",
    ]
    assert (await client.get("/tables/flights")).status == 404


async def test_a_merger_that_is_not_installed_is_warned_of(client: Client) -> None:
    config = """
apiVersion: merlot.dev/v1alpha1
kind: UpsertConfig
metadata: {name: merged}
spec: {mode: PARTIAL, comparisonColumns: [at], partialUpsertStrategies: {a: acme.longest, b: MAX}}
"""
    status, [applied] = await apply(client, config)
    [warning] = applied["warnings"]
    assert status == 200
    assert warning.startswith("spec.partialUpsertStrategies.a: no package here has acme.longest as an entry point")
