"""Pinot's replacement protocol over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import write_report
from merlot.cluster.manifests import tables
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables

Client = TestClient[web.Request, web.Application]
TABLE = TableName("t_OFFLINE")
SERVER = InstanceId("Server_host_1")
MANIFEST = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec: {schema: {fields: [{name: a, type: INT}]}}
""")[0]
HOURS = {"segmentsFrom": ["h1", "h2"], "segmentsTo": ["day"], "customMap": {"why": "merge"}}


@pytest.fixture
def store(store: SqliteMetastore) -> SqliteMetastore:
    tables.put_table(store, MANIFEST)
    register(store.session(), InstanceRecord(id=SERVER, role=Role.SERVER, host="host"))
    return store


@pytest.fixture
async def client(store: SqliteMetastore) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(ControllerService(store)))) as client:
        await publish(client, store, "h1", "h2", "other")
        yield client


async def call(client: Client, path: str, body: object = None, **query: str) -> tuple[int, Any]:
    data = b"" if body is None else orjson.dumps(body)
    answer = await client.post(f"/segments/t/{path}", data=data, params=query)
    return answer.status, await answer.json()


async def publish(client: Client, store: SqliteMetastore, *names: str) -> None:
    """Publish segments, and have the server load them."""
    records = [
        SegmentRecord(name=name, crc=1, size_bytes=1, url=f"file:///d/{TABLE}/{name}@1.mseg", total_docs=5)
        for name in names
    ]
    bodies = [record.model_dump(mode="json", by_alias=True, exclude_defaults=True) for record in records]
    assert (await call(client, "publish", {"records": bodies}))[0] == 200
    view = mutate(store, TABLE, lambda view: [Assign(dict.fromkeys(view.segments, (SERVER,)))])
    write_report(store, TABLE, SERVER, [str(record.key) for record in view.segments.values()], {})


async def segments(client: Client, **query: str) -> list[str]:
    answer = await client.get("/segments/t", params=query)
    names: list[str] = (await answer.json())[0]["OFFLINE"]
    return names


async def test_a_replacement_is_started_ended_and_reverted(client: Client, store: SqliteMetastore) -> None:
    status, body = await call(client, "startReplaceSegments", HOURS, type="OFFLINE")
    assert status == 200
    entry = body["segmentLineageEntryId"]
    await publish(client, store, "day")
    assert await segments(client, excludeReplacedSegments="true") == ["h1", "h2", "other"]
    assert await segments(client) == ["day", "h1", "h2", "other"]
    status, body = await call(client, "endReplaceSegments", segmentLineageEntryId=entry)
    assert (status, body["state"], body["segmentsTo"]) == (200, "COMPLETED", ["day"])
    assert await segments(client, excludeReplacedSegments="true") == ["day", "other"]
    lineage = await (await client.get("/segments/t/lineage")).json()
    assert lineage["tableNameWithType"] == "t_OFFLINE"
    told = lineage["lineageEntries"][entry]
    assert told["segmentsFrom"] == ["h1", "h2"]
    assert told["state"] == "COMPLETED"
    assert told["customMap"] == {"why": "merge"}
    metadata = await (await client.get("/segments/t/metadata")).json()
    assert {name: (one["visible"], one["visibility"]) for name, one in metadata.items()} == {
        "day": (True, "Visible"),
        "other": (True, "Visible"),
        "h1": (False, "Replaced"),
        "h2": (False, "Replaced"),
    }
    assert (await (await client.get("/tables/t/metadata")).json())["numSegments"] == 2
    status, body = await call(client, "revertReplaceSegments", segmentLineageEntryId=entry)
    assert (status, body["state"]) == (200, "REVERTED")
    assert await segments(client, excludeReplacedSegments="true") == ["h1", "h2", "other"]


async def test_an_end_says_which_outputs_are_not_loaded(client: Client, store: SqliteMetastore) -> None:
    _, body = await call(client, "startReplaceSegments", HOURS)
    entry = body["segmentLineageEntryId"]
    status, body = await call(client, "endReplaceSegments", segmentLineageEntryId=entry, timeoutSeconds="0.3")
    assert (status, body["code"]) == (503, 503)
    assert "first=day reason: not published" in body["error"]
    await publish(client, store, "day")
    write_report(store, TABLE, SERVER, [], {"day@1": "the file is broken"})
    status, body = await call(client, "endReplaceSegments", segmentLineageEntryId=entry, timeoutSeconds="0")
    assert status == 503
    assert "not loaded by Server_host_1: the file is broken" in body["error"]


