"""Pinot's configs written through Pinot's paths: tables, schemas, both at once; nothing of a write is seen alone."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.described_answers import DescribedAnswers, described_answers

from merlot.clock import SystemClock
from merlot.cluster import homes, paths
from merlot.cluster.manifests import rollups, schemas, tables
from merlot.cluster.records import HomeRecord
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.apply import applier
from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.errors import ConflictError
from merlot.metastore.protocol import Metastore, Op
from merlot.metastore.sqlite import SqliteMetastore
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.pinot.reads import PinotReads
from merlot.pinot.writes import PinotWrites
from merlot.store.allowed import AllowedStores
from merlot.streams.allowed import AllowedStreams

Client = TestClient[web.Request, web.Application]
Json = dict[str, Any]

SCHEMA: Json = {
    "schemaName": "rides",
    "dimensionFieldSpecs": [{"name": "city", "dataType": "STRING"}],
    "metricFieldSpecs": [{"name": "fare", "dataType": "DOUBLE"}],
    "dateTimeFieldSpecs": [
        {"name": "at", "dataType": "LONG", "format": "1:SECONDS:EPOCH", "granularity": "1:SECONDS"},
    ],
}
OFFLINE: Json = {
    "tableName": "rides",
    "tableType": "OFFLINE",
    "segmentsConfig": {"timeColumnName": "at", "replication": "1", "schemaName": "rides"},
    "tableIndexConfig": {"loadMode": "MMAP", "invertedIndexColumns": ["city"]},
    "tenants": {},
    "metadata": {},
    "isDimTable": True,
    "task": {
        "taskTypeConfigsMap": {
            "MergeRollupTask": {
                "1day.mergeType": "concat",
                "1day.bucketTimePeriod": "1d",
                "1day.bufferTimePeriod": "1d",
            }
        }
    },
}
REALTIME: Json = {
    "tableName": "rides",
    "tableType": "REALTIME",
    "segmentsConfig": {"timeColumnName": "at", "replicasPerPartition": "1"},
    "tableIndexConfig": {
        "streamConfigs": {
            "streamType": "kafka",
            "stream.kafka.topic.name": "rides",
            "stream.kafka.broker.list": "kafka:9092",
            "stream.kafka.decoder.class.name": "org.apache.pinot.plugin.inputformat.json.JSONMessageDecoder",
        }
    },
}
CONFIGS: Json = {"tableName": "rides", "schema": SCHEMA, "offline": OFFLINE}


@pytest.fixture
async def client(store: SqliteMetastore) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(ControllerService(store)))) as client:
        yield client


async def call(client: Client, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await client.request(method, path, data=None if body is None else orjson.dumps(body))
    text = await answer.text()
    assert answer.status == status, text
    document = await client.get("/openapi.json")
    described_answers(await document.text()).check(method, path, status, answer.content_type, text)
    found = orjson.loads(text)
    if status != 200:
        assert found["code"] == status
        assert found["error"]
    return found


async def test_a_table_is_made_of_a_schema_and_a_config_as_pinot_s_tools_send_them(client: Client) -> None:
    await call(client, "POST", "/tables", OFFLINE, 400)  # its schema comes first
    assert (await call(client, "POST", "/schemas", SCHEMA))["status"] == "rides successfully added"
    assert await call(client, "GET", "/schemas") == ["rides"]
    assert await call(client, "GET", "/schemas/rides") == SCHEMA
    assert (await call(client, "GET", "/tables"))["tables"] == []
    made = await call(client, "POST", "/tables", OFFLINE)
    assert made["status"] == "Table rides_OFFLINE successfully added"
    assert made["unrecognizedProperties"] == {}
    assert any(note.startswith("isDimTable: ") for note in made["notes"])
    config = (await call(client, "GET", "/tables/rides"))["OFFLINE"]
    assert config["tableIndexConfig"]["invertedIndexColumns"] == ["city"]
    assert (await call(client, "GET", "/rollups"))["rollups"]
    assert "already" in (await call(client, "POST", "/tables", OFFLINE, 409))["error"]


async def test_a_schema_outlives_its_table_and_not_the_other_way_round(client: Client) -> None:
    await call(client, "POST", "/schemas", SCHEMA)
    await call(client, "POST", "/tables", OFFLINE)
    assert "rides_OFFLINE" in (await call(client, "DELETE", "/schemas/rides", status=409))["error"]
    await call(client, "DELETE", "/tables/rides")
    assert await call(client, "GET", "/schemas/rides") == SCHEMA
    await call(client, "DELETE", "/schemas/rides")
    await call(client, "GET", "/schemas/rides", status=404)
    await call(client, "DELETE", "/schemas/rides", status=404)


async def test_a_schema_gains_columns_and_loses_none(client: Client) -> None:
    await call(client, "POST", "/tableConfigs", CONFIGS)
    wider = copy.deepcopy(SCHEMA)
    wider["dimensionFieldSpecs"].append({"name": "zone", "dataType": "STRING"})
    await call(client, "PUT", "/schemas/rides", wider)
    assert [one["name"] for one in (await call(client, "GET", "/schemas/rides"))["dimensionFieldSpecs"]] == [
        "city",
        "zone",
    ]
    assert "column 'zone' is gone" in (await call(client, "PUT", "/schemas/rides", SCHEMA, 400))["error"]
    await call(client, "POST", "/schemas?override=false", wider, 409)
    await call(client, "PUT", "/schemas/others", wider, 400)
    await call(client, "PUT", "/schemas/others", {**wider, "schemaName": "others"}, 404)
    manifest = (await call(client, "GET", "/tables/rides/manifest"))["manifest"]
    assert [field["name"] for field in manifest["spec"]["schema"]["fields"]] == ["city", "fare", "at", "zone"]


async def test_a_config_changes_what_it_says_and_leaves_what_it_cannot_say(client: Client) -> None:
    await call(client, "POST", "/tableConfigs", CONFIGS)
    manifest = (await call(client, "GET", "/tables/rides/manifest"))["manifest"]
    manifest["spec"]["suspend"] = True
    manifest["spec"]["schema"]["fields"][0]["maxLength"] = 7
    await call(client, "POST", "/apply", manifest)
    config = (await call(client, "GET", "/tables/rides"))["OFFLINE"]
    config["segmentsConfig"]["replication"] = "3"
    config["tableIndexConfig"]["invertedIndexColumns"] = []
    changed = await call(client, "PUT", "/tables/rides", config)
    assert changed["status"] == "Table config updated for rides_OFFLINE"
    spec = (await call(client, "GET", "/tables/rides/manifest"))["manifest"]["spec"]
    assert (spec["replication"], spec["suspend"]) == (3, True)
    assert spec["schema"]["fields"][0]["maxLength"] == 7
    assert not spec["indexing"].get("inverted")
    revision = (await call(client, "GET", "/tables/rides/manifest"))["revision"]
    await call(client, "PUT", "/tables/rides", config)
    assert (await call(client, "GET", "/tables/rides/manifest"))["revision"] == revision
    await call(client, "PUT", "/tables/none", config, 400)
    await call(client, "PUT", "/tables/none", {**config, "tableName": "none_OFFLINE"}, 404)


async def test_a_table_is_disabled_and_enabled(client: Client) -> None:
    await call(client, "POST", "/tableConfigs", CONFIGS)
    at = "/tables/rides/state?type=OFFLINE&state="
    assert (await call(client, "PUT", at + "disable"))[
        "status"
    ] == "Request to disable table 'rides_OFFLINE' is successful"
    assert await call(client, "GET", "/tables/rides/state") == {"state": "disabled"}
    await call(client, "PUT", "/tables/rides_OFFLINE/state?state=ENABLE")
    assert await call(client, "GET", "/tables/rides/state") == {"state": "enabled"}
    assert "DELETE /tables" in (await call(client, "PUT", at + "drop", status=400))["error"]
    await call(client, "PUT", "/tables/rides/state", status=400)
    await call(client, "PUT", "/tables/none/state?state=enable", status=404)
    await call(client, "PUT", "/tables/rides/state?state=disable&type=REALTIME", status=404)
    await call(client, "POST", "/tables", REALTIME)
    assert "for both" in (await call(client, "PUT", at + "disable", status=409))["error"]
    await call(client, "PUT", "/tables/rides/state?state=disable")


async def test_a_flag_that_is_no_flag_writes_nothing(client: Client) -> None:
    await call(client, "POST", "/schemas?override=perhaps", SCHEMA, 400)
    await call(client, "POST", "/apply?dryRun=yes", {"apiVersion": "merlot.dev/v1alpha1"}, 400)
    await call(client, "POST", "/schemas?override=TRUE", SCHEMA)


async def test_the_second_half_makes_a_hybrid_table(client: Client) -> None:
    await call(client, "POST", "/tableConfigs", CONFIGS)
    await call(client, "POST", "/tables", REALTIME)
    assert sorted(await call(client, "GET", "/tables/rides")) == ["OFFLINE", "REALTIME"]
    spec = (await call(client, "GET", "/tables/rides/manifest"))["manifest"]["spec"]
    assert spec["ingestion"]["stream"]["topic"] == "rides"
    await call(client, "POST", "/tables", REALTIME, 409)
    for half, replication in (("OFFLINE", 2), ("REALTIME", 3)):  # either may say what both have
        config = (await call(client, "GET", "/tables/rides"))[half]
        config["segmentsConfig"]["replication"] = str(replication)
        await call(client, "PUT", "/tables/rides", config)
        after = (await call(client, "GET", "/tables/rides/manifest"))["manifest"]["spec"]
        assert after["replication"] == replication
        assert after["ingestion"] == spec["ingestion"]


async def test_half_of_a_hybrid_table_is_not_deleted_with_the_other_one(client: Client) -> None:
    await call(client, "POST", "/tableConfigs", {**CONFIGS, "realtime": REALTIME})
    for path in ("/tables/rides_OFFLINE", "/tables/rides_REALTIME", "/tables/rides?type=offline"):
        assert "name the table, rides, for both" in (await call(client, "DELETE", path, status=409))["error"]
    await call(client, "DELETE", "/tableConfigs/rides_OFFLINE", status=409)
    assert sorted(await call(client, "GET", "/tables/rides")) == ["OFFLINE", "REALTIME"]
    assert "rides_OFFLINE, rides_REALTIME" in (await call(client, "DELETE", "/tables/rides"))["status"]


async def test_half_that_is_all_of_a_table_is_deleted_by_its_name(client: Client) -> None:
    await call(client, "POST", "/tableConfigs", CONFIGS)
    for path in ("/tables/rides_REALTIME", "/tables/rides?type=REALTIME"):
        assert "no such half" in (await call(client, "DELETE", path, status=404))["error"]
    await call(client, "DELETE", "/tables/rides_OFFLINE")
    await call(client, "GET", "/tables/rides/manifest", status=404)


async def test_secrets_in_uris_are_not_told_and_survive_a_config_that_comes_back(
    client: Client, store: SqliteMetastore
) -> None:
    await call(client, "POST", "/schemas", SCHEMA)
    await call(client, "POST", "/tables", REALTIME)
    record = tables.get_table(store, "rides")
    manifest = copy.deepcopy(record.manifest)
    manifest["spec"]["ingestion"]["stream"]["properties"]["client.id"] = "http://me:hidden@proxy/"
    path = paths.table_config("rides_OFFLINE")
    node = store.get(path)
    assert node is not None
    store.put(path, record.model_copy(update={"manifest": manifest}).to_bytes(), node.version)
    config = (await call(client, "GET", "/tables/rides"))["REALTIME"]
    assert b"hidden" not in orjson.dumps(config)
    config["segmentsConfig"]["replication"] = "2"
    await call(client, "PUT", "/tables/rides", config)
    spec = tables.spec_of(tables.get_table(store, "rides")).spec
    assert spec.replication == 2
    assert spec.ingestion.stream is not None
    assert spec.ingestion.stream.properties["client.id"] == "http://me:hidden@proxy/"


async def test_whole_table_configs_are_written_changed_and_deleted(client: Client) -> None:
    hybrid = {**CONFIGS, "realtime": REALTIME}
    await call(client, "POST", "/tableConfigs/validate", hybrid)
    assert await call(client, "GET", "/tableConfigs") == []
    await call(client, "POST", "/tableConfigs", hybrid)
    await call(client, "POST", "/tableConfigs", hybrid, 409)
    await call(client, "PUT", "/tableConfigs/others", hybrid, 400)
    whole = await call(client, "GET", "/tableConfigs/rides")
    assert sorted(whole) == ["offline", "realtime", "schema", "tableName"]
    whole["schema"]["metricFieldSpecs"].append({"name": "tip", "dataType": "DOUBLE"})
    for half in ("offline", "realtime"):
        whole[half]["segmentsConfig"]["replication"] = "2"
    await call(client, "PUT", "/tableConfigs/rides", whole)
    spec = (await call(client, "GET", "/tables/rides/manifest"))["manifest"]["spec"]
    assert spec["replication"] == 2
    assert spec["schema"]["fields"][-1]["name"] == "tip"
    await call(client, "DELETE", "/tableConfigs/rides")
    assert await call(client, "GET", "/schemas") == []
    assert await call(client, "GET", "/tableConfigs") == []


async def test_validation_writes_nothing_and_tells_what_would_be_refused(client: Client) -> None:
    assert await call(client, "POST", "/schemas/validate", SCHEMA) == SCHEMA
    assert await call(client, "GET", "/schemas") == []
    await call(client, "POST", "/schemas", SCHEMA)
    found = await call(client, "POST", "/tables/validate", OFFLINE)
    assert found["OFFLINE"] == OFFLINE
    assert found["notes"]
    assert (await call(client, "GET", "/tables"))["tables"] == []
    wrong = {**OFFLINE, "segmentsConfig": {"timeColumnName": "then"}}
    error = (await call(client, "POST", "/tables/validate", wrong, 400))["error"]
    assert "spec.timeColumn: timeColumn must be one of schema.fields" in error


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tables", []),
        ("/tables", {"tableName": "rides"}),
        ("/tables", {**OFFLINE, "segmentsConfig": {"replication": "many"}}),
        ("/tables", {**OFFLINE, "tableIndexConfig": 5}),
        ("/tables", {**OFFLINE, "tableName": "../rides"}),
        ("/schemas", {}),
        ("/schemas", {**SCHEMA, "schemaName": "a/b"}),
        ("/schemas", {**SCHEMA, "dimensionFieldSpecs": [{"name": "city", "dataType": "TEXTS"}]}),
        ("/schemas", {**SCHEMA, "dimensionFieldSpecs": ["city"]}),
        ("/tableConfigs", {"tableName": "rides", "schema": SCHEMA}),
        ("/tableConfigs", {**CONFIGS, "tableName": "others"}),
    ],
)
async def test_what_is_no_config_is_refused_and_nothing_is_written(client: Client, path: str, body: Any) -> None:
    await call(client, "POST", path, body, 400)
    assert (await call(client, "GET", "/tables"))["tables"] == []
    assert await call(client, "GET", "/schemas") == []


async def test_what_an_operator_declares_is_changed_by_kubectl_alone(client: Client, store: SqliteMetastore) -> None:
    await call(client, "POST", "/tableConfigs", CONFIGS)
    homes.claim(store, HomeRecord(namespace="shop"))
    config = (await call(client, "GET", "/tables/rides"))["OFFLINE"]
    writes = [
        ("POST", "/tables", {**OFFLINE, "tableName": "others"}),
        ("PUT", "/tables/rides", config),
        ("POST", "/schemas", SCHEMA),
        ("PUT", "/schemas/rides", SCHEMA),
        ("PUT", "/tableConfigs/rides", CONFIGS),
        ("DELETE", "/tables/rides", None),
        ("DELETE", "/tableConfigs/rides", None),
    ]
    await call(client, "POST", "/tableConfigs/validate", {**CONFIGS, "tableName": "rides"}, 409)  # it is there
    for method, path, body in writes:
        error = (await call(client, method, path, body, 409))["error"]
        assert "kubectl apply" in error, (path, error)
        assert "namespace=shop" in error
    assert (await call(client, "GET", "/tables"))["tables"] == ["rides"]


async def test_every_path_that_writes_answers_odd_bodies_without_a_bug(client: Client) -> None:
    document = await call(client, "GET", "/openapi.json")
    answers, described = DescribedAnswers(document), document["paths"]
    bodies = (b"", b"{", b"[]", b"{}", b'{"tableName": 5, "schemaName": [], "schema": {}}', b"\xff\xfe", b"x: y")
    asked = 0
    for path, methods in described.items():
        for method in ("post", "put", "delete"):
            for body in bodies if method in methods else ():
                for table in ("rides", "none"):
                    if table == "rides":
                        await client.request("POST", "/tableConfigs", data=orjson.dumps(CONFIGS))
                    filled = path.replace("{table}", table).replace("{schema}", table).replace("{", "").replace("}", "")
                    answer = await client.request(method, filled, data=body)
                    told = (method, filled, body, answer.status, await answer.text())
                    assert answer.status != 500, told
                    answers.check(method, filled, answer.status, answer.content_type, told[-1])
                    assert answer.status < 400 or orjson.loads(told[-1])["error"], told
                    asked += 1
    assert asked > 200


class _Dies(Exception):
    """Stands for the end of the process."""


class _Mortal:
    """A store that dies before its n-th write."""

    def __init__(self, store: SqliteMetastore, lives: int) -> None:
        self._store, self._lives = store, lives
        self.num_writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        self._write()
        self._store.create(path, data, ephemeral=ephemeral)

    def put(self, path: str, data: bytes, version: int) -> int:
        self._write()
        return self._store.put(path, data, version)

    def multi(self, ops: Sequence[Op]) -> None:
        self._write()
        self._store.multi(ops)

    def _write(self) -> None:
        if self.num_writes == self._lives:
            raise _Dies
        self.num_writes += 1


def _writes(store: Any) -> PinotWrites:
    places = AllowedPlaces(AllowedStores(own=None), AllowedStreams())
    clock = SystemClock()
    return PinotWrites(store, clock, applier(clock, places), PinotReads(store, lambda _: pytest.fail("no view")))


def _seen(store: Metastore) -> tuple[bool, bool, bool]:
    names = rollups.list_rollups(store)
    return tables.find_table(store, "rides") is not None, bool(names), schemas.find_schema(store, "rides") is not None


def test_whoever_dies_amid_a_write_leaves_all_of_it_or_nothing(store: SqliteMetastore) -> None:
    for lives in range(10):
        mortal = _Mortal(store, lives)
        try:
            _writes(mortal).write_configs(CONFIGS, creates=True)
            break
        except _Dies:
            assert _seen(store) == (False, False, False)
    else:
        pytest.fail("it never came to an end")
    assert lives
    assert _seen(store) == (True, True, True)
    before = tables.get_table(store, "rides")
    changed = copy.deepcopy(CONFIGS)
    changed["offline"]["segmentsConfig"]["replication"] = "4"
    changed["schema"]["metricFieldSpecs"].append({"name": "tip", "dataType": "DOUBLE"})
    for lives in range(10):
        try:
            _writes(_Mortal(store, lives)).write_configs(changed, creates=False)
            break
        except _Dies:
            assert tables.get_table(store, "rides") == before
            assert schemas.find_schema(store, "rides") == SCHEMA
    assert tables.spec_of(tables.get_table(store, "rides")).spec.replication == 4
    assert schemas.find_schema(store, "rides") == changed["schema"]


def test_a_write_is_one_transaction_of_zookeeper_too(zookeeper: str) -> None:
    store = ZooKeeperMetastore(zookeeper)
    try:
        _writes(store).write_configs(CONFIGS, creates=True)
        assert _seen(store) == (True, True, True)
        with pytest.raises(ConflictError, match="already"):
            _writes(store).write_configs(CONFIGS, creates=True)
        _writes(store).write_schema(SCHEMA, "rides")
    finally:
        store.close()


def test_a_write_that_meets_another_one_is_decided_anew(store: SqliteMetastore) -> None:
    class Meeting(_Mortal):
        is_first = True

        def multi(self, ops: Sequence[Op]) -> None:
            if self.is_first:
                self.is_first = False
                _writes(store).write_configs(CONFIGS, creates=True)
            self._store.multi(ops)

    with pytest.raises(ConflictError, match="already"):
        _writes(Meeting(store, -1)).write_configs(CONFIGS, creates=True)
