"""Pinot's paths that delete segments: what is asked for goes in one stroke, or nothing does."""

from collections.abc import AsyncIterator

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments import publish
from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.ids import TableName
from merlot.metastore.sqlite import SqliteMetastore

Client = TestClient[web.Request, web.Application]

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: rides}
spec:
  timeColumn: at
  schema:
    fields: [{name: at, type: TIMESTAMP, role: dateTime}, {name: carrier, type: STRING}]
"""
NAMES = ["a", "b", "c", "d", "e", "f", "g"]


@pytest.fixture
async def client(store: SqliteMetastore) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(ControllerService(store)))) as client:
        assert (await client.post("/apply", data=MANIFEST)).status == 200
        records = [
            SegmentRecord(
                name=name,
                crc=1,
                size_bytes=1,
                url="",
                total_docs=1,
                start_time_ms=day * 100,
                end_time_ms=day * 100 + 99,
            )
            for day, name in enumerate(NAMES)
        ]
        publish.publish(store, TableName("rides_OFFLINE"), records)
        yield client


async def told(client: Client, method: str, path: str, body: object = None, status: int = 200) -> str:
    answer = await client.request(method, path, data=None if body is None else orjson.dumps(body))
    found = orjson.loads(await answer.text())
    assert answer.status == status, found
    return str(found["status"] if status == 200 else found["error"])


async def left(client: Client) -> str:
    answer = await client.get("/segments/rides")
    return "".join((await answer.json())[0]["OFFLINE"])


async def test_several_are_deleted_by_name(client: Client) -> None:
    text = await told(client, "DELETE", "/segments/rides_OFFLINE?segments=a&segments=b,c&retention=0d")
    assert text == "Deleted segments: [a, b, c] from table: rides_OFFLINE"
    assert await told(client, "POST", "/segments/rides/delete", ["e"]) == "Deleted segments: [e] from table: rides"
    assert await left(client) == "dfg"
    assert await told(client, "DELETE", "/segments/rides/d") == "Segment d deleted"
    assert await left(client) == "fg"


async def test_more_than_five_are_counted(client: Client) -> None:
    assert await told(client, "POST", "/segments/rides/delete", NAMES) == "Deleted 7 segments from table: rides"
    assert await left(client) == ""


async def test_all_of_a_half_are_deleted_where_it_is_named(client: Client) -> None:
    assert "type is missing" in await told(client, "DELETE", "/segments/rides", status=400)
    await told(client, "DELETE", "/segments/rides?type=REALTIME")
    assert await left(client) == "abcdefg"
    text = await told(client, "DELETE", "/segments/rides?type=offline")
    assert text == "All segments of table rides_OFFLINE deleted"
    assert await left(client) == ""


async def test_those_of_a_window_are_deleted_that_lie_in_it_as_a_whole(client: Client) -> None:
    text = await told(client, "DELETE", "/segments/rides/choose?startTimestamp=100&endTimestamp=350")
    assert text == "Deleted segments: [b, c] from table: rides"
    text = await told(client, "DELETE", "/segments/rides/choose?startTimestamp=900&endTimestamp=950")
    assert text == "Deleted 0 segments from table: rides"
    await told(client, "DELETE", "/segments/rides/choose?startTimestamp=5", status=400)
    assert await left(client) == "adefg"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("DELETE", "/segments/rides?segments=a&segments=z", None, 404),
        ("DELETE", "/segments/rides?segments=a&type=REALTIME", None, 400),
        ("DELETE", "/segments/rides?segments=a&type=BOTH", None, 400),
        ("DELETE", "/segments/rides?type=OFFLINE&segmentNames=a", None, 400),
        ("DELETE", "/segments/rides?type=OFFLINE&segments=", None, 400),
        ("DELETE", "/segments/rides?segments=a&retention=7d", None, 400),
        ("DELETE", "/segments/none?segments=a", None, 404),
        ("POST", "/segments/rides/delete", [], 400),
        ("POST", "/segments/rides/delete", {"segments": ["a"]}, 400),
        ("POST", "/segments/rides/delete", ["a", 5], 400),
        ("POST", "/segments/rides/delete", ["a", "y", "z"], 404),
    ],
)
async def test_what_is_misunderstood_deletes_nothing(
    client: Client, method: str, path: str, body: object, status: int
) -> None:
    assert await told(client, method, path, body, status)
    assert await left(client) == "abcdefg"