@pytest.mark.parametrize(
    ("path", "body", "query", "status", "message"),
    [
        ("startReplaceSegments", {"segmentsFrom": ["gone"], "segmentsTo": ["x"]}, {}, 409, "does not exist"),
        ("startReplaceSegments", {"segmentsFrom": "h1"}, {}, 400, "at=segmentsFrom"),
        ("startReplaceSegments", HOURS, {"type": "REALTIME"}, 400, "leave it out or say OFFLINE"),
        ("endReplaceSegments", None, {}, 400, "give the id that startReplaceSegments answered"),
        ("endReplaceSegments", None, {"segmentLineageEntryId": "never"}, 404, "does not exist"),
        ("endReplaceSegments", None, {"segmentLineageEntryId": "e", "timeoutSeconds": "x"}, 400, "0 to 600 seconds"),
        ("revertReplaceSegments", None, {"segmentLineageEntryId": "never"}, 404, "does not exist"),
        ("revertReplaceSegments", None, {"segmentLineageEntryId": "e"}, 409, "revert it by force"),
    ],
)
async def test_errors_are_one_line_that_says_what_to_do(
    client: Client, path: str, body: object, query: dict[str, str], status: int, message: str
) -> None:
    await call(client, "startReplaceSegments", HOURS | {"segmentLineageEntryId": "e"})
    code, answer = await call(client, path, body, **query)
    assert (code, answer["code"]) == (status, status)
    assert message in answer["error"]
    assert "\n" not in answer["error"]


async def test_force_puts_aside_what_is_in_the_way_and_reverts_what_has_not_ended(client: Client) -> None:
    await call(client, "startReplaceSegments", HOURS | {"segmentLineageEntryId": "e"})
    status, _ = await call(client, "startReplaceSegments", HOURS | {"segmentLineageEntryId": "f"})
    assert status == 409
    again = HOURS | {"segmentLineageEntryId": "f"}
    status, body = await call(client, "startReplaceSegments", again, forceCleanup="true")
    assert (status, body) == (200, {"segmentLineageEntryId": "f"})
    status, body = await call(client, "revertReplaceSegments", segmentLineageEntryId="f", forceRevert="true")
    assert (status, body["state"]) == (200, "REVERTED")
    entries = (await (await client.get("/segments/t/lineage")).json())["lineageEntries"]
    assert {entry: one["state"] for entry, one in entries.items()} == {"e": "REVERTED", "f": "REVERTED"}


async def test_segments_that_a_replacement_needs_cannot_be_deleted(client: Client) -> None:
    await call(client, "startReplaceSegments", HOURS | {"segmentLineageEntryId": "e"})
    answer = await client.delete("/segments/t/h1")
    assert answer.status == 409
    assert "end or revert the entry first" in (await answer.json())["error"]


async def test_an_output_that_comes_late_is_no_segment_of_its_own(client: Client, store: SqliteMetastore) -> None:
    """A request that a frozen controller takes up after the replacement was taken back."""
    _, body = await call(client, "startReplaceSegments", HOURS)
    entry = body["segmentLineageEntryId"]
    record = SegmentRecord(name="day", crc=1, size_bytes=1, url=f"file:///d/{TABLE}/day@1.mseg", total_docs=5)
    put = {
        "records": [record.model_dump(mode="json", by_alias=True, exclude_defaults=True)],
        "segmentLineageEntryId": entry,
    }
    assert (await call(client, "publish", put))[0] == 200
    await publish(client, store)
    assert (await call(client, "endReplaceSegments", segmentLineageEntryId=entry))[0] == 200
    status, body = await call(client, "publish", put)
    assert (status, body["unchanged"]) == (200, ["day"])
    await call(client, "revertReplaceSegments", segmentLineageEntryId=entry)
    put["records"][0]["crc"] = 2
    status, body = await call(client, "publish", put)
    assert (status, "takes no such output, or no outputs any more" in body["error"]) == (409, True)
    put["segmentLineageEntryId"] = "unknown"
    assert (await call(client, "publish", put))[0] == 409
    assert await segments(client, excludeReplacedSegments="true") == ["h1", "h2", "other"]


async def test_a_start_is_refused_if_an_input_is_not_the_version_that_the_caller_has_seen(client: Client) -> None:
    status, body = await call(client, "startReplaceSegments", {**HOURS, "segmentCrcs": {"h1": 1, "h2": 7}})
    assert (status, "segment to replace has changed segment=h2 expected=7 got=1" in body["error"]) == (409, True)
    assert (await call(client, "startReplaceSegments", {**HOURS, "segmentCrcs": {"h1": 1, "h2": 1}}))[0] == 200


async def test_brokers_tell_whether_they_route_to_the_outputs(client: Client, store: SqliteMetastore) -> None:
    completed: list[str] = []

    async def lineage(_: web.Request) -> web.Response:
        return web.json_response({TABLE: {"epoch": 1, "completed": completed}})

    broker = web.Application()
    broker.add_routes([web.get("/debug/lineage/{table}", lineage)])
    async with TestServer(broker) as server:
        for name, port in (("Broker_1", server.port), ("Broker_2", 1)):
            record = InstanceRecord(id=InstanceId(name), role=Role.BROKER, host="127.0.0.1", http_port=port or 0)
            register(store.session(), record)
        for routed, said in (([], "Behind"), (["e"], "Routed")):
            completed[:] = routed
            answer = await client.get("/segments/t/lineage/e/brokers")
            assert await answer.json() == {"brokers": {"Broker_1": said, "Broker_2": "Unreachable"}}
